"""Completions token by token: each prompt is computed once, and its keys and values serve all its completions.

Letters: P prompts, R rows that are still being written, V vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ser_fast.errors import InputError
from ser_fast.packing import Segment, pack_rows
from ser_fast.referee.views import view_pixels
from trainer.prompt import ClipPrompt, PolicyPrompts

Prompt = tuple[ClipPrompt, tuple[int, ...]]
"""A clip and the ids of a question on it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """What a policy wrote."""

    ids: tuple[int, ...]
    """The end token included, unless truncated."""
    logprobs: tuple[float, ...]
    """Of each id under the policy over the whole vocabulary, at the temperature at which it was drawn; at 1 if greedy."""
    text: str
    """Without the end token."""
    truncated: bool
    """It hit the length limit."""


@dataclass(slots=True)
class _Written:
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class Decoder:
    """Writes completions with a Qwen-VL model."""

    def __init__(self, model: Any, tokenizer: Any, prompts: PolicyPrompts) -> None:
        self._model, self._tokenizer, self._prompts = model, tokenizer, prompts
        self._end = int(tokenizer.eos_token_id)
        forward = inspect.signature(model.model.forward).parameters
        self._cache = "cache" if "cache" in forward else "past_key_values"  # its name in older transformers
        special = [i for i, token in tokenizer.added_tokens_decoder.items() if token.special and i != self._end]
        num_tokens = model.lm_head.weight.shape[0]
        self.silent = torch.zeros(num_tokens, dtype=torch.bool, device=model.device)
        """bool[V]: what is never written."""
        self.silent[[i for i in special if i < num_tokens]] = True
        self.silent[len(tokenizer) :] = True

    @torch.inference_mode()
    def write(
        self,
        prompts: Sequence[Prompt],
        *,
        num: int,
        max_new_tokens: int,
        temperature: float,
        generator: torch.Generator,
    ) -> list[Completion]:
        """`num` completions of each prompt, those of a prompt next to one another. Greedy at temperature 0. Image placeholders,
        chat marks and ids beyond the tokenizer are never written."""
        cache, mask, hidden, places = self._read(prompts)
        cache.batch_repeat_interleave(num)
        mask, hidden, places = (x.repeat_interleave(num, dim=0) for x in (mask, hidden, places))
        written = [_Written() for _ in range(len(prompts) * num)]
        rows = list(range(len(written)))
        head = self._model.lm_head.weight.float()
        for step in range(max_new_tokens):
            logits = torch.nn.functional.linear(hidden.float() / (temperature or 1.0), head)
            logprobs = logits.log_softmax(-1)
            ids = self._choose(logprobs, generator if temperature else None)
            chosen = logprobs.gather(1, ids[:, None])[:, 0]
            for row, token, logprob in zip(rows, ids.tolist(), chosen.tolist(), strict=True):
                written[row].ids.append(token)
                written[row].logprobs.append(logprob)
            going = (ids != self._end).nonzero()[:, 0]
            if not len(going) or step + 1 == max_new_tokens:
                break
            if len(going) < len(rows):
                rows = [rows[i] for i in going.tolist()]
                cache.batch_select_indices(going)
                ids, mask, places = ids[going], mask[going], places[going]
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
            hidden = self._model.model(
                input_ids=ids[:, None],
                attention_mask=mask,
                position_ids=(places + step)[None, :, None].expand(3, -1, -1),
                use_cache=True,
                **{self._cache: cache},
            ).last_hidden_state[:, -1]
        return [self._completion(w) for w in written]

    def _read(self, prompts: Sequence[Prompt]) -> tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Keys and values of the prompts, int64[P, T] where they have a token, the last hidden state [P, width] of each, and
        int64[P] the position that comes next."""
        packed = pack_rows(
            [[Segment(ids=(*clip.segment.ids, *question), grids=clip.segment.grids)] for clip, question in prompts],
            image_token_id=self._prompts.tokens.image,
            merge_size=self._prompts.spec.merge_size,
            device=self._model.device,
        )
        views = [view for clip, _ in prompts for view in clip.views]
        pixels, grid = view_pixels(views, self._prompts.spec, self._model.device)
        mask = (packed.segment_ids >= 0).long()
        out = self._model.model(
            input_ids=packed.input_ids,
            attention_mask=mask,
            position_ids=packed.position_ids,
            pixel_values=pixels.to(self._model.dtype),
            image_grid_thw=grid,
            use_cache=True,
        )
        rows, columns = packed.last_tokens([(b, 0) for b in range(len(prompts))])
        places = packed.position_ids[:, rows, columns].amax(dim=0) + 1
        return getattr(out, self._cache), mask, out.last_hidden_state[rows, columns], places

    def _choose(self, logprobs: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
        """int64[R]: the next id of each row; the likeliest without a generator."""
        if logprobs.isnan().any():
            raise InputError("model: its log-probs are not numbers (any more); a smaller learning_rate may help")
        allowed = logprobs.masked_fill(self.silent, -torch.inf)
        if generator is None:
            return allowed.argmax(-1)
        return torch.multinomial(allowed.softmax(-1), 1, generator=generator)[:, 0]

    def _completion(self, written: _Written) -> Completion:
        truncated = written.ids[-1] != self._end
        text = self._tokenizer.decode(written.ids if truncated else written.ids[:-1])
        return Completion(ids=tuple(written.ids), logprobs=tuple(written.logprobs), text=text, truncated=truncated)
