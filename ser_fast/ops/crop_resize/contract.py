"""Schemas, fakes and cases of crop_resize."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ser_fast import _native
from ser_fast.ops.crop_resize import kernel_cpu, reference
from ser_fast.ops.registry import Case, Kernel, Op, into_fresh, register


def _fake(frames: torch.Tensor, frame_idx: torch.Tensor, boxes: torch.Tensor, height: int, width: int) -> torch.Tensor:
    return frames.new_empty((boxes.shape[0], height, width, 3))


def _out_fake(
    frames: torch.Tensor, frame_idx: torch.Tensor, boxes: torch.Tensor, height: int, width: int, out: torch.Tensor
) -> None:
    return None


def _cases() -> Iterator[Case]:
    frames = torch.randint(256, (3, 41, 57, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    frame_idx = torch.tensor([0, 2, 1, 2])
    boxes = torch.tensor([[0, 0, 57, 41], [3, 5, 20, 33], [56, 40, 57, 41], [10, 0, 11, 41]])
    yield Case(id="mixed", args=(frames, frame_idx, boxes, 24, 31))
    yield Case(id="identity", args=(frames, frame_idx[:1], boxes[:1], 41, 57))
    yield Case(id="strided", args=(frames.flip(0)[::2].transpose(1, 2), frame_idx[:1], boxes[:1, [1, 0, 3, 2]], 9, 9))
    yield Case(id="one-pixel", args=(frames, frame_idx, boxes, 1, 1))
    yield Case(id="empty", args=(frames, frame_idx[:0], boxes[:0], 7, 5))


def _out_cases() -> Iterator[Case]:
    for case in _cases():
        frames, _, boxes, height, width = case.args
        yield Case(id=case.id, args=(*case.args, frames.new_empty((boxes.shape[0], height, width, 3))))


OP = register(
    Op(
        name="crop_resize",
        public="crop_resize",
        signature="(Tensor frames, Tensor frame_idx, Tensor boxes, SymInt height, SymInt width) -> Tensor",
        kernels=(
            Kernel(
                name="cpu", run=into_fresh(kernel_cpu.crop_resize, _fake), devices=("cpu",), why_missing=_native.why_unavailable
            ),
            Kernel(name="reference", run=into_fresh(reference.crop_resize, _fake), devices=("cpu", "cuda")),
        ),
        fake=_fake,
        cases=_cases,
    )
)

OUT_OP = register(
    Op(
        name="crop_resize_out",
        public="crop_resize",
        signature="(Tensor frames, Tensor frame_idx, Tensor boxes, SymInt height, SymInt width, Tensor(a!) out) -> ()",
        kernels=(
            Kernel(name="cpu", run=kernel_cpu.crop_resize, devices=("cpu",), why_missing=_native.why_unavailable),
            Kernel(name="reference", run=reference.crop_resize, devices=("cpu", "cuda")),
        ),
        fake=_out_fake,
        cases=_out_cases,
    )
)
