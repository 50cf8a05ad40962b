"""Clips that are made once a session."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType

import pytest

from ser_fast.types import Clip
from ser_fast.video import load_clip
from tests.support.clips import CLIPS, HOLED, SHORT, Expected, make


@pytest.fixture(scope="session")
def clip_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Expected]:
    """Makes the clip of that name in CLIPS, SHORT ("short ...") or HOLED ("holed ...")."""
    folder = tmp_path_factory.mktemp("clips")
    makers = CLIPS | {f"short {name}": value for name, value in SHORT.items()}
    makers |= {f"holed {name}": value for name, value in HOLED.items()}

    @cache
    def make_one(name: str) -> Expected:
        ending, maker = makers[name]
        return maker(folder / f"{list(makers).index(name)}.{ending}")

    return make_one


@pytest.fixture(scope="session")
def decoded(clip_of: Callable[[str], Expected]) -> Callable[[str], Clip]:
    """All frames of a clip of that name, decoded from the start."""
    return cache(lambda name: load_clip(clip_of(name).path))


@pytest.fixture
def plain(tmp_path: Path) -> Expected:
    """A clip of 30 frames a second, for a test of its own."""
    return make(tmp_path / "plain.mp4")


@pytest.fixture
def in_five_seconds() -> Iterator[None]:
    """Fails a test that takes longer, even one that waits for a file."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("five seconds are over")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(5)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
