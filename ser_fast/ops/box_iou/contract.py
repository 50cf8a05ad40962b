"""Schema, fake and cases of box_iou."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ser_fast.ops.box_iou import reference
from ser_fast.ops.pairing import SIGNATURE, pairing_fake
from ser_fast.ops.registry import Case, Kernel, Op, register


def _boxes(num: int, seed: int) -> torch.Tensor:
    corners = torch.rand(num, 2, 2, generator=torch.Generator().manual_seed(seed)) * 100
    return torch.cat([corners.amin(1), corners.amax(1)], dim=1)


def _cases() -> Iterator[Case]:
    a, b = _boxes(7, 0), _boxes(5, 1)
    yield Case(id="matrix", args=(a, b, "matrix", None, None, 0))
    yield Case(id="matrix-strided", args=(torch.cat([a, a], 1)[:, 2:6], b.t().contiguous().t(), "matrix", None, None, 0))
    yield Case(id="matrix-half", args=(a.half(), b.half(), "matrix", None, None, 0))
    yield Case(id="matrix-double", args=(a.double(), b, "matrix", None, None, 0))
    yield Case(id="matrix-int", args=(a.long(), b.long(), "matrix", None, None, 0))
    yield Case(id="matrix-empty", args=(a[:0], b, "matrix", None, None, 0))
    yield Case(id="paired", args=(a[:5], b, "paired", None, None, 5))
    yield Case(id="paired-one", args=(a[:1], b[:1], "paired", None, None, 1))
    offsets_a, offsets_b = torch.tensor([0, 3, 3, 7]), torch.tensor([0, 2, 4, 5])
    yield Case(id="ragged", args=(a, b, "ragged", offsets_a, offsets_b, 3 * 2 + 0 + 4 * 1))
    none = torch.tensor([0])
    yield Case(id="ragged-empty", args=(a[:0], b[:0], "ragged", none, none, 0))


OP = register(
    Op(
        name="box_iou",
        public="box_iou",
        signature=SIGNATURE,
        kernels=(Kernel(name="reference", run=reference.box_iou, devices=("cpu", "cuda")),),
        fake=pairing_fake,
        cases=_cases,
    )
)
