"""Reading video files with PyAV on the CPU. The only file that knows PyAV.

Two passes: one over the packets, without decoding, says when each frame is shown; a second decodes what is asked for, from the
last key frame before it. Presentation times are the file's own, whatever its offset, frame rate or frame order.
"""

from __future__ import annotations

import contextlib
import operator
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av
import numpy as np

from ser_fast.errors import DecodeError, RefusedMedia
from ser_fast.video.media import OPEN_OPTIONS, Limits, check_file, is_known_container

NAME = "pyav-cpu"


@dataclass(frozen=True, kw_only=True, slots=True)
class VideoIndex:
    """When each frame of a file is shown."""

    path: str
    pts: np.ndarray
    """int64[F] ascending: presentation time stamps in the file, in units of time_base."""
    key_pts: np.ndarray
    """int64[K] ascending: those of the frames at which decoding can begin."""
    time_base: Fraction
    frame_hw: tuple[int, int]
    """After rotation."""
    duration: float
    """Seconds from the first frame shown to the end of the last one that the file promises."""
    damage: str | None
    """Why frames that the file promises are not in it."""

    @property
    def start_s(self) -> float:
        """Presentation time in the file of the first frame shown."""
        return float(self.pts[0] * self.time_base)

    @property
    def times(self) -> np.ndarray:
        """float64[F] seconds from the first frame shown."""
        return (self.pts - self.pts[0]) * float(self.time_base)


def read_index(path: str | os.PathLike[str], limits: Limits | None = None) -> VideoIndex:
    """Reads when each frame is shown, without decoding more than the first.

    Raises:
        DecodeError: the file cannot be read or shows no frame; names file, position and reason.
        RefusedMedia: a playlist, a script, another container, or a file beyond the limits.
    """
    path, limits = os.fspath(path), limits or Limits()
    with _open(path, limits) as (container, stream):
        first = _first_frame(path, container, stream)
    with _open(path, limits) as (container, stream):
        packets, last_s, damage = _read_packets(container, stream)
        declared_s = container.duration / av.time_base if container.duration else 0.0
        begin_s = (container.start_time or 0) / av.time_base
        num_declared, rate, time_base = stream.frames, stream.average_rate, stream.time_base
    if any(packet.pts is None for packet in packets):
        packets = _decode_all(path, limits)
    shown = sorted((p for p in packets if p.pts >= first.pts), key=operator.attrgetter("pts"))
    pts = np.unique([p.pts for p in shown]).astype(np.int64)
    if len(pts) > limits.max_frames:
        raise RefusedMedia(path, "index", f"{len(pts)} frames, more than {limits.max_frames}")
    gap = float(np.median(np.diff(pts)) * time_base) if len(pts) > 1 else float(1 / rate) if rate else 0.0
    end_s = float(pts[-1] * time_base) + (float(shown[-1].duration * time_base) if shown[-1].duration else gap)
    slack = max(0.5, 2 * gap)
    if damage is None and num_declared > len(packets):
        damage = f"ends early: {len(packets)} of {num_declared} frames"
    if damage is None and begin_s + declared_s > max(last_s, end_s) + slack:
        damage = f"ends early: at {last_s - begin_s:.3f} of {declared_s:.3f} s"
    start_s = float(pts[0] * time_base)
    promised_s = max(end_s, begin_s + declared_s) if damage else end_s
    if promised_s - start_s > limits.max_duration_s:
        raise RefusedMedia(path, "index", f"{promised_s - start_s:.0f} s, more than {limits.max_duration_s:.0f} s")
    return VideoIndex(
        path=path,
        pts=pts,
        key_pts=np.unique([p.pts for p in shown if p.is_key] or [pts[0]]).astype(np.int64),
        time_base=time_base,
        frame_hw=first.image.shape[:2],
        duration=promised_s - start_s,
        damage=damage,
    )


def decode(index: VideoIndex, numbers: Sequence[int], limits: Limits | None = None) -> dict[int, np.ndarray]:
    """Decodes frames by number (ascending) -> uint8[H,W,3] each. Frames that cannot be decoded are left out.

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
    wanted = {int(index.pts[number]): number for number in numbers}
    if not wanted:
        return {}
    first, last = min(wanted), max(wanted)
    keys_before = index.key_pts[(index.key_pts <= first) & (index.key_pts > index.pts[0])]
    found: dict[int, np.ndarray] = {}
    # A seek may land behind its target (no index in the container) or on a frame that only calls itself a key frame:
    # what is then missing is decoded from the start.
    for seek_to in (*keys_before[-1:].tolist(), None):
        with _open(index.path, limits) as (container, stream):
            if seek_to is not None:
                try:
                    container.seek(seek_to, stream=stream)
                except av.error.FFmpegError:
                    continue
            for frame in _frames(container, stream):
                if frame.pts in wanted and wanted[frame.pts] not in found:
                    found[wanted[frame.pts]] = _to_image(index.path, frame, index.frame_hw)
                if frame.pts >= last:
                    break
        if len(found) == len(wanted):
            break
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class _Packet:
    pts: int
    duration: int | None
    is_key: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _FirstFrame:
    pts: int
    image: np.ndarray


@contextlib.contextmanager
def _open(path: str, limits: Limits) -> Iterator[tuple[Any, Any]]:
    """(container, video stream), decoding with a single thread: frame threads may hang when a loop is left early."""
    head = check_file(path)
    try:
        container = av.open(f"file:{path}", options=dict(OPEN_OPTIONS))
    except av.error.ArgumentError as error:
        if is_known_container(head):
            raise DecodeError(path, "open", _reason(error)) from error
        raise RefusedMedia(path, "open", "the container is not one of those that are opened") from error
    except (av.error.FFmpegError, UnicodeError) as error:
        raise DecodeError(path, "open", _reason(error)) from error
    with container:
        streams = [s for s in container.streams.video if not s.disposition & s.disposition.attached_pic]
        if not streams:
            raise DecodeError(path, "open", "no video stream")
        stream = streams[0]
        if stream.codec_context is None:
            raise DecodeError(path, "open", "no decoder for the video stream")
        height, width = stream.codec_context.height, stream.codec_context.width
        if height * width > limits.max_pixels:
            raise RefusedMedia(path, "open", f"frames of {height} x {width} exceed {limits.max_pixels} pixels")
        if container.duration and container.duration / av.time_base > limits.max_duration_s:
            raise RefusedMedia(
                path, "open", f"{container.duration / av.time_base:.0f} s, more than {limits.max_duration_s:.0f} s"
            )
        if stream.frames > limits.max_frames:
            raise RefusedMedia(path, "open", f"{stream.frames} frames, more than {limits.max_frames}")
        stream.codec_context.thread_type = "NONE"
        yield container, stream


def _first_frame(path: str, container: Any, stream: Any) -> _FirstFrame:
    for frame in _frames(container, stream):
        return _FirstFrame(pts=frame.pts, image=_to_image(path, frame, None))
    raise DecodeError(path, "first frame", "no frame can be decoded")


def _read_packets(container: Any, stream: Any) -> tuple[list[_Packet], float, str | None]:
    """The packets that are shown, the second at which the last one of any stream ends, and the read error if there was one."""
    packets: list[_Packet] = []
    last_s = 0.0
    try:
        for packet in container.demux():
            if not packet.size:
                continue
            if packet.pts is not None and packet.time_base is not None:
                last_s = max(last_s, float((packet.pts + (packet.duration or 0)) * packet.time_base))
            if packet.stream_index == stream.index and not packet.is_discard:
                packets.append(_Packet(pts=packet.pts, duration=packet.duration, is_key=packet.is_keyframe))
    except av.error.FFmpegError as error:
        return packets, last_s, f"read error at {last_s:.3f} s: {_reason(error)}"
    return packets, last_s, None


def _decode_all(path: str, limits: Limits) -> list[_Packet]:
    """The slow index, for streams whose packets do not say when they are shown (raw streams): decodes every frame."""
    with _open(path, limits) as (container, stream):
        return [_Packet(pts=f.pts, duration=None, is_key=f.key_frame) for f in _frames(container, stream)]


def _frames(container: Any, stream: Any) -> Iterator[Any]:
    """Sound frames with a time, in order of presentation. What cannot be decoded is skipped; its frames are then missing."""
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets)
        except StopIteration:
            return
        except av.error.FFmpegError:
            return  # the index has the read error
        with contextlib.suppress(av.error.FFmpegError):
            for frame in packet.decode():
                if frame.pts is not None and not frame.is_corrupt:
                    yield frame


def _to_image(path: str, frame: Any, frame_hw: tuple[int, int] | None) -> np.ndarray:
    """uint8[H,W,3], upright; scaled to frame_hw where the stream changes its size on the way."""
    image = _upright(path, frame, frame.to_ndarray(format="rgb24"))
    if frame_hw is not None and image.shape[:2] != frame_hw:
        turned = image.shape[:2] != (frame.height, frame.width)
        height, width = frame_hw[::-1] if turned else frame_hw
        image = _upright(path, frame, frame.to_ndarray(format="rgb24", height=height, width=width))
    return image


def _upright(path: str, frame: Any, image: np.ndarray) -> np.ndarray:
    """Applies the display matrix: quarter turns and reflections."""
    matrix = frame.side_data.get("DISPLAYMATRIX")
    if matrix is None:
        return image
    a, b, _, c, d, *_ = (value / 65536 for value in struct.unpack("<9i", bytes(matrix)[:36]))
    if b == c == 0 and abs(a) == abs(d) == 1:
        flips = d < 0, a < 0
    elif a == d == 0 and abs(b) == abs(c) == 1:
        image = image.transpose(1, 0, 2)
        flips = b < 0, c < 0
    else:
        raise DecodeError(path, "open", f"a display matrix of {a:.3f} {b:.3f} {c:.3f} {d:.3f} is no quarter turn")
    image = image[::-1] if flips[0] else image
    return np.ascontiguousarray(image[:, ::-1] if flips[1] else image)


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return text[0].lower() + text[1:]
