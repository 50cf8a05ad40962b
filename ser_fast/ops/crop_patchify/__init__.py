"""Boxes of video frames -> rows of patches in Qwen-VL order, in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ser_fast.ops.checks import check_tensor
from ser_fast.ops.crop_patchify.contract import OP, OUT_OP
from ser_fast.ops.crops import PatchSpec, check_crops

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def crop_patchify(
    frames: torch.Tensor,
    frame_idx: torch.Tensor,
    boxes: torch.Tensor,
    *,
    sizes: Sequence[tuple[int, int]],
    spec: PatchSpec,
    dtype: torch.dtype = torch.float32,
    out: torch.Tensor | None = None,
    backend: str = "auto",
) -> tuple[torch.Tensor, torch.Tensor]:
    """rows = patchify((resize(frames[frame_idx_i, y1:y2, x1:x2], sizes_i) * rescale - mean) / std), one box after another.

    Equal to transformers' `Qwen2VLImageProcessorPil` on the Pillow crop (see `crop_resize` for the resize). Rows are ordered
    by (block row, block column, row in block, column in block), values in a row by (channel, temporal slot, y, x).

    Args:
        frames: uint8[F, H, W, 3].
        frame_idx: int64 or int32[N], on the host.
        boxes: int64 or int32[N, 4] x1, y1, x2, y2 in pixels, half open, non-empty and inside the frame, on the host.
        sizes: (height, width) of each box after resizing, multiples of `spec.factor`; `spec.fit` gives the usual ones.
        spec: patch layout and normalisation.
        dtype: of the rows: float32, bfloat16 or float16.
        out: [rows, spec.row_size] of that dtype to write into.
        backend: "auto", or the name of one backend, which runs or raises.

    Returns:
        (rows [sum of patches, spec.row_size] on the device of frames, grid int64[N, 3] on the host: 1, rows and columns of
        patches of each box). No boxes give no rows.

    Raises:
        ValueError: wrong shape, dtype or device; a box that is empty or leaves the frame, or a size that is no multiple, with
            its index.
        BackendUnavailable: see backend.

    Source: Qwen2-VL image processor (github.com/huggingface/transformers), Pillow's Resample.c.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype: expected float32, bfloat16 or float16, got {dtype}")
    frame_idx, boxes, flat = check_crops(frames, frame_idx, boxes, sizes, spec.factor)
    layout = (spec.patch_size, spec.temporal_patch_size, spec.merge_size)
    values = (list(spec.image_mean), list(spec.image_std), spec.rescale_factor, dtype)
    grid = torch.tensor([spec.grid(*size) for size in sizes], dtype=torch.int64).reshape(-1, 3)
    if out is None:
        return OP(frames, frame_idx, boxes, flat, *layout, *values, backend=backend), grid
    num_rows = int(grid.prod(1).sum())
    check_tensor("out", out, shape=(num_rows, spec.row_size), dtypes=(dtype,), device=frames.device)
    if out.requires_grad:
        raise ValueError("out: expected a tensor that requires no gradient")
    if not out.is_contiguous():
        raise ValueError(f"out: expected a contiguous tensor, got one with strides {list(out.stride())}")
    OUT_OP(frames, frame_idx, boxes, flat, *layout, *values, out, backend=backend)
    return out, grid
