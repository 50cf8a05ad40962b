"""The second pass: frames by number."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import av
import numpy as np
from av.video.reformatter import VideoReformatter

from ser_fast.errors import RefusedMedia
from ser_fast.video.media import Limits
from ser_fast.video.pyav.container import open_container
from ser_fast.video.pyav.frames import is_key, read_frames, to_image
from ser_fast.video.pyav.index import VideoIndex

_SEEK_FRAMES = 64
"""Opening the file once more and seeking costs about as much as decoding so many frames."""


def decode(index: VideoIndex, numbers: Sequence[int], limits: Limits | None = None) -> dict[int, np.ndarray]:
    """Decodes frames by number -> uint8[H,W,3] each. Frames that cannot be decoded are left out.

    Raises:
        DecodeError: the file cannot be read any more.
        RefusedMedia: the frames together exceed the limits.
    """
    limits = limits or Limits()
    height, width = index.frame_hw
    if len(numbers) * height * width * 3 > limits.max_bytes:
        raise RefusedMedia(
            index.path, "decode", f"{len(numbers)} frames of {height} x {width} are more than {limits.max_bytes} bytes"
        )
    found: dict[int, np.ndarray] = {}
    for run in _runs(index, sorted(set(numbers))):
        wanted = {int(index.pts[number]): number for number in run}
        targets = index.seek_pts[(index.key_pts <= min(wanted)) & (index.key_pts > index.pts[0])]
        # A seek may land behind its target (no index in the container) or on a frame that only calls itself a key frame:
        # the key frame before is tried next, then the start of the file.
        for seek_to in (*reversed(targets[-2:].tolist()), None):
            frames = _decode_from(index, seek_to, wanted, limits)
            if frames is not None:
                found |= frames
                break
    return found


def _runs(index: VideoIndex, numbers: list[int]) -> list[list[int]]:
    """Splits ascending numbers where seeking takes less time than decoding what lies between."""
    runs: list[list[int]] = [numbers[:1]] if numbers else []
    for before, number in itertools.pairwise(numbers):
        key = np.searchsorted(index.key_pts, index.pts[number], side="right") - 1
        if np.searchsorted(index.pts, index.key_pts[key]) - before > _SEEK_FRAMES:
            runs.append([])
        runs[-1].append(number)
    return runs


def _decode_from(
    index: VideoIndex, seek_to: int | None, wanted: dict[int, int], limits: Limits
) -> dict[int, np.ndarray] | None:
    """Decodes wanted frames (time stamp -> number); None where the seek finds no key frame before the first of them."""
    found: dict[int, np.ndarray] = {}
    first, last = min(wanted), max(wanted)
    reformatter = VideoReformatter()
    with open_container(index.path, limits) as (container, stream):
        if seek_to is not None:
            try:
                container.seek(seek_to, stream=stream)
            except av.error.FFmpegError:
                return None
        landed = seek_to is None
        for frame, is_sound in read_frames(container, stream, limits):
            if not is_sound:
                continue
            if not landed:
                if frame.pts > first:
                    break
                landed = is_key(frame)
            if landed and frame.pts in wanted and wanted[frame.pts] not in found:
                found[wanted[frame.pts]] = to_image(index.path, frame, index.frame_hw, reformatter)
            if frame.pts >= last:
                break
    return found if landed else None
