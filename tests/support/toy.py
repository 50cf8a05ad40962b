"""Things and scenes of the toy world, made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ser_fast.types import Clip, Rollout
from trainer.decode import Completion
from trainer.policy import Policy
from trainer.rollout import Group
from trainer.toy.evaluate import Asked
from trainer.toy.world import SECONDS, SIDE_PX, Scene, Thing, make_scene


def answered(policy: Policy, asked: Asked, texts: Sequence[str]) -> list[Group]:
    """The same question about a grey clip, answered with each text."""
    clip = Clip(
        frames=torch.full((SECONDS, SIDE_PX, SIDE_PX, 3), 128, dtype=torch.uint8),
        times=torch.arange(SECONDS, dtype=torch.float64),
        start_s=0.0,
        duration=float(SECONDS),
        source="grey",
        decoded_by="test",
    )
    prompt = policy.prompts.clip(clip)
    return [
        Group(
            question=asked.row,
            clip=clip,
            prompt=(prompt, policy.prompts.question(asked.row.question)),
            completions=(Completion(ids=(), logprobs=(), text=text, truncated=False),),
            rollouts=(
                Rollout(
                    question=asked.row, completion=text, coord_space=policy.prompts.coord_space(prompt.size), group=asked.row.id
                ),
            ),
        )
        for text in texts
    ]


def make_toy_thing(**changes: object) -> Thing:
    """A red circle in the upper left quarter of the frame, in view from 1 s to 4 s."""
    fields = {
        "color": "red",
        "shape": "circle",
        "size": "small",
        "side": 0.5,
        "appears": 1.0,
        "vanishes": 4.0,
        "begin": (0.25, 0.25),
        "end": (0.25, 0.25),
    }
    return Thing(**(fields | changes))  # type: ignore[arg-type]


def make_toy_scene(*things: Thing) -> Scene:
    """One frame a second."""
    return Scene(
        id="x",
        things=things,
        rate=(1, 1),
        container="mp4",
        codec="libx264",
        offset_s=0.0,
        background_seed=make_scene("validation", 0, 0).background_seed,
    )
