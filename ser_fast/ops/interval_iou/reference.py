"""interval_iou in plain torch: the oracle."""

from __future__ import annotations

from typing import Any

import torch

from ser_fast.ops.checks import float_dtype
from ser_fast.ops.pairing import broadcast_pairs
from ser_fast.ops.ragged import row_to_segment, segment_sum


def interval_iou(*arguments: Any) -> torch.Tensor:
    """Takes the arguments of `broadcast_pairs`."""
    return _iou(*broadcast_pairs(*arguments))


def _iou(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    overlap = (torch.minimum(a[..., 1], b[..., 1]) - torch.maximum(a[..., 0], b[..., 0])).clamp(min=0)
    union = _length(a) + _length(b) - overlap
    iou = torch.where(union == 0, 0.0, overlap / union)
    finite = a.isfinite().all(-1) & b.isfinite().all(-1)
    return torch.where(finite, iou, float("nan"))


def _length(interval: torch.Tensor) -> torch.Tensor:
    return (interval[..., 1] - interval[..., 0]).clamp(min=0)


def interval_union_iou(
    a: torch.Tensor, b: torch.Tensor, offsets_a: torch.Tensor, offsets_b: torch.Tensor, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Unions of the intervals of each response; width is the largest number of them, of a and b together, in one."""
    num = offsets_a.numel() - 1
    rows = torch.cat([a, b]).double()
    segment_a, segment_b = row_to_segment(offsets_a, a.shape[0]), row_to_segment(offsets_b, b.shape[0])
    segment = torch.cat([segment_a, segment_b])
    length_a = _union_length(a.double(), segment_a, num, width)
    length_b = _union_length(b.double(), segment_b, num, width)
    length = _union_length(rows, segment, num, width)
    overlap = (length_a + length_b - length).clamp(min=0)
    finite = segment_sum((~rows.isfinite().all(-1)).long(), segment, num) == 0
    iou = torch.where(length > 0, overlap / length, 0.0)
    iop = torch.where(length_a > 0, overlap / length_a, 0.0)
    dtype = float_dtype(a, b)
    return tuple(torch.where(finite, value, float("nan")).to(dtype) for value in (iou, iop))  # type: ignore[return-value]


def _union_length(rows: torch.Tensor, segment: torch.Tensor, num: int, width: int) -> torch.Tensor:
    """[N, 2] -> [num]: length of the union of each segment's intervals, of which none has more than width."""
    order = rows[:, 0].argsort(stable=True)
    order = order[segment[order].argsort(stable=True)]
    segment, start, end = segment[order], rows[order, 0], rows[order].amax(-1)  # an inverted interval becomes an empty one
    covered, reach = end, 1
    while reach < width:  # running maximum within the segment, over twice as many rows each time
        same = segment[reach:] == segment[:-reach]
        before = torch.where(same, torch.maximum(covered[reach:], covered[:-reach]), covered[reach:])
        covered, reach = torch.cat([covered[:reach], before]), 2 * reach
    follows = segment[1:] == segment[:-1]
    fresh = torch.where(follows, torch.maximum(start[1:], covered[:-1]), start[1:])
    return segment_sum((end - torch.cat([start[:1], fresh])).clamp(min=0), segment, num)
