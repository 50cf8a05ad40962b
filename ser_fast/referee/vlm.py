"""A referee in process: any Qwen2-VL, Qwen2.5-VL or Qwen3-VL folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from ser_fast.assets import TOY_REFEREE
from ser_fast.packing import image_order, pack_rows, path_to
from ser_fast.referee.attention import tree_arguments
from ser_fast.referee.loading import checked_device, load_vlm, prompt_tokens, single_tokens
from ser_fast.referee.prompt import SYSTEM, ClaimTree, PromptBuilder, RefereeConfig
from ser_fast.referee.views import View, view_pixels
from ser_fast.types import RefereeRequest, RefereeScores


class VLMReferee:
    """Scores claims with a vision-language model in one prefill, without decoding: claims on a frame share the frame."""

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype | str = "auto",
        config: RefereeConfig | None = None,
    ) -> None:
        """Loads a model.

        Args:
            model: a folder in the published layout (config.json, tokenizer, chat template, preprocessor_config.json,
                safetensors), or the name of one on the Hugging Face hub; "toy" is the one that ships with the package,
                which knows coloured shapes and nothing else.
            device: where it runs.
            dtype: "auto" is float32 on the CPU and the checkpoint's own elsewhere.
            config: prompt, crops and budgets.

        Raises:
            ModelLoadError: no such folder, a family that is not supported, missing files or weights, a device that is not
                there; one line.
        """
        self.config = config or RefereeConfig()
        self.device = checked_device(device)
        loaded = load_vlm(TOY_REFEREE if model == "toy" else model, device=self.device, dtype=dtype)
        self.model, self.tokenizer, self.spec, self.convention = loaded.model, loaded.tokenizer, loaded.spec, loaded.convention
        tokens = prompt_tokens(loaded, system=SYSTEM)
        self.level_ids = single_tokens(tokens.encode, [str(level) for level in range(self.config.levels)], loaded.name)
        self.prompts = PromptBuilder(
            tokens=tokens,
            spec=self.spec,
            convention=self.convention,
            config=self.config,
        )

    @torch.inference_mode()
    def score(self, requests: Sequence[RefereeRequest]) -> RefereeScores:
        """Relevance and localization of each claim, in the order of the requests.

        score = sum_l l p_l / (L - 1), p the softmax over the logits of the L level tokens where the answer is due;
        level_mass = the probability of all level tokens together under the full vocabulary, the smaller of the two axes.
        """
        logprob = torch.full((len(requests), 2, self.config.levels), torch.nan, dtype=torch.float32, device="cpu")
        for batch in _batches(self.prompts.trees(requests), self.config.max_batch_tokens):
            claims = [i for tree in batch for i in tree.requests]
            with torch.autocast(self.device.type, enabled=False):  # one around the caller does not reach the referee
                logprob[claims] = self.level_logprob(batch).cpu()
        return _to_scores(logprob)

    def level_logprob(self, trees: Sequence[ClaimTree]) -> torch.Tensor:
        """float32[C, 2, levels]: log-probability of each level as the relevance and the localization of the C claims of the
        trees, in their order, under the full vocabulary; differentiable in the weights."""
        with torch.device(self.device):  # whatever the caller's default device
            return self._tree_logprob(trees)

    def _tree_logprob(self, trees: Sequence[ClaimTree]) -> torch.Tensor:
        leaves = [(row, leaf) for row, tree in enumerate(trees) for pair in tree.leaves for leaf in pair]
        rows = [tree.segments for tree in trees]
        packed = pack_rows(rows, image_token_id=self.prompts.tokens.image, merge_size=self.spec.merge_size, device=self.device)
        pixels, grid = self._pixels([trees[row].views[segment][i] for row, segment, i in image_order(rows)])
        levels = self._level_logprob(
            packed.last_tokens(leaves), **tree_arguments(packed), pixel_values=pixels, image_grid_thw=grid
        )
        return levels.reshape(-1, 2, self.config.levels)

    @torch.inference_mode()
    def score_unpacked(self, requests: Sequence[RefereeRequest]) -> RefereeScores:
        """The same scores the plain way: one forward pass a claim and axis on the same ids, with the model's own mask and
        positions. The oracle of `score`, and what it is measured against."""
        logprob = torch.full((len(requests), 2, self.config.levels), torch.nan, dtype=torch.float32, device="cpu")
        for tree in self.prompts.trees(requests):
            for claim, pair in zip(tree.requests, tree.leaves, strict=True):
                for axis, leaf in enumerate(pair):
                    path = path_to(tree.segments, leaf)
                    ids = torch.tensor([[i for s in path for i in tree.segments[s].ids]], device=self.device)
                    pixels, grid = self._pixels([view for s in path for view in tree.views[s]])
                    with torch.autocast(self.device.type, enabled=False):
                        logprob[claim, axis] = self._level_logprob(
                            (0, [ids.shape[1] - 1]),
                            input_ids=ids,
                            pixel_values=pixels,
                            image_grid_thw=grid,
                            mm_token_type_ids=(ids == self.prompts.tokens.image).int(),
                        )[0]
        return _to_scores(logprob)

    def _pixels(self, views: Sequence[View]) -> tuple[torch.Tensor, torch.Tensor]:
        return view_pixels(views, self.spec, self.device)

    def _level_logprob(self, due: Any, **inputs: Any) -> torch.Tensor:
        """float32[N, levels]: log-probability of each level token under the full vocabulary at N places (an index
        of the first two dimensions)."""
        hidden = self.model.model(use_cache=False, **inputs).last_hidden_state
        logits = self.model.lm_head(hidden[due]).float()
        return logits.log_softmax(dim=-1)[:, self.level_ids]


def _to_scores(logprob: torch.Tensor) -> RefereeScores:
    """float32[C, 2, levels] log-probabilities -> scores."""
    share = logprob.softmax(dim=-1)
    levels = torch.linspace(0, 1, logprob.shape[-1], dtype=torch.float32, device=logprob.device)
    expectation = (share * levels).sum(-1)
    valid = expectation.isfinite().all(dim=-1)
    return RefereeScores(
        relevance=expectation[:, 0],
        localization=expectation[:, 1],
        level_mass=logprob.exp().sum(-1).amin(dim=-1),
        valid=valid,
        reasons=tuple(None if ok else "the referee's scores are not finite" for ok in valid.tolist()),
    )


def _batches(trees: list[ClaimTree], max_tokens: int) -> list[list[ClaimTree]]:
    """Trees of like length together, as many as fit the budget with their padding."""
    batches: list[list[ClaimTree]] = []
    for tree in sorted(trees, key=lambda tree: tree.num_tokens, reverse=True):
        if batches and batches[-1][0].num_tokens * (len(batches[-1]) + 1) <= max_tokens:
            batches[-1].append(tree)
        else:
            batches.append([tree])
    return batches
