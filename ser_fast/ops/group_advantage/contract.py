"""Schema, fake and cases of group_advantage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ser_fast.ops.checks import float_dtype
from ser_fast.ops.group_advantage import reference
from ser_fast.ops.registry import Case, Kernel, Op, register


def _fake(rewards: torch.Tensor, *_: Any) -> torch.Tensor:
    return rewards.new_empty(rewards.shape, dtype=float_dtype(rewards))


def _cases() -> Iterator[Case]:
    generator = torch.Generator().manual_seed(0)
    rewards = torch.rand(11, generator=generator)
    rewards[4:7] = 0.1
    valid = torch.ones(11, dtype=torch.bool)  # opcheck knows no NaN: rows that are not valid have tests of their own
    offsets = torch.tensor([0, 4, 7, 7, 8, 11])
    for scale in ("group", "batch", "none"):
        yield Case(id=scale, args=(rewards, offsets, valid, scale, 1e-4, 1))
    yield Case(id="double-ddof0", args=(rewards.double(), offsets, valid, "group", 0.0, 0))
    yield Case(id="half", args=(rewards.bfloat16(), offsets, valid, "group", 1e-4, 1))
    yield Case(id="strided", args=(rewards.repeat(2, 1).t()[:, 0], offsets, valid, "group", 1e-4, 1))
    yield Case(id="empty", args=(rewards[:0], offsets[:1], valid[:0], "batch", 1e-4, 1))
    yield Case(id="one", args=(rewards[:1], torch.tensor([0, 1]), valid[:1], "group", 1e-4, 1))


OP = register(
    Op(
        name="group_advantage",
        public="group_advantage",
        signature="(Tensor rewards, Tensor offsets, Tensor valid, str scale, float eps, int ddof) -> Tensor",
        kernels=(Kernel(name="reference", run=reference.group_advantage, devices=("cpu", "cuda")),),
        fake=_fake,
        cases=_cases,
    )
)
