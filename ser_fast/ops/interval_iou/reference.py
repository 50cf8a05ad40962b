"""interval_iou in plain torch: the oracle."""

from __future__ import annotations

from typing import Any

import torch

from ser_fast.ops.checks import float_dtype
from ser_fast.ops.pairing import broadcast_pairs
from ser_fast.ops.ragged import to_padded


def interval_iou(*arguments: Any) -> torch.Tensor:
    """Takes the arguments of `broadcast_pairs`."""
    return _iou(*broadcast_pairs(*arguments))


def _iou(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    overlap = (torch.minimum(a[..., 1], b[..., 1]) - torch.maximum(a[..., 0], b[..., 0])).clamp(min=0)
    union = _length(a) + _length(b) - overlap
    iou = torch.where(union > 0, overlap / union, 0.0)
    finite = a.isfinite().all(-1) & b.isfinite().all(-1)
    return torch.where(finite, iou, float("nan"))


def _length(interval: torch.Tensor) -> torch.Tensor:
    return (interval[..., 1] - interval[..., 0]).clamp(min=0)


def interval_union_iou(
    a: torch.Tensor,
    b: torch.Tensor,
    offsets_a: torch.Tensor,
    offsets_b: torch.Tensor,
    width_a: int,
    width_b: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Unions of the intervals of each response; width_a and width_b are the largest numbers of them in one."""
    dtype = float_dtype(a, b)
    # Padding is an empty interval at 0, which no union notices.
    rows_a = to_padded(a.double(), offsets_a, width_a, 0.0)
    rows_b = to_padded(b.double(), offsets_b, width_b, 0.0)
    rows = torch.cat([rows_a, rows_b], dim=1)
    length_a, length_b, length = (_union_length(r) for r in (rows_a, rows_b, rows))
    overlap = (length_a + length_b - length).clamp(min=0)
    finite = rows.isfinite().all(-1).all(-1)
    iou = torch.where(length > 0, overlap / length, 0.0)
    iop = torch.where(length_a > 0, overlap / length_a, 0.0)
    return tuple(torch.where(finite, value, float("nan")).to(dtype) for value in (iou, iop))  # type: ignore[return-value]


def _union_length(rows: torch.Tensor) -> torch.Tensor:
    """[R, L, 2] -> [R]: length of the union of each row's intervals."""
    if rows.shape[1] == 0:
        return rows.new_zeros(rows.shape[0])
    start, end = rows[..., 0], rows.amax(-1)  # an inverted interval becomes an empty one
    start, order = start.sort(dim=1)
    end = end.gather(1, order)
    covered = torch.cat([start[:, :1], end.cummax(1).values[:, :-1]], dim=1)
    return (end - torch.maximum(start, covered)).clamp(min=0).sum(1)
