"""The shared types: shapes instead of data in their repr, checks, the JSON of scores."""

from __future__ import annotations

import pickle

import pytest
import torch

from ser_fast.errors import DecodeError, RefusedMedia
from ser_fast.faults import PolicyFault
from ser_fast.text import clean
from ser_fast.types import Clip, CoordSpace, Segments
from tests.support.referee import make_clip


def test_segments_carry_their_offsets_twice() -> None:
    segments = Segments.from_lengths([2, 0, 3])
    assert (segments.host, segments.offsets.tolist()) == ((0, 2, 2, 5), [0, 2, 2, 5])
    assert (len(segments), segments.num_rows, segments.lengths) == (3, 5, (2, 0, 3))
    assert (segments.rows(2), segments.slice(2)) == (range(2, 5), slice(2, 5))
    assert Segments.from_lengths([]).num_rows == 0
    with pytest.raises(ValueError, match=r"lengths: expected numbers >= 0, got \[1, -1\]"):
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
