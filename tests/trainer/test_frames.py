"""Frames by footage: windows of a video apart, kept up to some bytes, errors that name the file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ser_fast.errors import DecodeError, InputError
from ser_fast.testing import moving_square, write_clip
from ser_fast.types import Question, Task
from trainer.frames import Frames

QUESTION = Question(id="a", question="What?", answer="a", task=Task.FREE_FORM, video="square.mp4")
EARLY, LATE = (dataclasses.replace(QUESTION, start=start, end=start + 1) for start in (0.0, 1.5))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    frames, _ = moving_square(30)
    write_clip(tmp_path / "square.mp4", frames, fps=10)
    return tmp_path


def test_each_window_has_its_frames(folder: Path) -> None:
    frames = Frames(folder, fps=2.0, max_frames=8)
    assert frames.of(EARLY).times.tolist() == [0.0, 0.5, 1.0]
    assert frames.of(LATE).times.tolist() == [1.5, 2.0, 2.5]
    assert frames.of(QUESTION).times.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]


def test_the_last_ones_are_kept_up_to_some_bytes(folder: Path) -> None:
    num_bytes = Frames(folder, fps=2.0, max_frames=8).of(EARLY).frames.nbytes
    frames = Frames(folder, fps=2.0, max_frames=8, keep_bytes=2 * num_bytes)
    early, late = frames.of(EARLY), frames.of(LATE)
    assert frames.of(dataclasses.replace(EARLY, id="b")) is early
    assert frames.of(QUESTION) is frames.of(QUESTION)
    assert frames.of(EARLY) is not early, "the large one has taken the place of both"
    again = frames.of(LATE)
    assert again is not late
    frames.of(dataclasses.replace(EARLY, start=0.5, end=1.5))
    assert frames.of(LATE) is again, "the one not used for longest goes first"


def test_errors_name_the_file(folder: Path) -> None:
    frames = Frames(folder, fps=2.0, max_frames=8)
    with pytest.raises(InputError, match=r"square\.mp4: start, end: expected a window that begins in \[0, 2\.900\] s, got 7"):
        frames.of(dataclasses.replace(QUESTION, start=7.0))
    with pytest.raises(DecodeError, match=r"other\.mp4: open: "):
        frames.of(dataclasses.replace(QUESTION, video="other.mp4"))
    with pytest.raises(DecodeError, match=r"\.\./square\.mp4: open: the name leads out of the folder"):
        frames.of(dataclasses.replace(QUESTION, video="../square.mp4"))
    with pytest.raises(InputError, match="root: expected a folder, got 'nowhere'"):
        Frames("nowhere", fps=2.0, max_frames=8)
