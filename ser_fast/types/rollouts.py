"""Questions and the completions of a policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ser_fast.numbers import is_finite_number
from ser_fast.types.media import CoordSpace

Footage = tuple[str | None, str | None, float | None, float | None]
"""Video, image, begin and end of the window."""


class Task(StrEnum):
    """What a question asks for."""

    FREE_FORM = "free-form"
    MCQ = "mcq"
    TEMPORAL = "temporal"
    TEMPORAL_MCQ = "temporal-mcq"
    SPATIO_TEMPORAL = "spatio-temporal"
    IMAGE_GROUNDING = "image-grounding"


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question about a video or an image, with whatever labels its data set has."""

    id: str
    question: str
    answer: str
    task: Task
    video: str | None = None
    """Path below the media folder; exactly one of video and image is given."""
    image: str | None = None
    options: tuple[str, ...] = ()
    start: float | None = None
    """The window of the video that is asked about, in seconds."""
    end: float | None = None
    key_times: tuple[float, ...] = ()
    """Seconds at which the evidence is known to be visible."""
    interval: tuple[float, float] | None = None
    """The time span that answers the question."""
    boxes: tuple[Mapping[str, Any], ...] = ()
    """True boxes as the data gives them: `{"time_s", "box": [x1, y1, x2, y2] in fractions of the frame, "name"?}`."""

    @property
    def media(self) -> str:
        """The name of the video or of the image."""
        media = self.video if self.video is not None else self.image
        assert media is not None
        return media

    @property
    def footage(self) -> Footage:
        """What it is asked about: questions of equal footage are shown the same frames."""
        return self.video, self.image, self.start, self.end


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """Which frames a policy saw, as a rule: `fps` frames a second of the window, at most `max_frames`, evenly spread."""

    fps: float
    max_frames: int | None = None
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """One completion of one question."""

    question: Question
    completion: str
    coord_space: CoordSpace
    group: str
    """Rollouts of one prompt share it."""
    frame_times: tuple[float, ...] | None = None
    """Seconds of the frames that the policy saw; or `sampling` says how they were chosen."""
    sampling: Sampling | None = None
    truncated: bool = False
    """The completion hit its length limit."""

    def __post_init__(self) -> None:
        times = self.frame_times
        if times is not None and (not times or not all(is_finite_number(t) and t >= 0 for t in times)):
            raise ValueError(f"frame_times: expected at least one number, all >= 0, got {list(times)!r:.80}")

    @property
    def id(self) -> str:
        """Of its question line."""
        return self.question.id
