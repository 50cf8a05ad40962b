"""Boxes of video frames -> resized uint8 images."""

from __future__ import annotations

import torch

from ser_fast.ops.checks import check_tensor
from ser_fast.ops.crop_resize.contract import OP, OUT_OP
from ser_fast.ops.crops import check_crops


def crop_resize(
    frames: torch.Tensor,
    frame_idx: torch.Tensor,
    boxes: torch.Tensor,
    *,
    out_hw: tuple[int, int],
    out: torch.Tensor | None = None,
    backend: str = "auto",
) -> torch.Tensor:
    """image_i = resize(frames[frame_idx_i, y1:y2, x1:x2], out_hw), antialiased bicubic on pixel centres.

    The filter stops at the edge of the crop. On the CPU the bytes are those of Pillow's crop and resize (11 <= Pillow < 12.2:
    horizontal pass first, uint8 between the passes; later ones turn the passes round for some tall shapes, this op does not).

    Args:
        frames: uint8[F, H, W, 3].
        frame_idx: int64 or int32[N], on the host.
        boxes: int64 or int32[N, 4] x1, y1, x2, y2 in pixels, half open, non-empty and inside the frame, on the host.
        out_hw: (height, width) of every result.
        out: uint8[N, height, width, 3] to write into.
        backend: "auto", or the name of one backend, which runs or raises.

    Returns:
        uint8[N, height, width, 3] on the device of frames; out if given.

    Raises:
        ValueError: wrong shape, dtype or device; a box that is empty or leaves the frame, with its index.
        BackendUnavailable: see backend.

    Source: Pillow's Resample.c (github.com/python-pillow/Pillow).
    """
    sizes = [out_hw] * (boxes.shape[0] if isinstance(boxes, torch.Tensor) else 0)
    frame_idx, boxes, flat = check_crops(frames, frame_idx, boxes, sizes, 1)
    if not flat and min(out_hw) < 1:
        raise ValueError(f"out_hw: expected positive numbers, got {out_hw}")
    height, width = out_hw
    if out is None:
        return OP(frames, frame_idx, boxes, height, width, backend=backend)
    check_tensor("out", out, shape=(boxes.shape[0], height, width, 3), dtypes=(torch.uint8,), device=frames.device)
    if out.requires_grad:
        raise ValueError("out: expected a tensor that requires no gradient")
    if not out.is_contiguous():
        raise ValueError(f"out: expected a contiguous tensor, got one with strides {list(out.stride())}")
    OUT_OP(frames, frame_idx, boxes, height, width, out, backend=backend)
    return out
