"""Questions -> the frames that a policy sees of their media."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from ser_fast.types import Clip, Question
from ser_fast.video import load_clip, load_image


class Frames:
    """Frames of videos at a rate, up to a number; the last `keep` clips stay decoded."""

    def __init__(self, videos: str | os.PathLike[str], *, fps: float, max_frames: int, keep: int) -> None:
        self._videos, self._fps, self._max_frames = Path(videos), fps, max_frames
        self._load = functools.lru_cache(keep)(self._decode)

    def of(self, question: Question) -> Clip:
        """Raises DecodeError."""
        return self._load(question.media, question.image is not None, question.start, question.end)

    def _decode(self, media: str, is_image: bool, start: float | None, end: float | None) -> Clip:
        path = self._videos / media
        if is_image:
            return load_image(path)
        return load_clip(path, fps=self._fps, max_frames=self._max_frames, start=start, end=end)
