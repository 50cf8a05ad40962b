"""Media files below one folder, by the names that question and rollout files use."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from ser_fast.errors import DecodeError, InputError
from ser_fast.types import Clip, ClipInfo, Question
from ser_fast.video.clip import choose_frames, decode_clip, load_image, open_video
from ser_fast.video.media import Limits
from ser_fast.video.pyav import VideoIndex

MAX_INDICES, MAX_IMAGES = 1024, 64


class MediaFolder:
    """Opens the videos and images of questions. Files are indexed once, the last ones being remembered; frames are decoded when
    they are asked for."""

    def __init__(
        self, root: str | os.PathLike[str], *, device: torch.device | str = "cpu", limits: Limits | None = None
    ) -> None:
        """Args:
            root: the folder; names lead nowhere else.
            device: where frames go.
            limits: caps, see `load_clip`.

        Raises:
            InputError: no such folder.
        """
        self.root = Path(root)
        self.device = device
        self.limits = limits
        if not self.root.is_dir():
            raise InputError(f"root: expected a folder, got {os.fspath(root)!r}")
        self._index = functools.lru_cache(MAX_INDICES)(self._open_index)
        self._image = functools.lru_cache(MAX_IMAGES)(self._open_image)

    def info(self, question: Question) -> ClipInfo:
        """Size, duration and frame times. Raises as `load_clip`."""
        if question.image is not None:
            image = self._image(question.image)
            return ClipInfo(frame_hw=image.frame_hw, duration=0.0, times=(0.0,), damage=None)
        index = self._index(question.media)
        return ClipInfo(
            frame_hw=index.frame_hw, duration=index.duration, times=tuple(index.times.tolist()), damage=index.damage
        )

    def load(self, question: Question, times: Sequence[float]) -> tuple[Clip, list[int | None]]:
        """The frames on display at the given times, and for each time the number of its frame in the clip.

        None stands for a frame that the file promises and does not have. Raises as `load_clip`.
        """
        if question.image is not None:
            return self._image(question.image), [0] * len(times)
        index = self._index(question.media)
        clip = decode_clip(index, choose_frames(index, times=times), device=self.device, limits=self.limits)
        in_clip = {time: i for i, time in enumerate(clip.times.tolist())}
        return clip, [in_clip.get(self._shown_at(index, time)) for time in times]

    @staticmethod
    def _shown_at(index: VideoIndex, time: float) -> float | None:
        number = choose_frames(index, times=[time])
        return float(index.times[number[0]]) if number else None

    def _open_index(self, name: str) -> VideoIndex:
        return open_video(self._path(name), limits=self.limits)

    def _open_image(self, name: str) -> Clip:
        return load_image(self._path(name), device=self.device, limits=self.limits)

    def _path(self, name: str) -> Path:
        path = self.root / name
        try:
            inside = path.resolve().is_relative_to(self.root.resolve())
        except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a NUL in the name
            raise DecodeError(os.fspath(path), "open", str(error)) from error
        if not inside:
            raise DecodeError(os.fspath(path), "open", f"the name leads out of the folder {self.root}")
        return path
