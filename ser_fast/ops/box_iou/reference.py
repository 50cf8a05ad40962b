"""box_iou in plain torch: the oracle."""

from __future__ import annotations

from typing import Any

import torch

from ser_fast.ops.pairing import broadcast_pairs


def box_iou(*arguments: Any) -> torch.Tensor:
    """Takes the arguments of `broadcast_pairs`."""
    return _iou(*broadcast_pairs(*arguments))


def _iou(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    sides = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
    intersection = sides.prod(-1)
    union = _area(a) + _area(b) - intersection
    iou = torch.where(union == 0, 0.0, intersection / union)
    finite = a.isfinite().all(-1) & b.isfinite().all(-1)
    return torch.where(finite, iou, float("nan"))


def _area(box: torch.Tensor) -> torch.Tensor:
    return (box[..., 2:] - box[..., :2]).clamp(min=0).prod(-1)
