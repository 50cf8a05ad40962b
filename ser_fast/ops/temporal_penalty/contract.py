"""Schema, fake and cases of temporal_penalty."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ser_fast.ops.checks import float_dtype
from ser_fast.ops.registry import Case, Kernel, Op, register
from ser_fast.ops.temporal_penalty import reference


def _fake(time_s: torch.Tensor, *_: Any) -> torch.Tensor:
    return time_s.new_empty(time_s.shape, dtype=float_dtype(time_s))


def _cases() -> Iterator[Case]:
    time_s = torch.tensor([0.0, 1.3, 9.5, 12.0, 2.0, 7.9, -1.0])
    offsets = torch.tensor([0, 3, 3, 7])
    duration = torch.tensor([10.0, 4.0, 8.0], dtype=torch.float64)
    frames = torch.cat([torch.arange(0, 10, 0.5), torch.tensor([1.0]), torch.arange(0, 8, 2.0)]).double()
    frame_offsets = torch.tensor([0, 20, 21, 25])
    keys, key_offsets = torch.tensor([1.0, 5.0, 2.0, 7.0]).double(), torch.tensor([0, 2, 2, 4])
    spans = torch.tensor([[1.0, 2.0], [6.0, 9.0], [0.0, 1.0]]).double()
    span_offsets = torch.tensor([0, 2, 2, 3])

    def case(id_: str, time: torch.Tensor, targets: torch.Tensor, target_offsets: torch.Tensor, *rest: Any) -> Case:
        num_pairs = int((offsets.diff() * target_offsets.diff()).sum())
        return Case(id=id_, args=(time, offsets, duration, targets, target_offsets, num_pairs, *rest))

    yield case("snap", time_s, frames, frame_offsets, frames, frame_offsets, "snap", 1.0, "seconds")
    yield case("snap-double", time_s.double(), frames, frame_offsets, frames, frame_offsets, "snap", 1.0, "seconds")
    yield case("points", time_s, keys, key_offsets, None, None, "points", 2.0, "seconds")
    yield case("points-strided", time_s.repeat(2, 1).t()[:, 0], keys, key_offsets, None, None, "points", 2.0, "seconds")
    yield case("points-spacing", time_s, keys, key_offsets, frames, frame_offsets, "points", 1.0, "spacing")
    yield case("interval", time_s, spans, span_offsets, None, None, "interval", 1.0, "seconds")
    yield case("interval-duration", time_s.half(), spans, span_offsets, None, None, "interval", 0.1, "duration")
    none = torch.tensor([0, 0])
    empty = (time_s[:0], none, duration[:1], keys[:0], none, 0, None, None, "points", 1.0, "seconds")
    yield Case(id="empty", args=empty)
    one = torch.tensor([0, 1])
    yield Case(id="one", args=(time_s[:1], one, duration[:1], frames[:1], one, 1, None, None, "snap", 1.0, "seconds"))


OP = register(
    Op(
        name="temporal_penalty",
        public="temporal_penalty",
        signature=(
            "(Tensor time_s, Tensor offsets, Tensor duration, Tensor targets, Tensor target_offsets, SymInt num_pairs,"
            " Tensor? frame_times, Tensor? frame_offsets, str mode, float sigma, str unit) -> Tensor"
        ),
        kernels=(Kernel(name="reference", run=reference.temporal_penalty, devices=("cpu", "cuda")),),
        fake=_fake,
        cases=_cases,
    )
)
