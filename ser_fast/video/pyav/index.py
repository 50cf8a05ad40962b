"""The first pass: when each frame of a file is shown, and what the file promises and does not have."""

from __future__ import annotations

import math
import operator
import os
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av
import numpy as np
from av.video.reformatter import VideoReformatter

from ser_fast.errors import DecodeError, RefusedMedia
from ser_fast.video.media import Limits, cut_off
from ser_fast.video.pyav.container import avi_slots, demux, is_ts, open_container, reason_of, too_long
from ser_fast.video.pyav.frames import read_frames, to_image


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
    is_cut: bool
    """The file is cut off and does not say how long it was: duration is what is left."""
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
    """Reads when each frame is shown. Decodes no more than the first, unless the packets do not say it.

    Raises:
        DecodeError: the file cannot be read or shows no frame; names file, position and reason.
        RefusedMedia: a playlist, a script, another container, or a file beyond the limits.
    """
    path, limits = os.fspath(path), limits or Limits()
    with open_container(path, limits) as (container, stream):
        first = _first_frame(path, container, stream, limits)
    cut = cut_off(path)
    with open_container(path, limits) as (container, stream):
        scan = _read_packets(path, container, stream, limits)
        packets, time_base, in_ts = scan.packets, stream.time_base, is_ts(stream)
        begin, late = first.pts, None
        if any(packet.pts is None for packet in packets):
            packets, late = _decode_all(path, limits)
        else:
            # The clock of a file begins with its first frame, even if that is damaged. A broadcast may begin anywhere: what
            # comes before its first key frame was cut off.
            begin = min(begin, next((p.pts for p in packets if p.is_key or not in_ts), begin))
            if begin < first.pts:
                late = f"the first {float((first.pts - begin) * time_base):.3f} s cannot be decoded"
        shown = sorted((p for p in packets if p.pts >= begin), key=operator.attrgetter("pts"))
        if not shown:
            raise DecodeError(path, "index", "no frame has a time")
        pts = np.unique([p.pts for p in shown]).astype(np.int64)
        gaps = np.diff(pts) * float(time_base)
        gap = float(np.median(gaps)) if len(gaps) else float(1 / stream.average_rate) if stream.average_rate else 0.0
        start_s = float(pts[0] * time_base)
        end_s = float(pts[-1] * time_base) + (float(shown[-1].duration * time_base) if shown[-1].duration else gap)
        slack = max(0.5, 2 * gap, 2 * float(gaps[-1]) if len(gaps) else 0.0)
        promised_s, early = _promise(container, stream, scan, start_s, end_s, slack if cut == "no" else 1e-3)
    if early is None and cut != "no":
        early = "ends early: the file is cut off"
    if promised_s - start_s > limits.max_duration_s:
        raise RefusedMedia(path, "index", too_long(promised_s - start_s, limits))
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
        is_cut=cut == "at any length" or (early is not None and promised_s <= end_s),
        damage="; ".join(note for note in (late, _damage(scan, start_s), early) if note) or None,
    )


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
    error: str | None
    corrupt_s: list[float]
    """Where packets are lost or damaged."""
    num_missing: int
    """Chunks that the index of an AVI file has and the file does not."""


def _first_frame(path: str, container: Any, stream: Any, limits: Limits) -> _FirstFrame:
    for frame, is_sound in read_frames(container, stream, limits):
        if is_sound:
            return _FirstFrame(pts=frame.pts, image=to_image(path, frame, None, VideoReformatter()))
    raise DecodeError(path, "first frame", "no frame can be decoded")


def _read_packets(path: str, container: Any, stream: Any, limits: Limits) -> _Scan:
    packets: list[_Packet] = []
    corrupt_s: list[float] = []
    num_packets = num_slots = 0
    last_s, last_dts, is_set_back, error = 0.0, -math.inf, False, None
    # VP8 puts pictures that are only referred to into packets of their own.
    has_hidden = stream.codec_context.name == "vp8"
    num_indexed = len(avi_slots(container, stream))
    try:
        for packet in demux(container, stream, *container.streams):
            stamp = packet.pts if packet.pts is not None else packet.dts
            packet_s = float(stamp * packet.time_base) if stamp is not None and packet.time_base is not None else last_s
            if packet.stream_index == stream.index:
                if is_ts(stream) and packet.dts is not None and packet.dts < last_dts:
                    is_set_back = True
                    break
                num_packets += 1
                if packet.dts is not None:
                    last_dts, num_slots = packet.dts, max(num_slots, packet.dts + 1)
                if packet.is_corrupt:
                    corrupt_s.append(packet_s)
                if packet.size and not packet.is_discard and not (has_hidden and not memoryview(packet)[0] & 0x10):
                    packets.append(_Packet(pts=packet.pts, dts=packet.dts, duration=packet.duration, is_key=packet.is_keyframe))
                if len(packets) > limits.max_frames:
                    raise RefusedMedia(path, "index", f"more than {limits.max_frames} frames")
            last_s = max(last_s, packet_s + float((packet.duration or 0) * (packet.time_base or 0)))
    except av.error.FFmpegError as read_error:
        error = reason_of(read_error)
    return _Scan(
        packets=packets,
        num_packets=num_packets,
        num_slots=num_slots,
        last_s=last_s,
        is_set_back=is_set_back,
        error=error,
        corrupt_s=corrupt_s,
        num_missing=max(0, num_indexed - num_packets),
    )


def _damage(scan: _Scan, start_s: float) -> str | None:
    if scan.is_set_back:
        return f"the clock is set back at {scan.last_s - start_s:.3f} s; what follows is left out"
    if scan.error is not None:
        return f"read error at {scan.last_s - start_s:.3f} s: {scan.error}"
    if scan.num_missing:
        return f"{scan.num_missing} frames are missing"
    if scan.corrupt_s:
        count, first_s = len(scan.corrupt_s), scan.corrupt_s[0] - start_s
        return f"packets lost or damaged in {count} place{'s' * (count > 1)}, the first near {first_s:.3f} s"
    return None


def _promise(container: Any, stream: Any, scan: _Scan, start_s: float, end_s: float, slack: float) -> tuple[float, str | None]:
    """(second at which the video should end, how the file falls short of it by more than slack)."""
    begin_s = (container.start_time or 0) / av.time_base
    declared_s = begin_s + container.duration / av.time_base if container.duration else 0.0
    seen_s = max(end_s, scan.last_s)
    if container.format.name == "avi":
        # Frames that were dropped count and have no packet, at the end they leave no trace.
        num_seen = max(scan.num_packets, scan.num_slots)
        declared_s, seen_s = (start_s + float(count * stream.time_base) for count in (stream.frames, num_seen))
    elif container.format.name == "matroska,webm":
        declared_s -= begin_s  # counts from time 0
    elif "mp4" in container.format.name and stream.duration and stream.start_time is not None:
        # Other streams may be longer. (The count of frames in the header includes those that an edit list cuts.)
        declared_s, seen_s = float((stream.start_time + stream.duration) * stream.time_base), end_s
    if declared_s > seen_s + slack:
        return declared_s, f"ends early: at {seen_s - start_s:.3f} of {declared_s - start_s:.3f} s"
    return end_s, None


def _decode_all(path: str, limits: Limits) -> tuple[list[_Packet], str | None]:
    """The slow index, for streams whose packets do not say when they are shown: decodes every frame; and what is lost.

    Only the start counts as a key frame: from elsewhere the decoder may count time in another way.
    """
    shown, lost = [], 0
    with open_container(path, limits) as (container, stream):
        for frame, _ in read_frames(container, stream, limits):
            if frame is None:
                lost += 1
            else:
                shown.append(_Packet(pts=frame.pts, dts=None, duration=None, is_key=False))
    return shown, f"{lost} frames cannot be decoded" if lost else None
