"""Views: parts of frames as a model sees them, and their way into its patch rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ser_fast.ops import PatchSpec, crop_patchify
from ser_fast.types import Clip


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """A part of a frame, resized for a model."""

    clip: Clip
    frame_idx: int
    box: tuple[int, int, int, int]
    size: tuple[int, int]
    """(height, width) after resizing."""


def view_pixels(views: Sequence[View], spec: PatchSpec, device: torch.device | str) -> tuple[torch.Tensor, torch.Tensor]:
    """(float32[sum of patches, spec.row_size] patch rows, int64[N, 3] grids) of N views, in their order, on a device."""
    grid = torch.tensor([spec.grid(*view.size) for view in views], device="cpu")
    offsets = [0, *grid.prod(1).cumsum(0).tolist()]
    rows = torch.empty(offsets[-1], spec.row_size, dtype=torch.float32, device=device)
    for frames, members in _by_clip(views):
        part, _ = crop_patchify(
            frames.to(device),
            torch.tensor([views[i].frame_idx for i in members], device="cpu"),
            torch.tensor([views[i].box for i in members], device="cpu"),
            sizes=[views[i].size for i in members],
            spec=spec,
        )
        at = 0
        for i in members:
            num_rows = offsets[i + 1] - offsets[i]
            rows[offsets[i] : offsets[i + 1]] = part[at : at + num_rows]
            at += num_rows
    return rows, grid.to(device)


def _by_clip(views: Sequence[View]) -> list[tuple[torch.Tensor, list[int]]]:
    groups: dict[int, tuple[torch.Tensor, list[int]]] = {}
    for i, view in enumerate(views):
        groups.setdefault(id(view.clip), (view.clip.frames, []))[1].append(i)
    return list(groups.values())
