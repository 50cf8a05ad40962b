"""Containers: what is opened and how, and the packets in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import av
from av.container.core import Flags

from ser_fast.errors import DecodeError, RefusedMedia
from ser_fast.video.media import OPEN_OPTIONS, Limits, check_file, is_known_container


@contextlib.contextmanager
def open_container(path: str, limits: Limits) -> Iterator[tuple[Any, Any]]:
    """(container, video stream), decoding with a single thread: frame threads may hang when a loop is left early."""
    head = check_file(path)
    try:
        container: Any = av.open(f"file:{path}", options=dict(OPEN_OPTIONS), metadata_errors="replace")
    except av.error.ArgumentError as error:
        if is_known_container(head):
            raise DecodeError(path, "open", "begins like a known container and goes on unlike it") from error
        raise RefusedMedia(path, "open", "the container is not one of those that are opened") from error
    except (av.error.FFmpegError, UnicodeError) as error:
        raise DecodeError(path, "open", reason_of(error)) from error
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
            raise RefusedMedia(path, "open", too_long(container.duration / av.time_base, limits))
        if stream.frames > limits.max_frames:
            raise RefusedMedia(path, "open", f"{stream.frames} frames, more than {limits.max_frames}")
        stream.codec_context.thread_type = "NONE"
        stream.codec_context.thread_count = 1  # libdav1d heeds nothing else
        stream.codec_context.copy_opaque = True
        # Frames may grow on the way. Decoders count lines with padding.
        stream.codec_context.options = {"max_pixels": str(limits.max_pixels + 64 * 65_536)}
        yield container, stream


def demux(container: Any, stream: Any, *streams: Any) -> Iterator[Any]:
    """Packets of the streams, by default of the one."""
    packets = container.demux(*streams or (stream,))
    slots = avi_slots(container, stream)
    while True:
        try:
            packet = next(packets)
        except (StopIteration, IndexError):  # at the end, PyAV trips over streams that turned up on the way
            return
        if packet.stream_index == stream.index and packet.pos in slots and packet.dts is not None:
            packet.pts = packet.pts if packet.pts is None else packet.pts + slots[packet.pos] - packet.dts
            packet.dts = slots[packet.pos]
        if packet.size or packet.dts is not None or packet.pts is not None:  # others mark the end
            yield packet


def avi_slots(container: Any, stream: Any) -> dict[int, int]:
    """Position of a packet -> its place in time by the index of an AVI file.

    Behind a damaged chunk, the demuxer counts on as if there had been none.
    """
    if container.format.name != "avi":
        return {}
    return {entry.pos + 8: entry.timestamp for entry in stream.index_entries}


def is_ts(stream: Any) -> bool:
    """Whether the container is mpegts, whose clocks have ways of their own."""
    return stream.container.format.name == "mpegts"


def too_long(seconds: float, limits: Limits) -> str:
    """Why a duration is refused."""
    return f"{seconds:.3f} s, more than {limits.max_duration_s:.3f} s"


def reason_of(error: Exception) -> str:
    """What an error of FFmpeg says, without the file."""
    text = getattr(error, "strerror", None) or str(error)
    return text[0].lower() + text[1:]
