"""How the toy models are made: the numbers of the stages, one function for each model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ser_fast.errors import InputError
from ser_fast.referee import VLMReferee
from trainer import checkpoint
from trainer.policy import Policy, write_folder
from trainer.run import open_run
from trainer.supervised import SupervisedConfig, fit
from trainer.toy.files import write_split
from trainer.toy.judgements import Judgements
from trainer.toy.lessons import Lessons
from trainer.toy.models import new_policy, new_referee
from trainer.toy.sight import Looks, Sight
from trainer.toy.tasks import Looseness
from trainer.toy.world import Scene

SEED = 0
NUM_TRAIN, NUM_HELD_OUT = 4000, 320
"""Clips."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One part of a model's schooling: a run of its own."""

    name: str
    lessons: dict[str, Any]
    """Arguments of `Looks`, `Lessons` or `Judgements`."""
    steps: SupervisedConfig


SIGHT = Stage(
    name="sight",
    lessons={"num_clips": 24, "num_views": 2},
    steps=SupervisedConfig(num_steps=1200, learning_rate=2e-3, muon_learning_rate=4e-3, num_warmup_steps=50, autocast=True),
)
_steps = functools.partial(SupervisedConfig, learning_rate=1e-3, muon_learning_rate=3e-3, num_warmup_steps=30, autocast=True)

SEEING = Stage(
    name="few-frames",
    lessons={"num_clips": 16, "num_branches": 3, "num_frames": (1, 2)},
    steps=_steps(num_steps=400, final_share=1.0),
)
"""After it the policy knows colours, shapes, places and words: the referee goes on from there."""

POLICY_STAGES = (
    SEEING,
    Stage(name="exact", lessons={"num_clips": 10, "num_branches": 5, "num_frames": (2, 6, 6)}, steps=_steps(num_steps=1500)),
    Stage(
        name="loose",
        lessons={"num_clips": 8, "num_branches": 5, "loose": Looseness()},
        steps=_steps(num_steps=300, learning_rate=3e-4, muon_learning_rate=1e-3, final_share=0.05),
    ),
)
"""First what is where in a frame or two, then all of it with care, then bad habits: a cold start that knows the right evidence
and does not prefer it."""

REFEREE_STAGES = (
    Stage(
        name="words",
        lessons={"num_questions": 48, "num_claims": 1, "wrong_words": 0.4, "blind": True},
        steps=_steps(num_steps=250, final_share=1.0),
    ),
    Stage(name="claims", lessons={"num_questions": 16, "num_claims": 2}, steps=_steps(num_steps=1000)),
)
"""First which claims a question is about, then also how well they are placed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageRun:
    """What a stage's folder was made from: it goes on under the same recipe only."""

    run: Path
    stage: Stage
    seed: int
    num_clips: int


OnStep = Callable[[str, int, int, float], None]
"""Told the stage, the step, the number of steps and the loss."""


def write_data(work: Path) -> tuple[list[Scene], list[Scene]]:
    """The train and the held-out split below a folder."""
    return (
        write_split(work / "train", split="train", seed=SEED, num_clips=NUM_TRAIN),
        write_split(work / "held-out", split="held-out", seed=SEED, num_clips=NUM_HELD_OUT),
    )


def make_sight(work: Path, scenes: list[Scene], *, on_step: OnStep) -> dict[str, torch.Tensor]:
    """Teaches a vision tower to see; it resumes from its last checkpoint. Returns its weights."""
    referee = VLMReferee(new_referee(work / "sight-start", seed=SEED))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        sight = Sight(referee.model.model.visual)
    looks = Looks(sight, referee.prompts.spec, work / "train", scenes, seed=SEED, **SIGHT.lessons)
    begun = StageRun(run=work / SIGHT.name, stage=SIGHT, seed=SEED, num_clips=len(scenes))
    _take(begun, sight, looks.loss_at, name=SIGHT.name, on_step=on_step)
    return sight.tower.state_dict()


def make_policy(work: Path, scenes: list[Scene], *, on_step: OnStep) -> Path:
    """Takes a fresh policy through all stages; each resumes from its last checkpoint. Returns its folder."""
    start = new_policy(work / "policy-start", seed=SEED)
    policy = Policy.load(start)
    policy.model.model.visual.load_state_dict(make_sight(work, scenes, on_step=on_step))
    teach = functools.partial(Lessons, policy, work / "train", scenes)
    _school("policy", policy.model, POLICY_STAGES, teach, work=work, num_clips=len(scenes), on_step=on_step)
    return write_folder(work / "policy", policy.model.to(torch.bfloat16), like=start)


def can_make_referee(work: Path) -> bool:
    """Whether the policy knows what the referee begins with."""
    return (work / f"policy-{SEEING.name}" / checkpoint.NAME.format(SEEING.steps.num_steps)).exists()


def make_referee(work: Path, scenes: list[Scene], *, on_step: OnStep) -> Path:
    """Trains a referee, resuming from its last checkpoint. Returns its folder.

    It begins with what the policy knows after SEEING: colours, places and words are the same to both.

    Raises:
        InputError: the policy is not there yet.
    """
    if not can_make_referee(work):
        raise InputError(f"{work}: the referee goes on from a stage of the policy, {SEEING.name}, which is not there yet")
    start = new_referee(work / "referee-start", seed=SEED + 1)
    referee = VLMReferee(start)
    checkpoint.resume(work / f"policy-{SEEING.name}", model=referee.model)
    teach = functools.partial(Judgements, referee, work / "train", scenes)
    _school("referee", referee.model, REFEREE_STAGES, teach, work=work, num_clips=len(scenes), on_step=on_step)
    return write_folder(work / "referee", referee.model.to(torch.bfloat16), like=start)


def _school(
    name: str,
    model: Any,
    stages: Sequence[Stage],
    teach: Callable[..., Any],
    *,
    work: Path,
    num_clips: int,
    on_step: OnStep,
) -> None:
    """Takes a model through stages, a run each; `teach` makes the batches of a stage from its seed and its lessons."""
    for i, stage in enumerate(stages):
        begun = StageRun(run=work / f"{name}-{stage.name}", stage=stage, seed=SEED + i, num_clips=num_clips)
        batches = teach(seed=begun.seed, **stage.lessons)
        _take(begun, model, batches.loss_at, name=f"{name} {stage.name}", on_step=on_step)


def _take(begun: StageRun, model: Any, loss_at: Callable[[int], torch.Tensor], *, name: str, on_step: OnStep) -> None:
    """Takes a model through a stage, from where that was left; `name` is what it is told as."""
    steps = begun.stage.steps
    with open_run(begun) as run:
        fit(model, loss_at, run=run, config=steps, on_step=lambda step, loss: on_step(name, step, steps.num_steps, loss))
