"""A referee in process: any Qwen2-VL, Qwen2.5-VL or Qwen3-VL folder. The only file of the library that knows transformers."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ser_fast.errors import RefereeLoadError
from ser_fast.ops import PatchSpec, crop_patchify
from ser_fast.packing import image_order, pack_rows, path_to
from ser_fast.referee.prompt import (
    SYSTEM,
    BoxConvention,
    ClaimTree,
    PromptBuilder,
    PromptTokens,
    RefereeConfig,
    View,
)
from ser_fast.types import RefereeRequest, RefereeScores

FAMILIES: dict[str, BoxConvention] = {"qwen2_vl": "norm1000", "qwen2_5_vl": "pixels", "qwen3_vl": "norm1000"}
"""config.json's model_type -> how that family writes boxes."""

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


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
            RefereeLoadError: no such folder, a family that is not supported, missing files or weights, a device that is not
                there; one line.
        """
        self.config = config or RefereeConfig()
        self.device = _checked_device(device)
        loaded = _load(os.fspath(model), self.device, dtype)
        self.model = loaded.model
        self.spec = loaded.spec
        self.convention = FAMILIES[self.model.config.model_type]
        self.tokenizer = loaded.tokenizer
        encode = _plain_encoder(loaded.tokenizer)
        self.level_ids = [_single_token(encode, str(level), os.fspath(model)) for level in range(self.config.levels)]
        header, trailer = _chat_frame(loaded.tokenizer, os.fspath(model))
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
            hidden = self.model.model(
                input_ids=packed.input_ids,
                attention_mask=packed.mask(),
                position_ids=packed.position_ids,
                pixel_values=pixels,
                image_grid_thw=grid,
                use_cache=False,
            ).last_hidden_state
            claims = [i for tree in batch for i in tree.requests]
            logprob[claims] = self._level_logprob(hidden[packed.last_tokens(leaves)]).reshape(-1, 2, self.config.levels)
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
                    hidden = self.model.model(
                        input_ids=ids,
                        pixel_values=pixels,
                        image_grid_thw=grid,
                        mm_token_type_ids=(ids == self.prompts.tokens.image).int(),
                        use_cache=False,
                    ).last_hidden_state
                    logprob[claim, axis] = self._level_logprob(hidden[:, -1])[0]
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

    def _level_logprob(self, hidden: torch.Tensor) -> torch.Tensor:
        """[N, H] -> float32[N, levels] on the host: log-probability of each level token under the full vocabulary."""
        logits = self.model.lm_head(hidden).float()
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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Loaded:
    model: Any
    tokenizer: Any
    spec: PatchSpec


def _load(name: str, device: torch.device, dtype: torch.dtype | str) -> _Loaded:
    is_folder = Path(name).is_dir()
    if is_folder:
        _check_folder(Path(name))
    elif not HUB_NAME.fullmatch(name):
        raise RefereeLoadError(f"{name}: no such folder")

    import transformers
    from safetensors import SafetensorError

    options: dict[str, Any] = {"local_files_only": is_folder, "trust_remote_code": False}
    try:
        config = transformers.AutoConfig.from_pretrained(name, **options)
        _check_family(name, config)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **options)
        if dtype == "auto" and device.type == "cpu":
            dtype = torch.float32
        with no_progress_bar():
            model, info = transformers.AutoModelForImageTextToText.from_pretrained(
                name, dtype=dtype, attn_implementation="sdpa", use_safetensors=True, output_loading_info=True, **options
            )
        settings = _pixel_settings(name, is_folder)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        if isinstance(error, RefereeLoadError):
            raise
        reason = " ".join(str(error).split())
        what = "cannot be loaded" if is_folder else "no such folder, and not to be had from the hub"
        raise RefereeLoadError(f"{name}: {what}: {reason}") from error
    if info["missing_keys"] or info["mismatched_keys"]:
        bad = sorted(map(str, [*info["missing_keys"], *info["mismatched_keys"]]))
        raise RefereeLoadError(f"{name}: {len(bad)} weights are missing or have another shape, {bad[0]} among them")
    try:
        spec = PatchSpec.from_config(settings)
    except ValueError as error:
        raise RefereeLoadError(f"{name}: preprocessor_config.json: {error}") from error
    return _Loaded(model=model.to(device).eval(), tokenizer=tokenizer, spec=spec)


def _checked_device(device: torch.device | str) -> torch.device:
    """A device asked for and absent is an error, not a CPU run."""
    try:
        checked = torch.device(device)
    except RuntimeError:
        checked = torch.device("meta")
    if checked.type not in ("cpu", "cuda"):
        raise RefereeLoadError(f"device: expected cpu, cuda or cuda:N, got {str(device)!r}")
    if checked.type == "cuda" and (checked.index or 0) >= torch.cuda.device_count():
        raise RefereeLoadError(f"device: expected one that is there, got {str(device)!r} of {torch.cuda.device_count()} GPUs")
    return checked


@contextlib.contextmanager
def no_progress_bar() -> Iterator[None]:
    """A library loads in silence."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _check_folder(folder: Path) -> None:
    """What is missing, by name, before anything is loaded."""
    needed = {
        "config.json": ["config.json"],
        "tokenizer.json or vocab.json": ["tokenizer.json", "vocab.json"],
        "preprocessor_config.json": ["preprocessor_config.json", "processor_config.json"],
        "*.safetensors": ["*.safetensors"],
    }
    for what, patterns in needed.items():
        if not any(any(folder.glob(pattern)) for pattern in patterns):
            raise RefereeLoadError(f"{folder}: not a model folder: {what} is missing")
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise RefereeLoadError(f"{folder}: config.json is not JSON: {error}") from error
    family = config.get("model_type") if isinstance(config, dict) else None
    if family not in FAMILIES:
        raise RefereeLoadError(f"{folder}: model family {family!r} is not supported, expected {', '.join(FAMILIES)}")


def _check_family(name: str, config: Any) -> None:
    if config.model_type not in FAMILIES:
        raise RefereeLoadError(f"{name}: model family {config.model_type!r} is not supported, expected {', '.join(FAMILIES)}")
    if "sliding_attention" in (getattr(config.text_config, "layer_types", None) or ()):
        raise RefereeLoadError(f"{name}: sliding-window attention is not supported: a tree mask knows no window")


def _pixel_settings(name: str, is_folder: bool) -> dict[str, Any]:
    """preprocessor_config.json, or its newer place inside processor_config.json."""
    from transformers.utils.hub import cached_file

    for file, key in (("preprocessor_config.json", None), ("processor_config.json", "image_processor")):
        path = cached_file(name, file, local_files_only=is_folder, _raise_exceptions_for_missing_entries=False)
        if path is not None:
            settings = json.loads(Path(path).read_text(encoding="utf-8"))
            settings = settings if key is None else settings.get(key)
            if isinstance(settings, dict):
                return settings
    raise RefereeLoadError(f"{name}: preprocessor_config.json is missing")


def _plain_encoder(tokenizer: Any) -> Any:
    """Text -> ids by the tokenizer's model alone: without its added tokens there is no special token to be parsed."""
    from tokenizers import Tokenizer

    settings = json.loads(tokenizer.backend_tokenizer.to_str())
    settings["added_tokens"] = []
    settings["post_processor"] = None
    settings["truncation"] = settings["padding"] = None
    plain = Tokenizer.from_str(json.dumps(settings))
    return lambda text: plain.encode(text, add_special_tokens=False).ids


def _single_token(encode: Any, text: str, name: str) -> int:
    ids = encode(text)
    if len(ids) != 1:
        raise RefereeLoadError(f"{name}: the level {text!r} is {len(ids)} tokens in this tokenizer, expected one")
    return int(ids[0])


def _chat_frame(tokenizer: Any, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The chat template around the user's words, as ids."""
    if not tokenizer.chat_template:
        raise RefereeLoadError(f"{name}: the tokenizer has no chat template")
    mark = "\u2402\u2403"
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": mark}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    parts = text.split(mark)
    if len(parts) != 2:
        raise RefereeLoadError(f"{name}: the chat template shows the user's words {len(parts) - 1} times, expected once")
    header, trailer = (tuple(tokenizer(part, add_special_tokens=False)["input_ids"]) for part in parts)
    return header, trailer
