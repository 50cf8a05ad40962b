"""The shipped toy models, and how fresh ones begin."""

from __future__ import annotations

from pathlib import Path

from ser_fast.testing import write_random_vlm
from trainer.prompt import PromptConfig, write_prompt
from trainer.toy.tokenizer import toy_tokenizer

POLICY_TOKENS, REFEREE_TOKENS = 9, 16
"""Of an image: the policy sees a frame as 84 x 84, the referee a frame or a crop as 112 x 112 pixels."""

PROMPT = PromptConfig(system="You answer questions about videos.", frame="{time} s: {image}\n")
"""The toy policy knows what is wanted of it; long texts around nine tokens of image would only be in its way."""

SHAPE = {
    "hidden_size": 192,
    "num_layers": 4,
    "vision_size": 96,
    "vision_layers": 3,
    "gain": 0.6,
    "rope_theta": 100.0,
    "window": 8,
}
"""About 2.2 million parameters. Grids of three or four tokens a side need positions that turn faster than those of models that
read long texts."""


def new_policy(folder: Path, *, seed: int) -> Path:
    """Writes a policy that knows nothing but its prompt."""
    _new(folder, seed, POLICY_TOKENS)
    write_prompt(folder, PROMPT)
    return folder


def new_referee(folder: Path, *, seed: int) -> Path:
    """Writes a referee that knows nothing."""
    return _new(folder, seed, REFEREE_TOKENS)


def _new(folder: Path, seed: int, max_tokens: int) -> Path:
    return write_random_vlm(
        folder,
        family="qwen2_5_vl",
        seed=seed,
        max_tokens=max_tokens,
        tokenizer=toy_tokenizer(),
        **SHAPE,  # type: ignore[arg-type]
    )
