"""How the rows of two tables are paired: what box_iou and interval_iou share."""

from __future__ import annotations

import torch

from ser_fast.ops.checks import check_segments, float_dtype
from ser_fast.ops.ragged import pair_rows
from ser_fast.types import Segments

SIGNATURE = "(Tensor a, Tensor b, str pairing, Tensor? offsets_a, Tensor? offsets_b, SymInt num_pairs) -> Tensor"
"""Schema of an op on pairs: pairing is "matrix", "paired" or "ragged"; offsets are int64[R+1]."""


def pairing_arguments(
    a: torch.Tensor, b: torch.Tensor, paired: bool, segments: tuple[Segments, Segments] | None
) -> tuple[torch.Tensor, torch.Tensor, str, torch.Tensor | None, torch.Tensor | None, int]:
    """Checks how two tables are to be paired and spells it out for the registered op."""
    if paired and segments is not None:
        raise ValueError("paired, segments: expected at most one of the two")
    if paired:
        if a.shape[0] != b.shape[0]:
            raise ValueError(f"b: expected {a.shape[0]} rows to pair with a, got {b.shape[0]}")
        return a, b, "paired", None, None, a.shape[0]
    if segments is None:
        return a, b, "matrix", None, None, 0
    segments_a, segments_b = segments
    check_segments("segments[0]", segments_a, num_rows=a.shape[0], device=a.device)
    check_segments("segments[1]", segments_b, num_rows=b.shape[0], device=a.device)
    if len(segments_a) != len(segments_b):
        raise ValueError(f"segments: expected two of one length, got {len(segments_a)} and {len(segments_b)}")
    num_pairs = sum(n * m for n, m in zip(segments_a.lengths, segments_b.lengths, strict=True))
    return a, b, "ragged", segments_a.offsets, segments_b.offsets, num_pairs


def broadcast_pairs(
    a: torch.Tensor,
    b: torch.Tensor,
    pairing: str,
    offsets_a: torch.Tensor | None,
    offsets_b: torch.Tensor | None,
    num_pairs: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of a and b in the dtype to compute in, shaped so that they broadcast to the result."""
    dtype = float_dtype(a, b)
    a, b = a.to(dtype), b.to(dtype)
    if pairing == "matrix":
        return a[:, None], b[None, :]
    if pairing == "ragged":
        assert offsets_a is not None and offsets_b is not None
        row_a, row_b = pair_rows(offsets_a, offsets_b, a.shape[0], num_pairs)
        return a[row_a], b[row_b]
    return a, b


def pairing_fake(
    a: torch.Tensor,
    b: torch.Tensor,
    pairing: str,
    offsets_a: torch.Tensor | None,  # noqa: ARG001  (one signature for all)
    offsets_b: torch.Tensor | None,  # noqa: ARG001
    num_pairs: int,
) -> torch.Tensor:
    """Shape and dtype of the result."""
    shape = {"matrix": (a.shape[0], b.shape[0]), "paired": (a.shape[0],), "ragged": (num_pairs,)}[pairing]
    return a.new_empty(shape, dtype=float_dtype(a, b))
