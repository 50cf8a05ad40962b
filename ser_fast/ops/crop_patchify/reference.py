"""crop_patchify in plain torch: the oracle."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ser_fast.ops.crops import level_table, resized_crops


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
    table = level_table(tuple(mean), tuple(std), rescale_factor, dtype).to(frames.device)
    channel = torch.arange(3, device=frames.device)
    first = 0
    for image in resized_crops(frames, frame_idx, boxes, sizes):
        values = table[channel, image.long()]  # [height, width, 3]
        block = merge * patch
        blocks = values.reshape(image.shape[0] // block, merge, patch, image.shape[1] // block, merge, patch, 3)
        rows = blocks.permute(0, 3, 1, 4, 6, 2, 5).reshape(-1, 3, 1, patch * patch)
        rows = rows.expand(-1, 3, temporal, -1).reshape(rows.shape[0], -1)
        out[first : first + rows.shape[0]] = rows
        first += rows.shape[0]
