"""Which frames: arithmetic on times, no media."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from ser_fast.types import Sampling
from ser_fast.video.clip import choose_frames
from ser_fast.video.pyav import VideoIndex
from ser_fast.video.sampling import MAX_TIMES, frames_at, sampled_times, uniform_times, window

RATES = {
    "23.976": Fraction(24_000, 1001),
    "24": Fraction(24),
    "25": Fraction(25),
    "29.97": Fraction(30_000, 1001),
    "30": Fraction(30),
    "59.94": Fraction(60_000, 1001),
    "120": Fraction(120),
    "240": Fraction(240),
}


def steady(rate: Fraction, num_frames: int = 1000) -> np.ndarray:
    """Times of frames at a steady rate."""
    return np.array([float(i / rate) for i in range(num_frames)])


def uneven(num_frames: int = 1000) -> np.ndarray:
    """Times of frames 2 ms to 2 s apart."""
    steps = np.random.default_rng(0).choice([0.002, 1 / 90, 1 / 30, 0.1, 2.0], num_frames - 1)
    return np.concatenate([[0.0], np.cumsum(steps)])


TIMES = {name: steady(rate) for name, rate in RATES.items()} | {"uneven": uneven()}


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("digits", [3, 4, 6, 17])
def test_rounded_times_select_their_frame(name: str, digits: int) -> None:
    for number, time in enumerate(TIMES[name]):
        assert frames_at(TIMES[name], [round(float(time), digits)]) == [number]


@pytest.mark.parametrize("name", TIMES)
def test_times_cut_to_milliseconds_select_their_frame(name: str) -> None:
    times = TIMES[name]
    assert frames_at(times, np.floor(times * 1000) / 1000) == list(range(len(times)))


@pytest.mark.parametrize("name", TIMES)
def test_every_other_time_selects_the_frame_on_display(name: str) -> None:
    times = TIMES[name]
    for part in (0.01, 0.3, 0.5):
        between = times[:-1] + part * np.diff(times)
        assert frames_at(times, between) == list(range(len(times) - 1)) or part == 0.5
    assert frames_at(times, times[1:] - 0.00101) == list(range(len(times) - 1))


@pytest.mark.parametrize("gap", [1e-3, 5e-4, 1 / 90_000])
def test_frames_closer_than_the_tolerance_are_told_apart(gap: float) -> None:
    times = np.arange(100) * gap
    for number, time in enumerate(times):
        assert frames_at(times, [time]) == [number]
        assert frames_at(times, [time + 0.4 * gap]) == [number]


def test_a_burst_after_a_pause() -> None:
    times = np.array([0.0, 1.0, 1.0005, 1.001, 2.0])
    assert [frames_at(times, [time]) for time in times] == [[0], [1], [2], [3], [4]]
    assert frames_at(times, [0.9995]) == [1]
    assert frames_at(times, [0.998]) == [0]
    assert frames_at(times, [1.5]) == [3]


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        ([], []),
        ([-1.0, 99.0], [0, 9]),
        ([0.5, 0.1, 0.5, 0.11], [1, 5]),
        ([0.0999], [1]),
        ([0.0989], [0]),
        ([0.1 + 0.2], [3]),
        ([0.9], [9]),
        ([0.95], [9]),
    ],
    ids=str,
)
def test_frames_at(wanted: list[float], numbers: list[int]) -> None:
    assert frames_at(np.arange(10) / 10, wanted) == numbers


def test_a_single_frame_is_always_on_display() -> None:
    assert frames_at(np.zeros(1), [0.0, 0.5, 99.0]) == [0]


# Uniform times


@pytest.mark.parametrize(
    ("last", "arguments", "times"),
    [
        (1.0, {"fps": 2}, [0.0, 0.5, 1.0]),
        (0.99, {"fps": 2}, [0.0, 0.5]),
        (0.0, {"fps": 2}, [0.0]),
        (1.0, {"fps": 2, "start": 0.25}, [0.25, 0.75]),
        (1.0, {"fps": 2, "end": 0.75}, [0.0, 0.5]),
        (1.0, {"fps": 2, "end": 9.0}, [0.0, 0.5, 1.0]),
        (1.0, {"fps": 2, "start": 0.5, "end": 0.5}, [0.5]),
        (1.0, {"fps": 2, "start": 1.0}, [1.0]),
        (1.0, {"fps": 2, "start": 1.0005}, [1.0005]),
        (10.0, {"fps": 2, "max_frames": 21}, [i / 2 for i in range(21)]),
        (10.0, {"fps": 2, "max_frames": 3}, [0.0, 5.0, 10.0]),
        (10.0, {"fps": 2, "max_frames": 1}, [0.0]),
        (10.0, {"fps": 2, "max_frames": 4, "start": 1.0, "end": 4.0}, [1.0, 2.0, 3.0, 4.0]),
        (10.0, {"fps": 0.1}, [0.0, 10.0]),
        (10.0, {"fps": 1e-9}, [0.0]),
        (10.0, {"fps": 1e300, "max_frames": 2}, [0.0, 10.0]),
    ],
    ids=str,
)
def test_uniform_times(last: float, arguments: dict[str, float], times: list[float]) -> None:
    assert uniform_times(last, **arguments) == pytest.approx(times)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", RATES)
def test_the_rate_of_a_clip_gives_all_its_frames(name: str) -> None:
    times = TIMES[name]
    assert frames_at(times, uniform_times(float(times[-1]), fps=float(RATES[name]))) == list(range(len(times)))


@pytest.mark.parametrize("max_frames", [1, 2, 3, 7, 64, 999, 1000, 5000])
@pytest.mark.parametrize("name", TIMES)
def test_never_more_than_max_frames(name: str, max_frames: int) -> None:
    times = TIMES[name]
    wanted = uniform_times(float(times[-1]), fps=1000, max_frames=max_frames)
    assert len(wanted) <= max_frames
    assert len(frames_at(times, wanted)) <= max_frames
    assert wanted[0] == 0
    if 1 < max_frames == len(wanted):
        assert wanted[-1] == pytest.approx(times[-1])


def test_uniform_times_are_counted_and_not_added_up() -> None:
    times = uniform_times(36_000.0, fps=30_000 / 1001)
    assert times[-1] == pytest.approx(float(Fraction(1001, 30_000) * (len(times) - 1)), abs=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fps": 0}, "fps: expected a number > 0, got 0"),
        ({"fps": -1}, "fps: expected a number > 0, got -1"),
        ({"fps": float("nan")}, "fps: expected a number > 0, got nan"),
        ({"fps": float("inf")}, "fps: expected a number > 0, got inf"),
        ({"fps": 2.0 * MAX_TIMES}, "fps: expected at most 10000000 times in 1.000 s, got 20000000.0, which makes 20000001"),
        ({"fps": 1, "max_frames": 0}, "max_frames: expected a number > 0, got 0"),
        ({"fps": 1, "start": -0.1}, r"start, end: expected a window that begins in \[0, 1\.000\] s, got -0\.1, None"),
        ({"fps": 1, "start": 1.1}, r"start, end: expected a window that begins in \[0, 1\.000\] s, got 1\.1, None"),
        ({"fps": 1, "start": 0.6, "end": 0.5}, r"begins in \[0, 1\.000\] s, got 0\.6, 0\.5"),
        ({"fps": 1, "end": -0.1}, r"begins in \[0, 1\.000\] s, got None, -0\.1"),
        ({"fps": 1, "start": float("nan")}, "got nan, None"),
        ({"fps": 1, "end": float("nan")}, "got None, nan"),
    ],
    ids=str,
)
def test_sampling_that_makes_no_sense(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        uniform_times(1.0, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, (0.0, 2.0)),
        (0.5, None, (0.5, 2.0)),
        (None, 1.5, (0.0, 1.5)),
        (0.5, 99.0, (0.5, 2.0)),
        (None, float("inf"), (0.0, 2.0)),
        (2.0, None, (2.0, 2.0)),
        (2.0005, None, (2.0005, 2.0005)),
        (1.0, 1.0, (1.0, 1.0)),
    ],
    ids=str,
)
def test_window(start: float | None, end: float | None, expected: tuple[float, float]) -> None:
    assert window(2.0, start, end) == expected


# What a policy saw


@pytest.mark.parametrize("name", TIMES)
def test_sampled_times_are_those_of_frames(name: str) -> None:
    times = TIMES[name]
    sampled = sampled_times(times.tolist(), Sampling(fps=2, max_frames=8))
    assert len(sampled) <= 8
    assert set(sampled) <= set(times.tolist())
    assert sampled[0] == 0
    assert sampled == tuple(sorted(set(sampled)))


def test_sampled_times_and_load_clip_agree() -> None:
    times = TIMES["29.97"]
    rule = {"fps": 2.0, "max_frames": 5, "start": 3.0, "end": 17.0}
    chosen = choose_frames(index_of(times), **rule)  # type: ignore[arg-type]
    assert sampled_times(times.tolist(), Sampling(**rule)) == tuple(times[chosen])  # type: ignore[arg-type]


def test_sampling_errors() -> None:
    with pytest.raises(ValueError, match="start, end"):
        sampled_times([0.0, 1.0], Sampling(fps=1, start=5.0))


# Choosing by an index


def index_of(times: np.ndarray, *, end: float | None = None, duration: float | None = None) -> VideoIndex:
    """An index of frames at those times."""
    pts = np.round(times * 90_000).astype(np.int64)
    gap = float(times[-1] - times[-2])
    end = float(times[-1]) + gap if end is None else end
    return VideoIndex(
        path="a.mp4",
        pts=pts,
        key_pts=pts[:1],
        seek_pts=pts[:1],
        time_base=Fraction(1, 90_000),
        frame_hw=(64, 96),
        end=end,
        duration=end if duration is None else duration,
        is_cut=False,
        damage=None if duration is None else "ends early",
    )


def test_choosing_all_or_some() -> None:
    index = index_of(steady(Fraction(30), 100))
    assert choose_frames(index) == list(range(100))
    assert choose_frames(index, start=1.0, end=2.0) == list(range(30, 61))
    assert choose_frames(index, max_frames=4) == [0, 33, 66, 99]
    assert choose_frames(index, times=[0.5, 3.3, 0.0]) == [0, 15, 99]
    assert choose_frames(index, times=[]) == []


@pytest.mark.parametrize("max_frames", [1, 2, 3, 10, 99, 100, 101])
def test_max_frames_without_a_rate(max_frames: int) -> None:
    numbers = choose_frames(index_of(steady(Fraction(30), 100)), max_frames=max_frames)
    assert len(numbers) == min(max_frames, 100)
    assert numbers == sorted(set(numbers))


def test_times_in_any_order_give_the_same_frames() -> None:
    index = index_of(uneven())
    times = random.Random(0).sample(index.times.tolist(), 50)
    assert choose_frames(index, times=times) == choose_frames(index, times=sorted(times))
    assert choose_frames(index, times=times + times) == choose_frames(index, times=times)


@pytest.mark.parametrize(
    ("time", "numbers"),
    [(0.95, [9]), (0.9995, []), (0.99, [9]), (1.0, []), (1.7, []), (2.0, []), (0.9, [9])],
    ids=str,
)
def test_what_is_promised_and_missing_is_not_replaced(time: float, numbers: list[int]) -> None:
    index = index_of(np.arange(10) / 10, end=1.0, duration=2.0)
    assert choose_frames(index, times=[time]) == numbers


def test_the_last_frame_there_is_can_be_had_even_if_it_has_no_length() -> None:
    index = index_of(np.arange(10) / 10, end=0.9, duration=2.0)
    assert choose_frames(index, times=[0.9, 0.95]) == [9]


def test_the_last_frame_of_a_sound_clip_stays_until_the_end() -> None:
    index = index_of(np.arange(10) / 10)
    assert choose_frames(index, times=[1.0]) == [9]
    assert choose_frames(index, times=[1.0005]) == [9]
    with pytest.raises(ValueError, match=r"times: expected seconds in \[0, 1\.000\], got 1\.002"):
        choose_frames(index, times=[1.002])
