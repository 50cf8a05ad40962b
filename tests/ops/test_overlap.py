"""box_iou and interval_iou against hand-made numbers and a plain loop."""

from __future__ import annotations

import math
import random

import pytest
import torch

from ser_fast.ops import box_iou, interval_iou
from ser_fast.types import Segments
from tests.support.tolerance import exact

NAN, INF = math.nan, math.inf
UNIT = [0.0, 0.0, 10.0, 10.0]

BOX_TABLE = [
    pytest.param(UNIT, UNIT, 1.0, id="same"),
    pytest.param(UNIT, [5.0, 0.0, 15.0, 10.0], 1 / 3, id="half"),
    pytest.param(UNIT, [10.0, 0.0, 20.0, 10.0], 0.0, id="touching"),
    pytest.param(UNIT, [2.0, 2.0, 4.0, 4.0], 0.04, id="inside"),
    pytest.param([10.0, 0.0, 0.0, 10.0], UNIT, 0.0, id="inverted-x"),
    pytest.param([10.0, 10.0, 0.0, 0.0], UNIT, 0.0, id="inverted-both"),
    pytest.param([10.0, 10.0, 0.0, 0.0], [10.0, 10.0, 0.0, 0.0], 0.0, id="inverted-itself"),
    pytest.param([5.0, 5.0, 5.0, 5.0], [5.0, 5.0, 5.0, 5.0], 0.0, id="point-itself"),
    pytest.param([0.0, 5.0, 10.0, 5.0], UNIT, 0.0, id="line"),
    pytest.param([NAN, 0.0, 10.0, 10.0], UNIT, NAN, id="nan"),
    pytest.param([0.0, 0.0, INF, 10.0], UNIT, NAN, id="infinite"),
    pytest.param([-INF, 0.0, 0.0, 10.0], [20.0, 0.0, 30.0, 10.0], NAN, id="infinite-apart"),
    pytest.param([-10.0, -10.0, 0.0, 0.0], UNIT, 0.0, id="negative"),
]

INTERVAL_TABLE = [
    pytest.param([2.0, 4.0], [2.0, 4.0], 1.0, id="same"),
    pytest.param([0.0, 4.0], [2.0, 6.0], 1 / 3, id="half"),
    pytest.param([0.0, 2.0], [2.0, 4.0], 0.0, id="touching"),
    pytest.param([4.0, 2.0], [0.0, 6.0], 0.0, id="inverted"),
    pytest.param([3.0, 3.0], [3.0, 3.0], 0.0, id="instant"),
    pytest.param([0.0, 1.0], [5.0, 6.0], 0.0, id="apart"),
    pytest.param([NAN, 1.0], [0.0, 1.0], NAN, id="nan"),
    pytest.param([0.0, INF], [0.0, 1.0], NAN, id="infinite"),
]


@pytest.mark.parametrize(("a", "b", "expected"), BOX_TABLE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_box_iou_of_two(a: list[float], b: list[float], expected: float, dtype: torch.dtype) -> None:
    want = torch.tensor([expected], dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    for first, second in ((a, b), (b, a)):
        one, two = torch.tensor([first], dtype=dtype), torch.tensor([second], dtype=dtype)
        segments = Segments.from_lengths([1])
        for iou in (box_iou(one, two)[0], box_iou(one, two, paired=True), box_iou(one, two, segments=(segments, segments))):
            torch.testing.assert_close(iou, want, equal_nan=True)


@pytest.mark.parametrize(("a", "b", "expected"), INTERVAL_TABLE)
def test_interval_iou_of_two(a: list[float], b: list[float], expected: float) -> None:
    for first, second in ((a, b), (b, a)):
        one, two = torch.tensor([first]), torch.tensor([second])
        torch.testing.assert_close(interval_iou(one, two)[0], torch.tensor([expected]), equal_nan=True)


def test_half_precision_areas_do_not_overflow() -> None:
    box = torch.tensor([[0.0, 0.0, 1920.0, 1080.0]], dtype=torch.float16)
    assert box_iou(box, box).item() == 1.0


def test_integer_boxes() -> None:
    assert box_iou(torch.tensor([[0, 0, 10, 10]]), torch.tensor([[0, 0, 10, 5]])).item() == 0.5


@pytest.mark.parametrize("op", [box_iou, interval_iou], ids=["box", "interval"])
def test_ragged_equals_a_loop_over_responses(op: object) -> None:
    width = 4 if op is box_iou else 2
    lengths_a, lengths_b = [3, 0, 2, 1, 0, 5], [2, 4, 0, 1, 0, 3]
    a, b = (torch.rand(sum(n), width).sort(dim=1).values for n in (lengths_a, lengths_b))
    segments = Segments.from_lengths(lengths_a), Segments.from_lengths(lengths_b)
    blocks = [op(a[segments[0].slice(r)], b[segments[1].slice(r)]).flatten() for r in range(6)]  # type: ignore[operator]
    exact(op(a, b, segments=segments), torch.cat(blocks))  # type: ignore[operator]


@pytest.mark.parametrize("num", [0, 1, 65_536, 1_000_000])
def test_any_number_of_pairs(num: int) -> None:
    a = torch.rand(num, 4).sort(dim=1).values[:, [0, 1, 2, 3]]
    assert box_iou(a, a, paired=True).shape == (num,)
    assert interval_iou(a[:, :2], a[:, 2:], paired=True).shape == (num,)


def test_union_of_intervals_equals_counting_milliseconds() -> None:
    """IoU and IoP of unions, against a grid of milliseconds."""
    rng = random.Random(0)

    def intervals(num: int) -> list[list[int]]:
        return [sorted(rng.choices(range(60), k=2)) for _ in range(num)]

    rows_a, rows_b = ([intervals(rng.randrange(5)) for _ in range(200)] for _ in range(2))
    iou, iop = interval_iou(
        *(torch.tensor([i for row in rows for i in row]).reshape(-1, 2) for rows in (rows_a, rows_b)),
        segments=(Segments.from_lengths(map(len, rows_a)), Segments.from_lengths(map(len, rows_b))),
        union=True,
    )
    for r, (row_a, row_b) in enumerate(zip(rows_a, rows_b, strict=True)):
        set_a, set_b = ({t for start, end in row for t in range(start, end)} for row in (row_a, row_b))
        both, either = len(set_a & set_b), len(set_a | set_b)
        assert iou[r].item() == pytest.approx(both / either if either else 0.0, abs=1e-6)
        assert iop[r].item() == pytest.approx(both / len(set_a) if set_a else 0.0, abs=1e-6)


def test_union_edges() -> None:
    a, b = torch.tensor([[5.0, 2.0], [0.0, 4.0], [NAN, 1.0]]), torch.tensor([[0.0, 2.0], [1.0, 2.0]])
    segments = Segments.from_lengths([1, 1, 1, 0]), Segments.from_lengths([1, 1, 0, 0])
    iou, iop = interval_iou(a, b, segments=segments, union=True)
    torch.testing.assert_close(iou, torch.tensor([0.0, 0.25, NAN, 0.0]), equal_nan=True)
    torch.testing.assert_close(iop, torch.tensor([0.0, 0.25, NAN, 0.0]), equal_nan=True)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"a": torch.zeros(2, 3)}, r"a: expected the shape \[n, 4\], got \[2, 3\]"),
        ({"a": [[0, 0, 1, 1]]}, "a: expected a tensor, got list"),
        ({"a": torch.zeros(2, 4, dtype=torch.bool)}, "a: expected real numbers, got bool"),
        ({"paired": True}, "b: expected 2 rows to pair with a, got 3"),
        (
            {"paired": True, "segments": (Segments.from_lengths([2]), Segments.from_lengths([3]))},
            "paired, segments: expected at",
        ),
        ({"segments": (Segments.from_lengths([1]), Segments.from_lengths([3]))}, r"segments\[0\]: expected segments of 2 rows"),
        ({"segments": (Segments.from_lengths([2]), Segments.from_lengths([3, 0]))}, "segments: expected two of one length"),
    ],
)
def test_errors(kwargs: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"a": torch.zeros(2, 4), "b": torch.zeros(3, 4)} | kwargs
    with pytest.raises((ValueError, TypeError), match=message):
        box_iou(arguments.pop("a"), arguments.pop("b"), **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="segments: expected with union=True, got none"):
        interval_iou(torch.zeros(1, 2), torch.zeros(1, 2), union=True)


def test_an_area_that_overflows_is_not_a_number() -> None:
    box = torch.tensor([[0.0, 0.0, 1e20, 1e20]])
    assert box_iou(box, box).isnan().all()
    exact(box_iou(box.double(), box.double()), torch.ones(1, 1, dtype=torch.float64))


def test_unions_are_computed_in_double() -> None:
    """Many short intervals at late times: float32 has no digit left for them."""
    starts = 1e7 + torch.arange(2000, dtype=torch.float64) / 1000
    rows = torch.stack([starts, starts + 0.0005], dim=1)
    whole = torch.tensor([[1e7, 1e7 + 2]], dtype=torch.float64)
    segments = Segments.from_lengths([2000]), Segments.from_lengths([1])
    iou, iop = interval_iou(rows, whole, segments=segments, union=True)
    assert (float(iou), float(iop)) == (pytest.approx(0.5, abs=1e-6), pytest.approx(1.0, abs=1e-6))


def test_unions_of_very_uneven_responses() -> None:
    """Twenty thousand responses, one of which has as many intervals: memory goes with the rows, not with rows x responses."""
    num = 20_000
    lengths = [num, *[1] * (num - 1)]
    a = torch.cat([torch.arange(num)[:, None] + torch.tensor([0.0, 0.5]), torch.tensor([[0.0, 2.0]]).expand(num - 1, 2)])
    b = torch.tensor([[0.0, 1.0]]).expand(num, 2)
    segments = Segments.from_lengths(lengths), Segments.from_lengths([1] * num)
    iou, iop = interval_iou(a, b, segments=segments, union=True)
    assert float(iou[0]) == pytest.approx(0.5 / (num / 2 + 0.5))
    assert iou[1:].unique().tolist() == [0.5]
    assert iop[1:].unique().tolist() == [0.5]
