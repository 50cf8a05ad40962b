"""Frames: which of those that the decoder gives are sound, when they are shown, and their pixels."""

from __future__ import annotations

import contextlib
import math
import struct
from collections import deque
from collections.abc import Iterator
from typing import Any

import av
import numpy as np
from av.video.frame import PictureType
from av.video.reformatter import VideoReformatter

from ser_fast.errors import DecodeError
from ser_fast.video.media import Limits
from ser_fast.video.pyav.container import demux, is_ts


def read_frames(container: Any, stream: Any, limits: Limits) -> Iterator[tuple[Any, bool]]:
    """(frame with a time, whether it is sound) in order of presentation; (None, False) for a packet that cannot be decoded.

    Decoders go on after an error with whatever picture they have. So from a damaged packet or frame to the next key frame,
    nothing is sound.
    """
    broken: list[float] = []  # places in the order of decoding, since the last key frame shown
    held: deque[Any] = deque()
    # The decoder for H.264 gives out nothing before its picture is whole, with or without a key frame; others begin with grey.
    has_begun = stream.codec_context.name == "h264"
    pts, pace = None, 1
    for order, packet in enumerate(_packets(container, stream)):
        frames: list[Any] = []
        if packet is not None:
            packet.opaque = (order, packet.is_keyframe)
            if packet.is_corrupt:
                # In mpegts the mark is for lost packets behind this frame or the next, which the decoder can judge.
                broken.append(order + 1.5 if is_ts(stream) else order)
        try:
            frames = stream.decode(packet)
        except av.error.FFmpegError:
            broken.append(order)
            yield None, False
        held.extend(frames)
        broken.extend(_place(frame, order) for frame in frames if frame.is_corrupt)
        # A frame that is shown early and refers to one that is shown late has to wait for what is known of that.
        while len(held) > (0 if packet is None else stream.codec_context.reorder_depth):
            frame = held.popleft()
            place = _place(frame, order)
            if is_key(frame):
                has_begun = True
                broken = [other for other in broken if other >= place]
            is_sound = has_begun and all(other > place for other in broken)
            is_sound = is_sound and frame.height * frame.width <= limits.max_pixels
            if frame.pts is None:
                # A single thread gives out a frame at the decoding time that is its presentation time. What comes out at the
                # end goes on at the same pace, if nothing is missing there.
                frame.pts = frame.dts if frame.dts is not None else None if pts is None else pts + pace
                is_sound = is_sound and not (frame.dts is None and broken)
            if frame.pts is None:
                continue
            pts, pace = frame.pts, frame.pts - pts if pts is not None else pace
            yield frame, is_sound


def _packets(container: Any, stream: Any) -> Iterator[Any]:
    """The packets of a stream on one clock, then None, which makes the decoder give what it holds back."""
    last_dts = -math.inf
    with contextlib.suppress(av.error.FFmpegError):  # the index has the read error
        for packet in demux(container, stream):
            if is_ts(stream) and packet.dts is not None:
                if packet.dts < last_dts:
                    break
                last_dts = packet.dts
            if packet.size:
                yield packet
    yield None


def _place(frame: Any, latest: int) -> int:
    """Place in the order of decoding of the packet that a frame comes from."""
    return frame.opaque[0] if frame.opaque is not None else latest


def is_key(frame: Any) -> bool:
    """Whether decoding can begin at a frame. Packets may claim it falsely; some decoders do not say."""
    claimed = frame.opaque is not None and frame.opaque[1]
    return frame.key_frame or (claimed and frame.pict_type in (PictureType.NONE, PictureType.I))


def to_image(path: str, frame: Any, frame_hw: tuple[int, int] | None, reformatter: VideoReformatter) -> np.ndarray:
    """uint8[H,W,3], upright; scaled to frame_hw where the stream changes its size on the way."""
    transposed, *flips = _orientation(path, frame)
    height, width = frame_hw or (None, None)
    if transposed:
        height, width = width, height
    image = reformatter.reformat(frame, format="rgb24", height=height, width=width, threads=1).to_ndarray()
    if transposed:
        image = image.transpose(1, 0, 2)
    return np.ascontiguousarray(image[tuple(slice(None, None, -1 if flip else None) for flip in flips)])


def _orientation(path: str, frame: Any) -> tuple[bool, bool, bool]:
    """What the display matrix asks for: (transpose, then turn rows upside down, mirror columns)."""
    matrix = frame.side_data.get("DISPLAYMATRIX")
    if matrix is None:
        return False, False, False
    a, b, _, c, d, *_ = struct.unpack("<9i", bytes(matrix)[:36])
    if not (a or b or c or d):  # written by some devices for "none"
        return False, False, False
    if b == c == 0 and a and d:
        return False, d < 0, a < 0
    if a == d == 0 and b and c:
        return True, b < 0, c < 0
    raise DecodeError(
        path, "open", f"a display matrix of {a / 65536:.3f} {b / 65536:.3f} {c / 65536:.3f} {d / 65536:.3f} is no quarter turn"
    )
