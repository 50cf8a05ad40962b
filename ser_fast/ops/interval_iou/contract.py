"""Schemas, fakes and cases of interval_iou."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ser_fast.ops.checks import float_dtype
from ser_fast.ops.interval_iou import reference
from ser_fast.ops.pairing import SIGNATURE, pairing_fake
from ser_fast.ops.registry import Case, Kernel, Op, register


def _union_fake(
    a: torch.Tensor,
    b: torch.Tensor,
    offsets_a: torch.Tensor,
    offsets_b: torch.Tensor,
    width: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    shape, dtype = (offsets_a.shape[0] - 1,), float_dtype(a, b)
    return a.new_empty(shape, dtype=dtype), a.new_empty(shape, dtype=dtype)


def _intervals(num: int, seed: int) -> torch.Tensor:
    return torch.rand(num, 2, generator=torch.Generator().manual_seed(seed)).mul(60).sort(dim=1).values


def _cases() -> Iterator[Case]:
    a, b = _intervals(6, 0), _intervals(4, 1)
    yield Case(id="matrix", args=(a, b, "matrix", None, None, 0))
    yield Case(id="matrix-strided", args=(torch.cat([a, a], 1)[:, ::3], b, "matrix", None, None, 0))
    yield Case(id="matrix-half", args=(a.bfloat16(), b.bfloat16(), "matrix", None, None, 0))
    yield Case(id="matrix-empty", args=(a, b[:0], "matrix", None, None, 0))
    yield Case(id="paired-double", args=(a[:4].double(), b.double(), "paired", None, None, 4))
    yield Case(id="paired-one", args=(a[:1], b[:1], "paired", None, None, 1))
    offsets_a, offsets_b = torch.tensor([0, 0, 4, 6]), torch.tensor([0, 1, 2, 4])
    yield Case(id="ragged", args=(a, b, "ragged", offsets_a, offsets_b, 0 + 4 * 1 + 2 * 2))


def _union_cases() -> Iterator[Case]:
    a, b = _intervals(6, 2), _intervals(4, 3)
    offsets_a, offsets_b = torch.tensor([0, 0, 4, 6]), torch.tensor([0, 1, 2, 4])
    yield Case(id="ragged", args=(a, b, offsets_a, offsets_b, 5))
    yield Case(id="ragged-half", args=(a.half(), b.half(), offsets_a, offsets_b, 5))
    yield Case(id="one", args=(a[:1], b[:1], torch.tensor([0, 1]), torch.tensor([0, 1]), 2))
    yield Case(id="empty", args=(a[:0], b[:0], torch.tensor([0, 0]), torch.tensor([0, 0]), 0))
    yield Case(id="no-responses", args=(a[:0], b[:0], torch.tensor([0]), torch.tensor([0]), 0))


OP = register(
    Op(
        name="interval_iou",
        public="interval_iou",
        signature=SIGNATURE,
        kernels=(Kernel(name="reference", run=reference.interval_iou, devices=("cpu", "cuda")),),
        fake=pairing_fake,
        cases=_cases,
    )
)

UNION_OP = register(
    Op(
        name="interval_union_iou",
        public="interval_iou",
        signature=("(Tensor a, Tensor b, Tensor offsets_a, Tensor offsets_b, SymInt width) -> (Tensor iou, Tensor iop)"),
        kernels=(Kernel(name="reference", run=reference.interval_union_iou, devices=("cpu", "cuda")),),
        fake=_union_fake,
        cases=_union_cases,
    )
)
