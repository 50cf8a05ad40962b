"""Rows of prefix trees: layout, positions, mask, errors."""

from __future__ import annotations

import pytest
import torch

from ser_fast.packing import Segment, image_order, pack_rows, path_to
from tests.support.tolerance import exact

IMAGE, MERGE = 99, 2


def _image(rows: int, columns: int) -> tuple[tuple[int, ...], tuple[int, int, int]]:
    """Placeholders and grid of an image of so many tokens."""
    return (IMAGE,) * (rows * columns), (1, rows * MERGE, columns * MERGE)


def _tree() -> list[Segment]:
    """A root with an image, two branches (one with an image), two leaves on the first."""
    root_ids, root_grid = _image(2, 3)
    branch_ids, branch_grid = _image(1, 2)
    return [
        Segment(ids=(1, 2, *root_ids, 3), grids=(root_grid,)),
        Segment(ids=(4, *branch_ids, 5, 6), grids=(branch_grid,), parent=0),
        Segment(ids=(7,), parent=1),
        Segment(ids=(8, 9), parent=1),
        Segment(ids=(10, 11), parent=0),
    ]


def test_layout_is_segment_after_segment() -> None:
    packed = pack_rows([_tree(), [Segment(ids=(1, 2))]], image_token_id=IMAGE, merge_size=MERGE)
    assert packed.input_ids[0].tolist() == [i for segment in _tree() for i in segment.ids]
    assert packed.input_ids[1].tolist() == [1, 2] + [0] * 17
    assert packed.segment_ids[0].tolist() == [0] * 9 + [1] * 5 + [2] + [3] * 2 + [4] * 2
    assert packed.segment_ids[1].tolist() == [0, 0] + [-1] * 17
    assert packed.spans == (((0, 9), (9, 14), (14, 15), (15, 17), (17, 19)), ((0, 2),))
    rows, columns = packed.last_tokens([(0, 2), (0, 3), (1, 0)])
    assert (rows.tolist(), columns.tolist()) == ([0, 0, 1], [14, 16, 1])


def test_positions_by_hand() -> None:
    """Text counts on; an image starts all three axes at the position due and is followed by its longer side."""
    packed = pack_rows([_tree()], image_token_id=IMAGE, merge_size=MERGE)
    temporal, height, width = packed.position_ids[:, 0].tolist()
    #           1  2  image ...........  3 | 4  image  5  6 | 7 | 8  9 | 10 11
    assert temporal == [0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 7, 7, 9, 10, 11, 11, 12, 6, 7]
    assert height == [0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7, 7, 9, 10, 11, 11, 12, 6, 7]
    assert width == [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 11, 12, 6, 7]


def test_uneven_images_in_one_segment() -> None:
    """A prompt of frames: each image has its own grid, in order."""
    (first, second, third), grids = zip(*(_image(1, 3), _image(2, 1), _image(2, 2)), strict=True)
    segment = Segment(ids=(1, *first, 2, *second, *third), grids=grids)
    packed = pack_rows([[segment], [Segment(ids=(5,))]], image_token_id=IMAGE, merge_size=MERGE)
    temporal, height, width = packed.position_ids[:, 0].tolist()
    #                 1  first    2  second third
    assert temporal == [0, 1, 1, 1, 4, 5, 5, 7, 7, 7, 7]
    assert height == [0, 1, 1, 1, 4, 5, 6, 7, 7, 8, 8]
    assert width == [0, 1, 2, 3, 4, 5, 5, 7, 8, 7, 8]
    assert image_order([[Segment(ids=(5,))], [segment]]) == [(1, 0, 0), (1, 0, 1), (1, 0, 2)]


@pytest.mark.parametrize("grid", [(2, 4, 4), (1, 5, 4), (1, 4, 5), (1, 0, 4)])
def test_grids_that_make_no_image(grid: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"rows\[0\]\[0\]: expected a grid \(1, rows, columns\) in multiples of 2, got"):
        pack_rows([[Segment(ids=(IMAGE,) * 4, grids=(grid,))]], image_token_id=IMAGE, merge_size=MERGE)


def test_positions_behind_an_upright_image() -> None:
    ids, grid = _image(3, 1)
    packed = pack_rows([[Segment(ids=(*ids, 3), grids=(grid,))]], image_token_id=IMAGE, merge_size=MERGE)
    assert packed.position_ids[:, 0].tolist() == [[0, 0, 0, 3], [0, 1, 2, 3], [0, 0, 0, 3]]


def test_mask_shows_each_token_its_own_past_and_its_ancestors() -> None:
    rows = [_tree(), [Segment(ids=(1, 2, 3)), Segment(ids=(4,)), Segment(ids=(5, 6), parent=1)]]
    packed = pack_rows(rows, image_token_id=IMAGE, merge_size=MERGE)
    mask = packed.mask()[:, 0]
    for b, row in enumerate(rows):
        owner = [s for s, segment in enumerate(row) for _ in segment.ids]
        for q in range(mask.shape[1]):
            for k in range(mask.shape[1]):
                real = q < len(owner) and k < len(owner)
                seen = real and k <= q and owner[k] in path_to(row, owner[q])
                assert bool(mask[b, q, k]) == (seen or q == k), (b, q, k)
    assert mask.any(dim=-1).all(), "no row of the softmax is empty, padding included"


def test_a_row_may_hold_several_trees() -> None:
    """Positions and sight of a tree do not depend on what stands before it in the row."""
    alone = pack_rows([_tree()], image_token_id=IMAGE, merge_size=MERGE)
    shifted = [Segment(ids=s.ids, grids=s.grids, parent=None if s.parent is None else s.parent + 5) for s in _tree()]
    both = pack_rows([[*_tree(), *shifted]], image_token_id=IMAGE, merge_size=MERGE)
    num = alone.input_ids.shape[1]
    exact(both.position_ids[:, :, num:], alone.position_ids)
    exact(both.mask()[:, :, num:, num:], alone.mask())
    assert not both.mask()[:, :, num:, :num].any()


def test_images_come_row_by_row_in_the_order_of_the_segments() -> None:
    assert image_order([_tree(), _tree()[:1]]) == [(0, 0, 0), (0, 1, 0), (1, 0, 0)]
    assert path_to(_tree(), 3) == [0, 1, 3]


def test_padding_never_passes_for_an_image() -> None:
    packed = pack_rows([[Segment(ids=(5, 5, 5))], [Segment(ids=(5,))]], image_token_id=0, merge_size=MERGE)
    assert (packed.input_ids == 0).sum() == 0


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([], "rows: expected at least one row"),
        ([Segment(ids=())], r"rows\[0\]\[0\]: expected at least one token"),
        ([Segment(ids=(1,), parent=0)], r"rows\[0\]\[0\]: expected a parent before it, got 0"),
        ([Segment(ids=(1,)), Segment(ids=(2,), parent=-1)], r"rows\[0\]\[1\]: expected a parent before it, got -1"),
        ([Segment(ids=(1, IMAGE))], "more image placeholders than its 0 grids"),
        ([Segment(ids=(1, IMAGE, IMAGE), grids=((1, 4, 4),))], "expected 4 image placeholders in a run for 4 x 4"),
        ([Segment(ids=(1,), grids=((1, 4, 4),))], "expected placeholders for 1 images, 1 are missing"),
    ],
)
def test_errors(row: list[Segment], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pack_rows([row], image_token_id=IMAGE, merge_size=MERGE)


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_positions_equal_those_of_the_models(family: str, random_vlm: dict[str, object]) -> None:
    import transformers

    model = transformers.AutoModelForImageTextToText.from_pretrained(random_vlm[family]).model
    image = model.config.image_token_id
    rows = [Segment(ids=tuple(image if i == IMAGE else i for i in s.ids), grids=s.grids, parent=s.parent) for s in _tree()]
    packed = pack_rows([rows], image_token_id=image, merge_size=MERGE)
    for leaf in range(len(rows)):
        path = path_to(rows, leaf)
        ids = torch.tensor([[i for s in path for i in rows[s].ids]])
        grids = torch.tensor([grid for s in path for grid in rows[s].grids])
        expected, _ = model.get_rope_index(ids, mm_token_type_ids=(ids == image).int(), image_grid_thw=grids)
        columns = [c for s in path for c in range(*packed.spans[0][s])]
        exact(packed.position_ids[:, 0, columns], expected[:, 0])
