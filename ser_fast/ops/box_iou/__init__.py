"""Intersection over union of boxes: all pairs, paired, or all pairs within each response."""

from __future__ import annotations

import torch

from ser_fast.ops.box_iou.contract import OP
from ser_fast.ops.checks import check_tensor
from ser_fast.ops.pairing import pairing_arguments
from ser_fast.types import Segments


def box_iou(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    paired: bool = False,
    segments: tuple[Segments, Segments] | None = None,
    backend: str = "auto",
) -> torch.Tensor:
    """IoU(p, q) = |p & q| / |p | q| of boxes x1, y1, x2, y2 with continuous corners (no +1).

    | input | result |
    |---|---|
    | inverted or empty box | area 0, so IoU 0, also with itself |
    | a coordinate that is NaN or infinite, or an area that overflows | NaN for every pair of that box |
    | half precision or integers | computed in float32 |

    Args:
        a: [N, 4], any real dtype.
        b: [M, 4], on the device of a.
        paired: row i of a with row i of b only; N = M.
        segments: (R -> N, R -> M): pairs only rows of the same response.
        backend: "auto", or the name of one backend, which runs or raises.

    Returns:
        [N, M]; [N] if paired; with segments a flat [sum over r of N_r * M_r], block r row-major. float64 if an input is
        float64, else float32. Empty inputs give empty results.

    Raises:
        ValueError: wrong shape, dtype, lengths, or both of paired and segments.
        BackendUnavailable: see backend.

    Source: Jaccard index; corner convention of torchvision's box_iou (github.com/pytorch/vision).
    """
    check_tensor("a", a, shape=(None, 4))
    check_tensor("b", b, shape=(None, 4), device=a.device)
    return OP(*pairing_arguments(a, b, paired, segments), backend=backend)
