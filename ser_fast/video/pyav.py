"""Reading video files with PyAV on the CPU. The only file that knows PyAV.

Two passes: one over the packets, without decoding, says when each frame is shown; a second decodes what is asked for, from the
last key frame before it. Presentation times are the file's own, whatever its offset, frame rate or frame order.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
import os
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av
import numpy as np
from av.container.core import Flags
from av.video.reformatter import VideoReformatter

from ser_fast.errors import DecodeError, RefusedMedia
from ser_fast.video.media import OPEN_OPTIONS, Limits, check_file, is_cut_off, is_known_container

NAME = "pyav-cpu"

_SEEK_FRAMES = 64
"""Opening the file once more and seeking costs about as much as decoding so many frames."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VideoIndex:
    """When each frame of a file is shown."""

    path: str
    pts: np.ndarray
    """int64[F] ascending: presentation time stamps in the file, in units of time_base."""
    key_pts: np.ndarray
    """int64[K] ascending: those of the frames at which decoding can begin; the first frame counts as one."""
    seek_pts: np.ndarray
    """int64[K]: what to seek to for them; mpegts looks for decoding times."""
    time_base: Fraction
    frame_hw: tuple[int, int]
    """After rotation."""
    end: float
    """Seconds from the first frame shown to the end of the last one that there is."""
    duration: float
    """Seconds from the first frame shown to the end of the last one that the file promises."""
    damage: str | None
    """Why frames that the file promises are not in it, or which of them suffered."""

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
    cut_off = is_cut_off(path)
    with _open(path, limits) as (container, stream):
        scan = _read_packets(path, container, stream, limits)
        packets, notes, time_base, in_ts = scan.packets, [scan.damage], stream.time_base, _is_ts(stream)
        begin = first.pts
        if any(packet.pts is None for packet in packets):
            packets, lost = _decode_all(path, limits)
            notes.append(lost)
        else:
            # The clock of a file begins with its first frame, even if that is damaged. A broadcast may begin anywhere: what
            # comes before its first key frame was cut off.
            begin = min([begin, *[p.pts for p in packets if p.is_key or not in_ts][:1]])
            if begin < first.pts:
                notes.append(f"the first {float((first.pts - begin) * time_base):.3f} s cannot be decoded")
        shown = sorted((p for p in packets if p.pts >= begin), key=operator.attrgetter("pts"))
        pts = np.unique([p.pts for p in shown]).astype(np.int64)
        gaps = np.diff(pts) * float(time_base)
        gap = float(np.median(gaps)) if len(gaps) else float(1 / stream.average_rate) if stream.average_rate else 0.0
        start_s = float(pts[0] * time_base)
        end_s = float(pts[-1] * time_base) + (float(shown[-1].duration * time_base) if shown[-1].duration else gap)
        slack = max(0.5, 2 * gap, 2 * float(gaps[-1]) if len(gaps) else 0.0)
        promised_s, early = _promise(container, stream, scan, start_s, end_s, 0.0 if cut_off else slack)
    if early is None and cut_off:
        early = "ends early: the file is cut off"
    if promised_s - start_s > limits.max_duration_s:
        raise RefusedMedia(path, "index", _too_long(promised_s - start_s, limits))
    # A second clock would lead seeks astray.
    keys = {p.pts: p.dts if in_ts and p.dts is not None else p.pts for p in shown if p.is_key and not scan.is_set_back}
    keys = {int(pts[0]): int(pts[0])} | keys
    return VideoIndex(
        path=path,
        pts=pts,
        key_pts=np.array(list(keys), dtype=np.int64),
        seek_pts=np.array(list(keys.values()), dtype=np.int64),
        time_base=time_base,
        frame_hw=first.image.shape[:2],
        end=end_s - start_s,
        duration=promised_s - start_s,
        damage="; ".join(note for note in (*notes, early) if note) or None,
    )


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
    with _open(index.path, limits) as (container, stream):
        if seek_to is not None:
            try:
                container.seek(seek_to, stream=stream)
            except av.error.FFmpegError:
                return None
        landed = seek_to is None
        for frame, is_sound in _frames(container, stream):
            if not is_sound:
                continue
            if not landed:
                if frame.pts > first:
                    break
                landed = frame.key_frame
            if landed and frame.pts in wanted and wanted[frame.pts] not in found:
                found[wanted[frame.pts]] = _to_image(index.path, frame, index.frame_hw, reformatter)
            if frame.pts >= last:
                break
    return found if landed else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Packet:
    pts: int
    dts: int | None
    duration: int | None
    is_key: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _FirstFrame:
    pts: int
    image: np.ndarray


@dataclass(frozen=True, kw_only=True, slots=True)
class _Scan:
    """What a pass over the packets finds."""

    packets: list[_Packet]
    """Of the video stream, those that are shown."""
    num_packets: int
    """Of the video stream, all."""
    num_slots: int
    """Places in the order of decoding up to the last packet, those of dropped frames included, where time stamps count them."""
    last_s: float
    """The second at which the last packet of any stream ends."""
    is_set_back: bool
    """The clock goes back somewhere; packets from there on are left out."""
    damage: str | None


@contextlib.contextmanager
def _open(path: str, limits: Limits) -> Iterator[tuple[Any, Any]]:
    """(container, video stream), decoding with a single thread: frame threads may hang when a loop is left early."""
    head = check_file(path)
    try:
        container: Any = av.open(f"file:{path}", options=dict(OPEN_OPTIONS), metadata_errors="replace")
    except av.error.ArgumentError as error:
        if is_known_container(head):
            raise DecodeError(path, "open", "begins like a known container and goes on unlike it") from error
        raise RefusedMedia(path, "open", "the container is not one of those that are opened") from error
    except (av.error.FFmpegError, UnicodeError) as error:
        raise DecodeError(path, "open", _reason(error)) from error
    with container:
        # FFmpeg would make up presentation times from the order of decoding, which is wrong for H.264 in AVI.
        container.flags &= ~Flags.gen_pts.value
        streams = [s for s in container.streams.video if not s.disposition & s.disposition.attached_pic]
        if not streams:
            raise DecodeError(path, "open", "no video stream")
        best = container.streams.best("video")  # players choose like this
        stream = best if best in streams else streams[0]
        if stream.codec_context is None:
            raise DecodeError(path, "open", "no decoder for the video stream")
        height, width = stream.codec_context.height, stream.codec_context.width
        if height * width > limits.max_pixels:
            raise RefusedMedia(path, "open", f"frames of {height} x {width} exceed {limits.max_pixels} pixels")
        if container.duration and container.duration / av.time_base > limits.max_duration_s:
            raise RefusedMedia(path, "open", _too_long(container.duration / av.time_base, limits))
        if stream.frames > limits.max_frames:
            raise RefusedMedia(path, "open", f"{stream.frames} frames, more than {limits.max_frames}")
        stream.codec_context.thread_type = "NONE"
        stream.codec_context.thread_count = 1  # libdav1d heeds nothing else
        stream.codec_context.copy_opaque = True
        # Frames may grow on the way.
        stream.codec_context.options = {"max_pixels": str(limits.max_pixels)}
        yield container, stream


def _first_frame(path: str, container: Any, stream: Any) -> _FirstFrame:
    for frame, is_sound in _frames(container, stream):
        if is_sound:
            return _FirstFrame(pts=frame.pts, image=_to_image(path, frame, None, VideoReformatter()))
    raise DecodeError(path, "first frame", "no frame can be decoded")


def _read_packets(path: str, container: Any, stream: Any, limits: Limits) -> _Scan:
    packets: list[_Packet] = []
    num_packets = num_slots = 0
    last_s, last_dts, is_set_back = 0.0, -math.inf, False
    corrupt: list[float] = []
    damage = None
    # VP8 puts pictures that are only referred to into packets of their own.
    has_hidden = stream.codec_context.name == "vp8"
    try:
        for packet in _demux(container):
            stamp = packet.pts if packet.pts is not None else packet.dts
            if stamp is not None and packet.time_base is not None:
                last_s = max(last_s, float((stamp + (packet.duration or 0)) * packet.time_base))
            if packet.stream_index != stream.index:
                continue
            num_packets += 1
            if packet.dts is not None:
                if _is_ts(stream) and packet.dts < last_dts:
                    is_set_back = True
                    break
                last_dts = packet.dts
                num_slots = max(num_slots, packet.dts + 1)
            if packet.is_corrupt:
                corrupt.append(last_s)
            if packet.size and not packet.is_discard and not (has_hidden and not memoryview(packet)[0] & 0x10):
                packets.append(_Packet(pts=packet.pts, dts=packet.dts, duration=packet.duration, is_key=packet.is_keyframe))
            if len(packets) > limits.max_frames:
                raise RefusedMedia(path, "index", f"more than {limits.max_frames} frames")
    except av.error.FFmpegError as error:
        damage = f"read error at {last_s:.3f} s: {_reason(error)}"
    if is_set_back:
        damage = f"the clock is set back at {last_s:.3f} s; what follows is left out"
    elif corrupt and damage is None:
        damage = f"packets lost or damaged in {len(corrupt)} places, the first near {corrupt[0]:.3f} s"
    return _Scan(
        packets=packets,
        num_packets=num_packets,
        num_slots=num_slots,
        last_s=last_s,
        is_set_back=is_set_back,
        damage=damage,
    )


def _promise(container: Any, stream: Any, scan: _Scan, start_s: float, end_s: float, slack: float) -> tuple[float, str | None]:
    """(second at which the video should end, how the file falls short of it)."""
    begin_s = (container.start_time or 0) / av.time_base
    declared_s = container.duration / av.time_base if container.duration else 0.0
    seen_s = max(end_s, scan.last_s)
    if container.format.name == "avi":
        # Frames that were dropped count and have no packet, at the end they leave no trace.
        num_declared, num_seen = stream.frames, max(scan.num_packets, scan.num_slots)
        declared_s, seen_s = start_s + float(num_declared * stream.time_base), start_s + float(num_seen * stream.time_base)
        if declared_s <= seen_s + slack:
            num_declared = 0
    elif "mp4" in container.format.name:
        # The count in the header includes what an edit list cuts; the index of the demuxer does not.
        num_declared, num_seen = len(stream.index_entries), scan.num_packets
        if stream.duration and stream.start_time is not None:
            declared_s, seen_s = float((stream.start_time + stream.duration) * stream.time_base), end_s
    else:
        num_declared = num_seen = 0
        if container.format.name != "matroska,webm":  # its duration counts from time 0
            declared_s += begin_s
    if num_declared > num_seen:
        return max(end_s, declared_s), f"ends early: {num_seen} of {num_declared} frames"
    if declared_s > seen_s + slack:
        return declared_s, f"ends early: at {seen_s - start_s:.3f} of {declared_s - start_s:.3f} s"
    return end_s, None


def _decode_all(path: str, limits: Limits) -> tuple[list[_Packet], str | None]:
    """The slow index, for streams whose packets do not say when they are shown: decodes every frame; and what is lost.

    Only the start counts as a key frame: from elsewhere the decoder may count time in another way.
    """
    shown, lost = [], 0
    with _open(path, limits) as (container, stream):
        for frame, _ in _frames(container, stream):
            if frame is None:
                lost += 1
            else:
                shown.append(_Packet(pts=frame.pts, dts=None, duration=None, is_key=False))
    return shown, f"{lost} frames cannot be decoded" if lost else None


def _demux(container: Any, *streams: Any) -> Iterator[Any]:
    packets = container.demux(*streams)
    while True:
        try:
            packet = next(packets)
        except (StopIteration, IndexError):  # at the end, PyAV trips over streams that turned up on the way
            return
        if packet.size or packet.dts is not None or packet.pts is not None:  # others mark the end
            yield packet


def _packets(container: Any, stream: Any) -> Iterator[Any]:
    """The packets of a stream on one clock, then None, which makes the decoder give what it holds back."""
    last_dts = -math.inf
    with contextlib.suppress(av.error.FFmpegError):  # the index has the read error
        for packet in _demux(container, stream):
            if _is_ts(stream) and packet.dts is not None:
                if packet.dts < last_dts:
                    break
                last_dts = packet.dts
            if packet.size:
                yield packet
    yield None


def _is_ts(stream: Any) -> bool:
    return stream.container.format.name == "mpegts"


def _frames(container: Any, stream: Any) -> Iterator[tuple[Any, bool]]:
    """(frame with a time, whether it is sound) in order of presentation; (None, False) for a packet that cannot be decoded.

    Decoders go on after an error with whatever picture they have. So from a damaged packet or frame to the next key frame,
    nothing is sound.
    """
    broken: list[float] = []  # places in the order of decoding, since the last key frame shown
    held: deque[Any] = deque()
    pts, pace = None, 1
    for order, packet in enumerate(_packets(container, stream)):
        frames: list[Any] = []
        if packet is not None:
            packet.opaque = (order, packet.is_keyframe)
            if packet.is_corrupt:
                # In mpegts the mark is for lost packets behind this frame or the next, which the decoder can judge.
                broken.append(order + 1.5 if _is_ts(stream) else order)
        try:
            frames = stream.decode(packet)
        except av.error.FFmpegError:
            broken.append(order)
            yield None, False
        held.extend(frames)
        broken.extend(_place(frame, order)[0] for frame in frames if frame.is_corrupt)
        # A frame that is shown early and refers to one that is shown late has to wait for what is known of that.
        while len(held) > (0 if packet is None else stream.codec_context.reorder_depth):
            frame = held.popleft()
            place, is_key = _place(frame, order)
            if is_key:
                broken = [other for other in broken if other >= place]
            if frame.pts is None:
                # Decoders with a single thread give out a frame at the decoding time that is its presentation time; what
                # comes out at the end goes on at the same pace.
                frame.pts = frame.dts if frame.dts is not None else None if pts is None else pts + pace
            if frame.pts is None:
                continue
            pts, pace = frame.pts, frame.pts - pts if pts is not None else pace
            yield frame, all(other > place for other in broken)


def _place(frame: Any, latest: int) -> tuple[int, bool]:
    """Place in the order of decoding of a frame's packet, and whether that is a key frame."""
    return frame.opaque if frame.opaque is not None else (latest, frame.key_frame)


def _to_image(path: str, frame: Any, frame_hw: tuple[int, int] | None, reformatter: VideoReformatter) -> np.ndarray:
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


def _too_long(seconds: float, limits: Limits) -> str:
    return f"{seconds:.3f} s, more than {limits.max_duration_s:.3f} s"


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return text[0].lower() + text[1:]
