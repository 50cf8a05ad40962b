"""The policy: a vision-language model that reads a clip and a question and writes a completion.

The one file of the trainer that knows transformers.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ser_fast.ops import token_logprob
from ser_fast.referee.attention import tree_arguments
from ser_fast.referee.loading import LoadedVLM, checked_device, load_vlm, prompt_tokens, quiet_transformers
from ser_fast.referee.views import view_pixels
from ser_fast.text import replace_surrogates
from trainer.batch import Batch, ClipTree, make_batch
from trainer.checks import check_counts, check_positive
from trainer.decode import Completion, Decoder, Prompt
from trainer.prompt import FILE, ClipPrompt, PolicyPrompts, PromptConfig, PromptOptions, read_prompt, system_text, write_prompt
from trainer.toy import POLICY


class Policy:
    """A loaded model with its prompts."""

    def __init__(self, loaded: LoadedVLM, *, prompt: PromptConfig | None = None) -> None:
        self.name = loaded.name
        """Folder or hub name it came from."""
        self.model: Any = loaded.model
        self.tokenizer = loaded.tokenizer
        self.spec = loaded.spec
        self.device = loaded.model.device
        self.end = int(loaded.tokenizer.eos_token_id)
        config = prompt or PromptConfig()
        self.prompts = PolicyPrompts(
            tokens=prompt_tokens(loaded, system=system_text(config, loaded.convention)),
            spec=loaded.spec,
            convention=loaded.convention,
            config=config,
        )
        self._decoder = Decoder(self.model, self.tokenizer, self.prompts)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype | str = "auto",
        prompt: PromptOptions | None = None,
    ) -> Policy:
        """Loads a folder in the published layout, a name on the hub, or "toy", the policy that ships with the trainer.

        Args:
            folder: or name.
            device: of the weights.
            dtype: of the weights, as `load_vlm`.
            prompt: what is to differ from the prompt that lies beside the weights if this trainer has taught the model, and
                else from `PromptConfig()`.

        Raises:
            ModelLoadError: as `load_vlm`.
            InputError: a prompt that cannot be read, or options that do not fit.
        """
        loaded = load_vlm(_source(folder), device=checked_device(device), dtype=dtype)
        return cls(loaded, prompt=(prompt or PromptOptions()).over(_taught_prompt(_source(folder))))

    def silent_tokens(self) -> list[int]:
        """Ids that are never written: marks of chats and images, and those beyond the tokenizer."""
        return self._decoder.silent.nonzero()[:, 0].tolist()

    def cache_bytes(self) -> int:
        """Of the keys and values of one token."""
        text = self.model.config.get_text_config()
        width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        return int(2 * text.num_hidden_layers * text.num_key_value_heads * width * self.model.dtype.itemsize)

    def completion_ids(self, text: str) -> tuple[int, ...]:
        """A completion as ids, end token included. Special tokens in the text are not parsed."""
        ids = self.tokenizer(replace_surrogates(text), add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return (*ids, self.end)

    def show(self, clip: ClipPrompt, question: tuple[int, ...]) -> str:
        """A prompt as text, an image as one placeholder."""
        text = self.tokenizer.decode([*clip.segment.ids, *question])
        placeholder = re.escape(self.tokenizer.decode([self.prompts.tokens.image]))
        return re.sub(f"({placeholder})+", "<image>", text)

    def loss(self, trees: Sequence[ClipTree]) -> torch.Tensor:
        """Mean negative log-probability of the completion tokens."""
        return -self.logprobs(make_batch(trees, self.prompts, device=self.device)).mean()

    def logprobs(self, batch: Batch, *, temperature: float = 1.0) -> torch.Tensor:
        """float32[N]: log-probability of each target token of a batch given all before it, differentiable. The temperature
        divides the logits."""
        pixels, grid = view_pixels(batch.views, self.spec, self.device)
        hidden = self.model.model(
            **tree_arguments(batch.packed),
            pixel_values=pixels.to(self.model.dtype),
            image_grid_thw=grid,
            use_cache=False,
        ).last_hidden_state
        scaled = hidden[batch.rows, batch.columns].float() / temperature
        logprob, _ = token_logprob(scaled, self.model.lm_head.weight.float(), batch.targets)
        return logprob

    def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        max_new_tokens: int,
        num: int = 1,
        temperature: float = 0.0,
        seed: int = 0,
        batch_size: int = 64,
    ) -> list[Completion]:
        """`num` completions of each prompt, those of a prompt next to one another: greedy at temperature 0, else sampled from a
        seed.

        Args:
            prompts: clips with the ids of a question.
            max_new_tokens: of a completion; one that reaches it is truncated.
            num: completions of each prompt.
            temperature: divides the logits.
            seed: of the samples. torch's own random state is not touched.
            batch_size: prompts at once.

        Raises:
            InputError: no completion, no token, no prompt at once; a temperature that is not a number >= 0.
        """
        check_counts(max_new_tokens=max_new_tokens, num=num, batch_size=batch_size)
        check_positive(or_zero=True, temperature=temperature)
        generator = torch.Generator(self.device).manual_seed(seed)
        completions: list[Completion] = []
        for first in range(0, len(prompts), batch_size):
            completions += self._decoder.write(
                prompts[first : first + batch_size],
                num=num,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                generator=generator,
            )
        return completions


def _source(folder: str | os.PathLike[str]) -> str | os.PathLike[str]:
    return POLICY if folder == "toy" else folder


def _taught_prompt(folder: str | os.PathLike[str]) -> PromptConfig:
    from transformers.utils.hub import cached_file

    if Path(folder).is_dir():
        found = str(Path(folder) / FILE) if (Path(folder) / FILE).exists() else None
    else:
        found = cached_file(os.fspath(folder), FILE, _raise_exceptions_for_missing_entries=False)
    return read_prompt(found) if found is not None else PromptConfig()


def write_folder(folder: Path, model: Any, *, like: str | os.PathLike[str], prompt: PromptConfig | None = None) -> Path:
    """Writes a model in the published layout, with tokenizer and settings of the folder or hub name that it came from, and the
    prompt that it was taught with."""
    from transformers.utils.hub import cached_file

    folder.mkdir(parents=True, exist_ok=True)
    source = Path(like) if Path(like).is_dir() else Path(cached_file(os.fspath(like), "config.json")).parent
    for file in source.iterdir():
        if file.suffix in (".json", ".jinja", ".txt") and "safetensors" not in file.name:
            shutil.copyfile(file, folder / file.name)
    if prompt is not None:
        write_prompt(folder, prompt)
    with quiet_transformers():
        model.save_pretrained(folder)
    return folder
