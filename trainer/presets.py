"""Runs as data: a preset is a class whose fields are the run's settings, each with the default that we would choose."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from trainer.prompt import PromptConfig
from trainer.supervised import SupervisedConfig


@dataclass(frozen=True, kw_only=True)
class Sft:
    """Fine-tune a policy on completions: question lines with `completion` and `coord_space`, or the SFT list of Open-o3."""

    model: str
    """Folder or hub name: Qwen2-VL, Qwen2.5-VL, Qwen3-VL."""
    data: Path
    videos: Path
    """Folder that the names in the data are below."""
    run: Path
    """Folder of the run; the same folder again goes on with it."""
    fps: float = 2.0
    max_frames: int = 16
    num_clips: int = 4
    """Of a step, each with all its examples."""
    seed: int = 0
    device: str = "cpu"
    prompt: PromptConfig = field(default_factory=PromptConfig)
    steps: SupervisedConfig = field(default_factory=lambda: SupervisedConfig(num_steps=1000, learning_rate=1e-5))
    show_prompt: bool = False
    """Print the prompt of the first example, and stop."""


@dataclass(frozen=True, kw_only=True)
class SftToy:
    """Take the toy policy from nothing to its cold start, as `make toy-models` does."""

    run: Path = Path("build/toy")
    """Folder of videos, runs and models; the same folder again goes on with it."""
    show_prompt: bool = False
    """Print the prompt of a question, and stop."""
