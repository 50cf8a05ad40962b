"""Runs as data: a preset is a class whose fields are the run's settings, each with the default that we would choose."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ser_fast.errors import InputError
from trainer.checks import check_counts, check_positive
from trainer.loss import LossConfig
from trainer.prompt import PromptOptions
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
    prompt: PromptOptions = field(default_factory=PromptOptions)
    steps: SupervisedConfig = field(default_factory=lambda: SupervisedConfig(num_steps=1000, learning_rate=1e-5))
    show_prompt: bool = False
    """Print the prompt of the first example, and stop."""

    def __post_init__(self) -> None:
        check_counts(max_frames=self.max_frames, num_clips=self.num_clips)
        check_positive(fps=self.fps)


@dataclass(frozen=True, kw_only=True)
class Grpo:
    """Reinforce a policy by the evidence that it cites: GRPO on question lines."""

    model: str
    """Folder or hub name of the policy: Qwen2-VL, Qwen2.5-VL, Qwen3-VL."""
    data: Path
    """Question lines. Those whose video, or window of it, cannot be read are left out of their step, and counted as unreadable;
    a step of which none can be read ends the run."""
    videos: Path
    """Folder that the names in the data are below."""
    referee: str
    """Folder or hub name of the referee, or toy."""
    run: Path
    """Folder of the run; the same folder again goes on with it."""
    reward: str = "ser"
    """A preset of ser_fast.rewards."""
    held_out: Path | None = None
    """Question lines on which what, when and where are measured."""
    held_out_videos: Path | None = None
    """Folder of their media, if it is another."""
    num_steps: int = 500
    num_prompts: int = 8
    """Questions of a step."""
    group_size: int = 8
    """Completions of a question."""
    prompts_at_once: int = 8
    """In one forward: more need more memory."""
    max_new_tokens: int = 768
    temperature: float = 1.0
    learning_rate: float = 1e-6
    num_warmup_steps: int = 10
    clip_norm: float = 1.0
    loss: LossConfig = field(default_factory=LossConfig)
    fps: float = 2.0
    max_frames: int = 16
    evaluate_every: int = 50
    save_every: int = 50
    seed: int = 0
    device: str = "cpu"
    prompt: PromptOptions = field(default_factory=PromptOptions)
    fresh: bool = False
    """Remove the run that the folder holds, and start over."""
    dry_run: bool = False
    """Print settings, tokens of a step and memory, and stop."""
    show_prompt: bool = False
    """Print the prompt of the first question, and stop."""

    def __post_init__(self) -> None:
        check_counts(
            num_steps=self.num_steps,
            num_prompts=self.num_prompts,
            group_size=self.group_size,
            prompts_at_once=self.prompts_at_once,
            max_new_tokens=self.max_new_tokens,
            max_frames=self.max_frames,
            evaluate_every=self.evaluate_every,
            save_every=self.save_every,
        )
        if self.group_size < 2:
            raise InputError(f"group_size: expected at least 2, to compare within a group, got {self.group_size}")
        if not 0 <= self.seed < 1_000_000_000:
            raise InputError(f"seed: expected a whole number in [0, 1000000000), got {self.seed}")
        if not self.temperature >= 0.01:
            raise InputError(f"temperature: expected a number >= 0.01, got {self.temperature}")
        check_positive(temperature=self.temperature, clip_norm=self.clip_norm, fps=self.fps)
        check_positive(or_zero=True, learning_rate=self.learning_rate, num_warmup_steps=self.num_warmup_steps)


WORLD = Path("build/toy-world")


@dataclass(frozen=True, kw_only=True)
class Toy(Grpo):
    """Reinforce the toy policy in its world, on a CPU in minutes: models and videos come with the project."""

    model: str = "toy"
    data: Path = WORLD / "train" / "questions.jsonl"
    videos: Path = WORLD / "train"
    """Made if they are not there, as the held-out ones."""
    referee: str = "toy"
    run: Path = Path("build/grpo-toy")
    held_out: Path | None = WORLD / "held-out" / "asked.jsonl"
    held_out_videos: Path | None = WORLD / "held-out"
    num_clips: int = 256
    """Of the train split, six questions on each."""
    num_held_out: int = 256
    """Clips of the held-out split, one question on each."""
    num_steps: int = 40
    num_prompts: int = 24
    prompts_at_once: int = 24
    max_new_tokens: int = 112
    learning_rate: float = 3e-4
    fps: float = 1.0
    max_frames: int = 6
    evaluate_every: int = 20
    save_every: int = 10


@dataclass(frozen=True, kw_only=True)
class SftToy:
    """Take the toy policy from nothing to its cold start, as `make toy-models` does."""

    run: Path = Path("build/toy")
    """Folder of videos, runs and models; the same folder again goes on with it."""
    show_prompt: bool = False
    """Print the prompt of a question, and stop."""
