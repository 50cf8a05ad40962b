"""Questions -> the frames that a policy sees of their media."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ser_fast.errors import DecodeError, InputError
from ser_fast.types import Clip, Footage, Question
from ser_fast.video import MediaFolder, load_clip, load_image

KEEP_BYTES = 2 << 30


class Frames:
    """Frames of videos at a rate, up to a number. Those of the last questions stay decoded, up to some bytes."""

    def __init__(self, videos: str | os.PathLike[str], *, fps: float, max_frames: int, keep_bytes: int = KEEP_BYTES) -> None:
        """Raises InputError: no such folder."""
        self._media, self._fps, self._max_frames, self._keep_bytes = MediaFolder(videos), fps, max_frames, keep_bytes
        self._kept: dict[Footage, Clip] = {}
        """The last one used comes last."""
        self._num_bytes = 0

    def of(self, question: Question) -> Clip:
        """Raises DecodeError, and InputError for a window that does not fit the video."""
        clip = self._kept.pop(question.footage, None)
        if clip is None:
            clip = self._decode(question)
            self._num_bytes += clip.frames.nbytes
        self._kept[question.footage] = clip
        while self._num_bytes > self._keep_bytes:
            self._num_bytes -= self._kept.pop(next(iter(self._kept))).frames.nbytes
        return clip

    def readable(self, questions: Sequence[Question]) -> tuple[list[tuple[Question, Clip]], list[DecodeError | InputError]]:
        """The questions whose media can be read, with their frames; and why the others cannot."""
        pairs: list[tuple[Question, Clip]] = []
        errors: list[DecodeError | InputError] = []
        for question in questions:
            try:
                pairs.append((question, self.of(question)))
            except (DecodeError, InputError) as error:
                errors.append(error)
        return pairs, errors

    def _decode(self, question: Question) -> Clip:
        path = self._media.path(question.media)
        if question.image is not None:
            return load_image(path)
        try:
            return load_clip(path, fps=self._fps, max_frames=self._max_frames, start=question.start, end=question.end)
        except ValueError as error:
            raise InputError(f"{path}: {error}") from error
