"""The toy models' vision tower learns to see, before any language model reads it: as real models get theirs, trained.

Each image token says what covers its cell of the image: colour, shape, and where the edges of that thing are, seen from the
cell and in the image.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy, smooth_l1_loss

from ser_fast.ops import PatchSpec
from ser_fast.referee import RefereeConfig
from ser_fast.referee.prompt import crop_box
from ser_fast.referee.views import View, view_pixels
from ser_fast.types import Box, Clip
from trainer.toy.boxes import in_pixels, jittered
from trainer.toy.lessons import seen_clip
from trainer.toy.world import COLORS, SHAPES, SIDE_PX, Scene, Thing

FRAME_SIDES = (84, 112)
"""In pixels, as policy and referee see them."""
MIN_COVER = 0.1
"""Share of a cell that the box of a thing must cover to be what the cell shows."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What an image token should say."""

    color: int
    """0 for none, 1 for the first of COLORS."""
    shape: int
    """0 for none, 1 for the first of SHAPES."""
    edges: tuple[float, ...]
    """x1, y1, x2, y2 of the thing's box from the cell's centre, and from the corner of the image, in cells."""


NOTHING = Cell(0, 0, (0.0,) * 8)


class Sight(torch.nn.Module):
    """A vision tower with a linear probe; the probe is thrown away once the tower sees."""

    def __init__(self, tower: Any) -> None:
        super().__init__()
        self.tower = tower
        self.probe = torch.nn.Linear(tower.config.out_hidden_size, 1 + len(COLORS) + 1 + len(SHAPES) + 8)

    def forward(self, pixels: torch.Tensor, grid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits of colours [T, 7] and shapes [T, 6], 0 for none, and edges [T, 8], as `Cell` has them."""
        tokens: Any = self.tower(pixels, grid_thw=grid)
        color, shape, edges = self.probe(tokens.pooler_output).split([1 + len(COLORS), 1 + len(SHAPES), 8], dim=-1)
        return color, shape, edges


class Looks:
    """Supervised batches for a `Sight`. What is looked at in a step depends on the seed and the step only."""

    def __init__(
        self, sight: Sight, spec: PatchSpec, folder: Path, scenes: Sequence[Scene], *, seed: int, num_clips: int, num_views: int
    ) -> None:
        """Args:
        sight: is taught.
        spec: of its patches.
        folder: holds the videos.
        scenes: of the train split.
        seed: of everything that is random.
        num_clips: of a batch.
        num_views: frames and crops of each clip.
        """
        self._sight, self._spec, self._scenes, self._seed = sight, spec, scenes, seed
        self._num_clips, self._num_views = num_clips, num_views
        self._clip = functools.cache(lambda i: seen_clip(folder, scenes[i]))

    def loss_at(self, step: int) -> torch.Tensor:
        """Cross-entropies of colour and shape over all cells, and the error of the edges over those that show a thing."""
        rng = random.Random(f"{self._seed}/{step}")
        views: list[View] = []
        cells: list[Cell] = []
        for i in (rng.randrange(len(self._scenes)) for _ in range(self._num_clips)):
            clip = self._clip(i)
            for _ in range(self._num_views):
                view = self._view(self._scenes[i], clip, rng)
                views.append(view)
                cells += cells_of(self._scenes[i], view, self._spec)
        color, shape, edges = self._sight(*view_pixels(views, self._spec, "cpu"))
        colors, shapes = torch.tensor([cell.color for cell in cells]), torch.tensor([cell.shape for cell in cells])
        shown = colors > 0
        truth = torch.tensor([cell.edges for cell in cells])
        error = smooth_l1_loss(edges[shown].float(), truth[shown], beta=0.25)
        return cross_entropy(color.float(), colors) + cross_entropy(shape.float(), shapes) + error

    def _view(self, scene: Scene, clip: Clip, rng: random.Random) -> View:
        """A whole frame as either model sees it, or a crop near a thing in it as the referee does."""
        frame = rng.randrange(len(clip.times))
        shown = [box for thing in scene.things if (box := thing.box(float(clip.times[frame]))) is not None]
        if not shown or rng.random() < 2 / 3:
            side = rng.choice(FRAME_SIDES)
            return View(clip=clip, frame_idx=frame, box=(0, 0, SIDE_PX, SIDE_PX), size=(side, side))
        place = jittered(in_pixels(rng.choice(shown)), rng.uniform(0.2, 1.0), rng)
        left, top, right, bottom = crop_box([place], (SIDE_PX, SIDE_PX), RefereeConfig())
        size = self._spec.fit(4 * (bottom - top), 4 * (right - left))  # enlarged until it fills the spec
        return View(clip=clip, frame_idx=frame, box=(left, top, right, bottom), size=size)


def cells_of(scene: Scene, view: View, spec: PatchSpec) -> list[Cell]:
    """What each image token of a view should say, row by row."""
    _, rows, columns = (n // m for n, m in zip(spec.grid(*view.size), (1, spec.merge_size, spec.merge_size), strict=True))
    left, top, right, bottom = view.box
    width, height = (right - left) / columns, (bottom - top) / rows
    time_s = float(view.clip.times[view.frame_idx])
    things = []
    for thing in scene.things:
        if (box := thing.box(time_s)) is not None:
            x1, y1, x2, y2 = in_pixels(box)
            things.append((thing, ((x1 - left) / width, (y1 - top) / height, (x2 - left) / width, (y2 - top) / height)))
    return [_cell(things, column, row) for row in range(rows) for column in range(columns)]


def _cell(things: Sequence[tuple[Thing, Box]], column: int, row: int) -> Cell:
    """Of the thing that covers most of a cell; boxes in cells from the corner of the image."""
    covers = [_common(column, x1, x2) * _common(row, y1, y2) for _, (x1, y1, x2, y2) in things]
    if max(covers, default=0.0) < MIN_COVER:
        return NOTHING
    thing, box = things[covers.index(max(covers))]
    center = (column + 0.5, row + 0.5) * 2
    edges = (*(edge - middle for edge, middle in zip(box, center, strict=True)), *box)
    return Cell(1 + list(COLORS).index(thing.color), 1 + SHAPES.index(thing.shape), edges)


def _common(cell: int, begin: float, end: float) -> float:
    """Length of [begin, end] in [cell, cell + 1]."""
    return max(0.0, min(cell + 1, end) - max(cell, begin))
