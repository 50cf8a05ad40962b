"""crop_resize in C++ (csrc/pixels)."""

from __future__ import annotations

import torch

from ser_fast import _native


def crop_resize(
    frames: torch.Tensor, frame_idx: torch.Tensor, boxes: torch.Tensor, height: int, width: int, out: torch.Tensor
) -> None:
    sizes = torch.tensor([[height, width]]).expand(boxes.shape[0], 2).contiguous()
    if frames.stride()[2:] != (3, 1):
        frames = frames.contiguous()
    _native.call("crop_resize", frames, frame_idx, boxes, sizes, torch.get_num_threads(), out)
