"""Overlap of time intervals: all pairs, paired, within each response, or of whole unions of intervals."""

from __future__ import annotations

import torch

from ser_fast.ops.checks import check_tensor
from ser_fast.ops.interval_iou.contract import OP, UNION_OP
from ser_fast.ops.pairing import pairing_arguments
from ser_fast.types import Segments


def interval_iou(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    paired: bool = False,
    segments: tuple[Segments, Segments] | None = None,
    union: bool = False,
    backend: str = "auto",
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """IoU(p, q) = |p & q| / |p | q| of intervals start, end.

    With `union=True` the intervals of a response are first united: P_r and Q_r are unions of segments, and
    IoU_r = |P_r & Q_r| / |P_r | Q_r|, IoP_r = |P_r & Q_r| / |P_r| (the share of the prediction that is right).

    | input | result |
    |---|---|
    | inverted or zero-length interval | length 0, so IoU 0, also with itself |
    | a bound that is NaN or infinite | NaN for every pair of that interval; for the whole response with union |
    | nothing predicted, or nothing true | 0 with union |
    | half precision or integers | computed in float32, unions in float64 |

    Args:
        a: [N, 2] seconds, predictions.
        b: [M, 2] seconds, truths, on the device of a.
        paired, segments: as for `box_iou`.
        union: needs segments.
        backend: "auto", or the name of one backend, which runs or raises.

    Returns:
        As `box_iou`; with union the pair (IoU [R], IoP [R]).

    Raises:
        ValueError: wrong shape, dtype, lengths, both of paired and segments, or union without segments.
        BackendUnavailable: see backend.

    Source: temporal IoU of video grounding; IoP of grounded video QA (NExT-GQA).
    """
    check_tensor("a", a, shape=(None, 2))
    check_tensor("b", b, shape=(None, 2), device=a.device)
    arguments = pairing_arguments(a, b, paired, segments)
    if not union:
        return OP(*arguments, backend=backend)
    if segments is None:
        raise ValueError("segments: expected with union=True, got none")
    width = max((n + m for n, m in zip(segments[0].lengths, segments[1].lengths, strict=True)), default=0)
    return UNION_OP(a, b, segments[0].offsets, segments[1].offsets, width, backend=backend)
