"""Media files below one folder, by the names that question and rollout files use."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
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
        self,
        root: str | os.PathLike[str],
        *,
        device: torch.device | str = "cpu",
        limits: Limits | None = None,
        follow_links: bool = True,
    ) -> None:
        """Args:
            root: the folder; names lead nowhere else.
            device: where frames go.
            limits: caps, see `load_clip`.
            follow_links: links in the folder may lead out of it, as those of download caches do; not for names from strangers.

        Raises:
            InputError: no such folder.
        """
        self.root = Path(root)
        self.device = device
        self.limits = limits
        self.follow_links = follow_links
        if not self.root.is_dir():
            raise InputError(f"root: expected a folder, got {os.fspath(root)!r}")
        self._index = functools.lru_cache(MAX_INDICES)(self._open_index)
        self._image = functools.lru_cache(MAX_IMAGES)(self._open_image)

    def info(self, question: Question) -> ClipInfo:
        """Size, duration and frame times. Raises as `load_clip`."""
        if question.image is not None:
            return ClipInfo(frame_hw=self._image(question.image).frame_hw, duration=0.0, times=(0.0,))
        index = self._index(question.media)
        return ClipInfo(
            frame_hw=index.frame_hw,
            duration=index.duration,
            times=tuple(index.times.tolist()),
            damage=index.damage,
            horizon=(self.limits or Limits()).max_duration_s if index.is_cut else None,
        )

    def load(self, question: Question, times: Sequence[float]) -> tuple[Clip, list[int | None]]:
        """The frames on display at the given times, and for each time the number of its frame in the clip.

        None stands for a frame that the file promises and does not have, or that cannot be decoded. A time that float32 has
        rounded over the end of the video counts as the end. Raises as `load_clip`.
        """
        if question.image is not None:
            return self._image(question.image), [0] * len(times)
        index = self._index(question.media)
        end = index.duration
        times = [end if end < time <= np.float32(end) else time for time in times]
        numbers = [choose_frames(index, times=[time]) for time in times]  # one, or none
        wanted = sorted({number for found in numbers for number in found})
        clip = decode_clip(index, wanted, at_least_one=False, device=self.device, limits=self.limits)
        place = {time: i for i, time in enumerate(clip.times.tolist())}
        return clip, [place.get(float(index.times[found[0]])) if found else None for found in numbers]

    def _open_index(self, name: str) -> VideoIndex:
        return open_video(self.path(name), limits=self.limits)

    def _open_image(self, name: str) -> Clip:
        return load_image(self.path(name), device=self.device, limits=self.limits)

    def path(self, name: str) -> Path:
        """Where a medium lies. Raises DecodeError for a name that leads out of the folder."""
        path = self.root / name
        # By its words first; then, for names that are not trusted, by where its links lead.
        inside = Path(os.path.abspath(path)).is_relative_to(os.path.abspath(self.root))
        if inside and not self.follow_links:
            try:
                inside = path.resolve().is_relative_to(self.root.resolve())
            except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a NUL in the name
                raise DecodeError(os.fspath(path), "open", str(error)) from error
        if not inside:
            raise DecodeError(os.fspath(path), "open", f"the name leads out of the folder {self.root}")
        return path
