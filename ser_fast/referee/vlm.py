"""A referee in process: any Qwen2-VL, Qwen2.5-VL or Qwen3-VL folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from ser_fast.ops import crop_patchify
from ser_fast.packing import image_order, pack_rows, path_to
from ser_fast.referee.loading import chat_frame, checked_device, load_vlm, plain_encoder, single_tokens
from ser_fast.referee.prompt import SYSTEM, ClaimTree, PromptBuilder, PromptTokens, RefereeConfig, View
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
                safetensors), or the name of one on the Hugging Face hub.
            device: where it runs.
            dtype: "auto" is float32 on the CPU and the checkpoint's own elsewhere.
            config: prompt, crops and budgets.

        Raises:
            ModelLoadError: no such folder, a family that is not supported, missing files or weights, a device that is not
                there; one line.
        """
        self.config = config or RefereeConfig()
        self.device = checked_device(device)
        loaded = load_vlm(model, device=self.device, dtype=dtype)
        self.model, self.tokenizer, self.spec, self.convention = loaded.model, loaded.tokenizer, loaded.spec, loaded.convention
        encode = plain_encoder(loaded.tokenizer)
        self.level_ids = single_tokens(encode, [str(level) for level in range(self.config.levels)], loaded.name)
        header, trailer = chat_frame(loaded, system=SYSTEM)
        self.prompts = PromptBuilder(
            tokens=PromptTokens(
                encode=encode,
                header=header,
                trailer=trailer,
                image_start=self.model.config.vision_start_token_id,
                image=self.model.config.image_token_id,
                image_end=self.model.config.vision_end_token_id,
            ),
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
        logprob = torch.full((len(requests), 2, self.config.levels), torch.nan)
        for batch in _batches(self.prompts.trees(requests), self.config.max_batch_tokens):
            leaves = [(row, leaf) for row, tree in enumerate(batch) for pair in tree.leaves for leaf in pair]
            rows = [tree.segments for tree in batch]
            packed = pack_rows(
                rows, image_token_id=self.prompts.tokens.image, merge_size=self.spec.merge_size, device=self.device
            )
            views = [batch[row].views[segment][i] for row, segment, i in image_order(rows)]
            pixels, grid = self._pixels(views)
            levels = self._level_logprob(
                packed.last_tokens(leaves),
                input_ids=packed.input_ids,
                attention_mask=packed.mask(),
                position_ids=packed.position_ids,
                pixel_values=pixels,
                image_grid_thw=grid,
            )
            claims = [i for tree in batch for i in tree.requests]
            logprob[claims] = levels.reshape(-1, 2, self.config.levels)
        return _to_scores(logprob)

    @torch.inference_mode()
    def score_unpacked(self, requests: Sequence[RefereeRequest]) -> RefereeScores:
        """The same scores the plain way: one forward pass a claim and axis on the same ids, with the model's own mask and
        positions. The oracle of `score`, and what it is measured against."""
        logprob = torch.full((len(requests), 2, self.config.levels), torch.nan)
        for tree in self.prompts.trees(requests):
            for claim, pair in zip(tree.requests, tree.leaves, strict=True):
                for axis, leaf in enumerate(pair):
                    path = path_to(tree.segments, leaf)
                    ids = torch.tensor([[i for s in path for i in tree.segments[s].ids]], device=self.device)
                    pixels, grid = self._pixels([view for s in path for view in tree.views[s]])
                    logprob[claim, axis] = self._level_logprob(
                        (0, [ids.shape[1] - 1]),
                        input_ids=ids,
                        pixel_values=pixels,
                        image_grid_thw=grid,
                        mm_token_type_ids=(ids == self.prompts.tokens.image).int(),
                    )[0]
        return _to_scores(logprob)

    def _pixels(self, views: Sequence[View]) -> tuple[torch.Tensor, torch.Tensor]:
        """Patch rows and grids of the views, in their order."""
        grid = torch.tensor([self.spec.grid(*view.size) for view in views])
        offsets = [0, *grid.prod(1).cumsum(0).tolist()]
        rows = torch.empty(offsets[-1], self.spec.row_size, device=self.device)
        for frames, members in _by_clip(views):
            part, _ = crop_patchify(
                frames.to(self.device),
                torch.tensor([views[i].frame_idx for i in members]),
                torch.tensor([views[i].box for i in members]),
                sizes=[views[i].size for i in members],
                spec=self.spec,
            )
            at = 0
            for i in members:
                num_rows = offsets[i + 1] - offsets[i]
                rows[offsets[i] : offsets[i + 1]] = part[at : at + num_rows]
                at += num_rows
        return rows, grid.to(self.device)

    def _level_logprob(self, due: Any, **inputs: torch.Tensor) -> torch.Tensor:
        """float32[N, levels] on the host: log-probability of each level token under the full vocabulary at N places (an index
        of the first two dimensions). An autocast around the caller does not reach the referee."""
        with torch.autocast(self.device.type, enabled=False):
            hidden = self.model.model(use_cache=False, **inputs).last_hidden_state
            logits = self.model.lm_head(hidden[due]).float()
        return logits.log_softmax(dim=-1)[:, self.level_ids].cpu()


def _to_scores(logprob: torch.Tensor) -> RefereeScores:
    """float32[C, 2, levels] log-probabilities -> scores."""
    share = logprob.softmax(dim=-1)
    levels = torch.linspace(0, 1, logprob.shape[-1])
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


def _by_clip(views: Sequence[View]) -> list[tuple[torch.Tensor, list[int]]]:
    groups: dict[int, tuple[torch.Tensor, list[int]]] = {}
    for i, view in enumerate(views):
        groups.setdefault(id(view.clip), (view.clip.frames, []))[1].append(i)
    return list(groups.values())
