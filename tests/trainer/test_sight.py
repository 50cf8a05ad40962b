"""What image tokens should say, by hand; a tower that learns it."""

from __future__ import annotations

from pathlib import Path

import torch

from ser_fast.ops import PatchSpec
from ser_fast.referee import VLMReferee
from ser_fast.referee.views import View
from ser_fast.types import Clip
from tests.support.toy import make_toy_scene, make_toy_thing
from trainer.toy.files import write_split
from trainer.toy.models import new_referee
from trainer.toy.sight import NOTHING, Cell, Looks, Sight, cells_of
from trainer.toy.world import COLORS, SHAPES

RED_CIRCLE = (1 + list(COLORS).index("red"), 1 + SHAPES.index("circle"))


def _clip() -> Clip:
    times = torch.arange(6, dtype=torch.float64)
    frames = torch.zeros(6, 168, 168, 3, dtype=torch.uint8)
    return Clip(frames=frames, times=times, start_s=0.0, duration=6.0, source="x", decoded_by="test")


def test_cells_of_a_frame() -> None:
    """The circle fills [0, 84] x [0, 84] of 168 x 168: all of cell (0, 0) of 3 x 3, half of two more, a quarter of one."""
    view = View(clip=_clip(), frame_idx=2, box=(0, 0, 168, 168), size=(84, 84))
    cells = cells_of(make_toy_scene(make_toy_thing()), view, PatchSpec(min_pixels=784, max_pixels=784 * 9))
    assert [cell == NOTHING for cell in cells] == [False, False, True, False, False, True, True, True, True]
    assert cells[0] == Cell(*RED_CIRCLE, (-0.5, -0.5, 1.0, 1.0, 0.0, 0.0, 1.5, 1.5))
    assert cells[1].edges == (-1.5, -0.5, 0.0, 1.0, 0.0, 0.0, 1.5, 1.5)
    assert cells[3].edges == (-0.5, -1.5, 1.0, 0.0, 0.0, 0.0, 1.5, 1.5)


def test_cells_of_a_crop_and_of_a_frame_without_a_thing() -> None:
    spec = PatchSpec(min_pixels=784, max_pixels=784 * 16)
    crop = View(clip=_clip(), frame_idx=2, box=(42, 0, 126, 42), size=(56, 112))
    cells = cells_of(make_toy_scene(make_toy_thing()), crop, spec)
    assert [cell == NOTHING for cell in cells] == [
        False,
        False,
        True,
        True,
    ] * 2  # cells of 21 x 21 pixels, the circle ends at 84
    assert cells[0].edges == (-2.5, -0.5, 1.5, 3.5, -2.0, 0.0, 2.0, 4.0)
    absent = View(clip=_clip(), frame_idx=5, box=(0, 0, 168, 168), size=(84, 84))
    assert cells_of(make_toy_scene(make_toy_thing()), absent, spec) == [NOTHING] * 9


def test_the_thing_that_covers_most_of_a_cell_counts() -> None:
    """A ring over the right three quarters of the frame, drawn as if the circle lay over it."""
    ring = make_toy_thing(color="blue", shape="ring", side=0.75, begin=(0.625, 0.5), end=(0.625, 0.5))
    view = View(clip=_clip(), frame_idx=2, box=(0, 0, 168, 168), size=(56, 56))
    cells = cells_of(make_toy_scene(make_toy_thing(), ring), view, PatchSpec(min_pixels=784, max_pixels=784 * 4))
    blue_ring = (1 + list(COLORS).index("blue"), 1 + SHAPES.index("ring"))
    assert [(cell.color, cell.shape) for cell in cells] == [RED_CIRCLE, blue_ring, blue_ring, blue_ring]


def test_a_tower_learns_to_see(tmp_path: Path) -> None:
    scenes = write_split(tmp_path / "clips", split="train", seed=0, num_clips=4)
    referee = VLMReferee(new_referee(tmp_path / "model", seed=0))
    sight = Sight(referee.model.model.visual)
    looks = Looks(sight, referee.spec, tmp_path / "clips", scenes, seed=0, num_clips=4, num_views=2)
    assert looks.loss_at(0).item() == looks.loss_at(0).item() != looks.loss_at(1).item()
    optimizer = torch.optim.AdamW(sight.parameters(), lr=1e-3)
    losses = []
    for step in range(30):
        loss = looks.loss_at(step)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert sum(losses[-5:]) < 0.6 * sum(losses[:5]), losses
