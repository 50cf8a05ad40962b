"""Held-out questions of the toy world, and how they are put to a policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ser_fast.errors import InputError
from ser_fast.jsonl import question_from_json, write_json_lines
from ser_fast.types import Clip, Question
from trainer.policy import Policy
from trainer.presets import Toy
from trainer.rollout import Group, roll_out
from trainer.toy.files import question_line, write_split
from trainer.toy.lessons import FPS, MAX_FRAMES
from trainer.toy.world import SECONDS, Scene, Thing

MAX_NEW_TOKENS = 112
TRAIN_SEED = 1
"""Of the clips to reinforce on: others than those that the shipped models have learnt from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One held-out question."""

    scene: Scene
    thing: Thing
    attribute: str
    """"color" or "shape"."""

    @property
    def answer(self) -> str:
        """The one right word."""
        return str(getattr(self.thing, self.attribute))

    @property
    def line(self) -> dict[str, Any]:
        """As it stands in `questions.jsonl`."""
        return question_line(self.scene, self.thing, self.attribute)

    @property
    def row(self) -> Question:
        """As it is read from there."""
        return question_from_json(self.line)


def ask(scenes: Sequence[Scene]) -> list[Asked]:
    """One question a scene: its things and attributes take turns."""
    return [
        Asked(scene=scene, thing=scene.things[i % len(scene.things)], attribute=("color", "shape")[i // len(scene.things) % 2])
        for i, scene in enumerate(scenes)
    ]


def write_world(config: Toy) -> list[Asked]:
    """Videos and questions of a toy run, as far as they are not there; returns the held-out questions.

    Raises:
        InputError: it would write over files that are not its own.
    """
    own = [("data", config.data, config.videos / "questions.jsonl")]
    if config.held_out is not None and config.held_out_videos is not None:
        own.append(("held_out", config.held_out, config.held_out_videos / "asked.jsonl"))
    for name, path, expected in own:
        if path != expected:
            raise InputError(f"{name}: the toy world writes it, expected {expected}, got {path}")
    write_split(config.videos, split="train", seed=TRAIN_SEED, num_clips=config.num_clips)
    if config.held_out is None or config.held_out_videos is None:
        return []
    asked = ask(write_split(config.held_out_videos, split="held-out", seed=0, num_clips=config.num_held_out))
    write_json_lines(config.held_out, (question.line for question in asked))
    return asked


def answer(
    policy: Policy, asked: Sequence[Asked], clips: Sequence[Clip], *, temperature: float = 0.0, seed: int = 0
) -> list[Group]:
    """Free-running answers, each to a question on its clip; greedy unless there is a temperature."""
    rows = [question.row for question in asked]
    return roll_out(policy, rows, clips, num=1, max_new_tokens=MAX_NEW_TOKENS, temperature=temperature, seed=seed)


def answer_blind(policy: Policy, asked: Sequence[Asked], clips: Sequence[Clip]) -> list[Group]:
    """Greedy answers to questions of a policy that is shown, for each, the frames of the clip before: what it knows without
    looking at the right ones."""
    groups = answer(policy, asked, [*clips[-1:], *clips[:-1]])
    return [dataclasses.replace(group, clip=clip) for group, clip in zip(groups, clips, strict=True)]


def constant_when(asked: Sequence[Asked]) -> float:
    """The best figure *when* of claims that all cite one and the same time, whatever is asked: what looking must exceed."""
    times = [k / FPS for k in range(MAX_FRAMES) if k / FPS < SECONDS]
    return max(sum(question.thing.box(time_s) is not None for question in asked) for time_s in times) / len(asked)
