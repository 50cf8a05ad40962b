"""Which frames of a video: arithmetic on times, no media."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ser_fast.types import Sampling

TIME_TOLERANCE_S = 1e-3
"""A time so little before a frame's presentation time still selects that frame, unless it is nearer to the one before: times
rounded to milliseconds read back the same frame."""

MAX_TIMES = 10_000_000
"""More cannot be meant."""


def frames_at(frame_times: np.ndarray, times: Sequence[float]) -> list[int]:
    """The frames on display at the given times: the last one whose presentation time is not later, each once, in order.

    Args:
        frame_times: float64[F] ascending seconds.
        times: seconds; before the first frame counts as the first, behind the last as the last.
    """
    wanted, last = np.asarray(times, dtype=np.float64), len(frame_times) - 1
    shown = np.clip(np.searchsorted(frame_times, wanted, side="right") - 1, 0, last)
    following = np.minimum(shown + 1, last)
    tolerance = np.minimum(TIME_TOLERANCE_S, (frame_times[following] - frame_times[shown]) / 2)
    return np.unique(np.where(frame_times[following] - wanted <= tolerance, following, shown)).tolist()


def uniform_times(
    last_time: float,
    *,
    fps: float,
    max_frames: int | None = None,
    start: float | None = None,
    end: float | None = None,
) -> list[float]:
    """Times start, start + 1/fps, ... up to the last frame or the end of the window, whichever is first.

    If these are more than max_frames, max_frames times evenly spread over the window, both ends included, take their place.

    Raises:
        ValueError: fps <= 0 or beyond reason, max_frames < 1, or a window that is empty or begins behind the last frame.
    """
    if not 0 < fps < math.inf:
        raise ValueError(f"fps: expected a number > 0, got {fps}")
    first, last = window(last_time, start, end)
    if max_frames is not None and max_frames < 1:
        raise ValueError(f"max_frames: expected a number > 0, got {max_frames}")
    count = math.floor((last - first) * fps + 1e-6) + 1
    if min(count, max_frames or count) > MAX_TIMES:
        raise ValueError(f"fps: expected at most {MAX_TIMES} times in {last - first:.3f} s, got {fps}, which makes {count}")
    if max_frames is not None and count > max_frames:
        return np.linspace(first, last, max_frames).tolist()
    return [first + i / fps for i in range(count)]


def window(last_time: float, start: float | None, end: float | None) -> tuple[float, float]:
    """(first, last) second of a window, cut at the last frame.

    Raises:
        ValueError: the window is empty or begins behind the last frame.
    """
    first, last = start or 0.0, last_time if end is None else min(end, last_time)
    if not 0 <= first <= last + TIME_TOLERANCE_S:
        raise ValueError(f"start, end: expected a window that begins in [0, {last_time:.3f}] s, got {start}, {end}")
    return first, max(first, last)


def sampled_times(frame_times: Sequence[float], sampling: Sampling) -> tuple[float, ...]:
    """Presentation times of the frames that a policy sees under a sampling rule. Errors as `uniform_times`."""
    shown = np.asarray(frame_times)
    window = {"start": sampling.start, "end": sampling.end}
    times = uniform_times(float(shown[-1]), fps=sampling.fps, max_frames=sampling.max_frames, **window)
    return tuple(shown[frames_at(shown, times)].tolist())
