"""crop_patchify in C++ (csrc/pixels)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ser_fast import _native
from ser_fast.ops.crops import level_table


def crop_patchify(
    frames: torch.Tensor,
    frame_idx: torch.Tensor,
    boxes: torch.Tensor,
    sizes: Sequence[int],
    patch: int,
    temporal: int,
    merge: int,
    mean: Sequence[float],
    std: Sequence[float],
    rescale_factor: float,
    dtype: torch.dtype,
    out: torch.Tensor,
) -> None:
    table = level_table(tuple(mean), tuple(std), rescale_factor, dtype)
    bits = torch.int32 if dtype == torch.float32 else torch.int16  # the kernel copies bit patterns out of the table
    if frames.stride()[2:] != (3, 1):
        frames = frames.contiguous()
    _native.call(
        "crop_patchify",
        frames,
        frame_idx,
        boxes,
        torch.tensor(sizes, dtype=torch.int64).reshape(-1, 2),
        patch,
        temporal,
        merge,
        table.view(bits),
        torch.get_num_threads(),
        out.view(bits),
    )
