"""The shared types: shapes instead of data in their repr, checks, the JSON of scores."""

from __future__ import annotations

import pickle

import pytest
import torch

from ser_fast.errors import DecodeError, RefusedMedia
from ser_fast.faults import PolicyFault
from ser_fast.text import clean
from ser_fast.types import Clip, CoordSpace, RefereeScores, Segments
from tests.support.referee import make_clip


@pytest.mark.parametrize(
    ("offsets", "host", "message"),
    [
        ([0, -2, 3], (0, 1, 3), r"offsets: expected those of host, \(0, 1, 3\), got \[0, -2, 3\]"),
        ([5, 8], (0, 3), "offsets: expected those of host"),
        ([5, 8], (5, 8), "host: expected whole numbers that start at 0 and never fall"),
        ([0, 3, 2], (0, 3, 2), "host: expected whole numbers that start at 0 and never fall"),
        ([0, 1], (0, 1.0), "host: expected whole numbers"),
        ([], (), "host: expected whole numbers that start at 0"),
        ([0, 1, 2], (0, 2), r"offsets: expected int64\[2\], got int64\[3\]"),
    ],
)
def test_segments_that_make_no_sense(offsets: list[int], host: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Segments(offsets=torch.tensor(offsets, dtype=torch.int64), host=host)
    with pytest.raises(ValueError, match=r"offsets: expected int64\[2\], got int32\[2\]"):
        Segments(offsets=torch.tensor([0, 3], dtype=torch.int32), host=(0, 3))
    with pytest.raises(ValueError, match="lengths: expected whole numbers >= 0"):
        Segments.from_lengths([1.5])  # type: ignore[list-item]


@pytest.mark.parametrize("times", [[0.0, float("nan")], [3.0, 0.0, 2.0]])
def test_clips_have_ascending_times(times: list[float]) -> None:
    with pytest.raises(ValueError, match="times: expected finite numbers that ascend"):
        Clip(
            frames=torch.zeros(len(times), 4, 4, 3, dtype=torch.uint8),
            times=torch.tensor(times, dtype=torch.float64),
            start_s=0.0,
            duration=9.0,
            source="x",
            decoded_by="test",
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"relevance": torch.ones(1)}, r"relevance: expected float32\[2\], as many as reasons, got float32\[1\]"),
        ({"localization": torch.ones(2).double()}, r"localization: expected float32\[2\], as many as reasons, got float64"),
        ({"valid": torch.ones(2)}, r"valid: expected bool\[2\], as many as reasons, got float32\[2\]"),
    ],
)
def test_scores_are_of_one_length(change: dict[str, torch.Tensor], message: str) -> None:
    fields = {
        "relevance": torch.ones(2),
        "localization": torch.ones(2),
        "level_mass": torch.ones(2),
        "valid": torch.ones(2, dtype=torch.bool),
        "reasons": (None, None),
    }
    assert len(RefereeScores(**fields).reasons) == 2  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        RefereeScores(**(fields | change))  # type: ignore[arg-type]


def test_segments_carry_their_offsets_twice() -> None:
    segments = Segments.from_lengths([2, 0, 3])
    assert (segments.host, segments.offsets.tolist()) == ((0, 2, 2, 5), [0, 2, 2, 5])
    assert (len(segments), segments.num_rows, segments.lengths) == (3, 5, (2, 0, 3))
    assert (segments.rows(2), segments.slice(2)) == (range(2, 5), slice(2, 5))
    assert Segments.from_lengths([]).num_rows == 0
    with pytest.raises(ValueError, match=r"lengths: expected whole numbers >= 0, got \[1, -1\]"):
        Segments.from_lengths([1, -1])


def test_repr_shows_shapes() -> None:
    assert repr(make_clip(3)).startswith("Clip(frames=uint8[3, 96, 130, 3], times=float64[3], start_s=0.0, duration=3.0")
    assert len(repr(Segments.from_lengths([1] * 1000))) < 80


def test_types_are_frozen_and_take_names_only() -> None:
    with pytest.raises(AttributeError):
        make_clip(1).duration = 3.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        CoordSpace("norm1")  # type: ignore[misc]


def test_clips_check_their_tensors() -> None:
    options = {"start_s": 0.0, "duration": 1.0, "source": "s", "decoded_by": "d"}
    frames, times = torch.zeros(2, 4, 4, 3, dtype=torch.uint8), torch.zeros(2, dtype=torch.float64)
    assert Clip(frames=frames, times=times, **options).frame_hw == (4, 4)
    with pytest.raises(ValueError, match=r"frames: expected uint8\[F,H,W,3\], got torch.float32\[2, 4, 4, 3\]"):
        Clip(frames=frames.float(), times=times, **options)
    with pytest.raises(ValueError, match=r"times: expected float64\[2\], got torch.float64\[1\]"):
        Clip(frames=frames, times=times[:1], **options)


def test_coordinate_spaces_survive_json() -> None:
    for space in (CoordSpace(kind="pixels", height=3, width=4), CoordSpace(kind="norm1"), CoordSpace(kind="norm1000")):
        assert CoordSpace.from_json(space.to_json()) == space
    assert CoordSpace(kind="pixels", height=3, width=4).extent() == (4.0, 3.0)


def test_decode_errors_survive_pickling() -> None:
    for kind in (DecodeError, RefusedMedia):
        error = pickle.loads(pickle.dumps(kind("v.mp4", "at 3.000 s", "why")))
        assert (type(error), str(error)) == (kind, "v.mp4: at 3.000 s: why")
        assert (error.path, error.position, error.reason) == ("v.mp4", "at 3.000 s", "why")


def test_three_faults_enter_no_count() -> None:
    assert [fault for fault in PolicyFault if not fault.counts] == ["in_answer", "think_unclosed", "outside_think"]


def test_clean() -> None:
    assert clean("  plain \n") == "plain"
    assert clean("\u3000犬\x00と\x9f猫\ud800 👩‍👧\u2028") == "犬 と 猫\ufffd 👩‍👧"
