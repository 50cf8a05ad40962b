"""Makers of small clips whose frames carry their number, with what a reader should find in them.

All are made by PyAV, some patched by hand afterwards. `CLIPS` are sound, `DAMAGED` promise more than they hold.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np

HW = (64, 96)
MS = Fraction(1, 1000)
TICK = Fraction(1, 90_000)

ROWS, COLUMNS = 3, 4
MARKS = {(0, 0): (255, 255, 255), (0, 3): (220, 0, 0), (2, 0): (0, 0, 220), (2, 3): (0, 160, 0)}
"""White, red, blue and green corners: tell an upright frame from a turned or mirrored one, and red from blue."""
BITS = [cell for cell in itertools.product(range(ROWS), range(COLUMNS)) if cell not in MARKS]


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """What a reader should find in a clip."""

    path: Path
    numbers: tuple[int, ...]
    """Burnt into the frames that are shown, in the order of presentation."""
    times: tuple[Fraction, ...]
    """Seconds from the first frame shown."""
    start: Fraction | None = Fraction(0)
    """Presentation time of the first frame in the file; None where the container leaves it open."""
    duration: Fraction | None = None
    """Seconds to the end of the last frame; None where the container leaves it open."""
    hw: tuple[int, int] = HW
    damage: str | None = None
    """Pattern of what a reader should say is wrong."""

    @property
    def number_at(self) -> dict[float, int]:
        """Seconds, rounded to microseconds -> number."""
        return {round(float(time), 6): number for time, number in zip(self.times, self.numbers, strict=True)}


Maker = Callable[[Path], Expected]


def draw(number: int, hw: tuple[int, int] = HW) -> np.ndarray:
    """uint8[H,W,3]: a grid of blocks, coloured marks in the corners, the bits of the number in the others."""
    image = np.zeros((*hw, 3), np.uint8)
    for cell, colour in MARKS.items():
        image[_block(cell, hw)] = colour
    for bit, cell in enumerate(BITS):
        image[_block(cell, hw)] = 255 * (number >> bit & 1)
    return image


def read_number(image: Any) -> int:
    """The number burnt into an upright frame; AssertionError where the frame is turned, mirrored or not clear."""
    pixels = np.asarray(image).astype(np.float64)
    means = {cell: _middle(pixels, cell) for cell in itertools.product(range(ROWS), range(COLUMNS))}
    for cell, colour in MARKS.items():
        assert np.abs(means[cell] - colour).max() < 60, f"mark {cell}: expected {colour}, got {means[cell].round()}"
    levels = [means[cell].mean() for cell in BITS]
    assert all(not 70 < level < 185 for level in levels), f"blocks that are neither black nor white: {np.round(levels)}"
    return sum(int(level > 128) << bit for bit, level in enumerate(levels))


def read_numbers(frames: Any) -> list[int]:
    """The numbers burnt into upright frames."""
    return [read_number(frame) for frame in frames]


def _edges(parts: int, size: int) -> list[int]:
    return [round(i * size / parts) for i in range(parts + 1)]


def _block(cell: tuple[int, int], hw: tuple[int, int]) -> tuple[slice, slice]:
    rows, columns = _edges(ROWS, hw[0]), _edges(COLUMNS, hw[1])
    return slice(rows[cell[0]], rows[cell[0] + 1]), slice(columns[cell[1]], columns[cell[1] + 1])


def _middle(pixels: np.ndarray, cell: tuple[int, int]) -> np.ndarray:
    """Mean colour of the middle of a block, away from what coding does to its edges."""
    rows, columns = _block(cell, (pixels.shape[0], pixels.shape[1]))
    dy, dx = (rows.stop - rows.start) // 4, (columns.stop - columns.start) // 4
    return pixels[rows.start + dy : rows.stop - dy, columns.start + dx : columns.stop - dx].mean((0, 1))


X264 = {"preset": "veryfast", "qp": "20", "aq-mode": "0", "mbtree": "0", "g": "12", "bf": "0", "sc_threshold": "0"}
"""Adaptive quantisation is what makes x264 write other bytes from run to run."""
B_FRAMES = X264 | {"bf": "3", "b_strategy": "0"}
X265 = "log-level=none:pools=none:frame-threads=1:keyint=12:min-keyint=12:open-gop=1:bframes=3:b-adapt=0:scenecut=0"
CODEC_OPTIONS = {
    "libx264": X264,
    "libx265": {"preset": "ultrafast", "x265-params": X265},
    "libvpx-vp9": {"deadline": "realtime", "cpu-used": "8", "g": "12"},
    "libvpx": {"deadline": "realtime", "cpu-used": "8", "g": "1"},
    "libsvtav1": {"preset": "12", "g": "12", "svtav1-params": "lp=1"},
    "mpeg4": {"g": "12", "bf": "0"},
    "mpeg2video": {"g": "12", "bf": "2"},
}


def encode(
    path: Path,
    pts: Sequence[int],
    time_base: Fraction,
    *,
    codec: str = "libx264",
    options: dict[str, str] | None = None,
    pixel_format: str = "yuv420p",
    hw: tuple[int, int] = HW,
    muxer: dict[str, str] | None = None,
    format: str | None = None,
    first_number: int = 0,
    change: Callable[[np.ndarray], np.ndarray] = lambda image: image,
    setup: Callable[[Any, Any], Sequence[Any]] = lambda container, stream: (),
    audio_s: float = 0.0,
    last_duration: int | None = None,
) -> None:
    """Encodes numbered frames with the given presentation times, and silence if audio_s is not 0.

    Args:
        first_number: of the first frame.
        change: what is done to each image.
        setup: called with container and video stream before anything is written; returns packets to write first.
        last_duration: of the packet that is shown last.
    """
    average = Fraction(len(pts) - 1, max(1, pts[-1] - pts[0])) / time_base if len(pts) > 1 else Fraction(30)
    with av.open(str(path), "w", format=format, options=muxer or {}) as container:
        video: Any = container.add_stream(
            codec,
            rate=average.limit_denominator(1001),
            options=CODEC_OPTIONS.get(codec, {}) if options is None else options,
        )
        video.height, video.width = change(draw(0, hw)).shape[:2]
        video.pix_fmt = pixel_format
        video.codec_context.time_base = time_base
        video.codec_context.thread_count = 1
        audio: Any = container.add_stream("aac", rate=48_000) if audio_s else None
        packets = list(setup(container, video))
        for number, time in enumerate(pts, first_number):
            frame = av.VideoFrame.from_ndarray(change(draw(number, hw)), format="rgb24")
            frame.pts, frame.time_base = time, time_base
            packets += video.encode(frame)
        packets += video.encode()
        for packet in packets:
            if last_duration is not None and packet.pts == pts[-1]:
                packet.duration = last_duration
        packets += _silence(audio, pts[0] * time_base, audio_s)
        for packet in packets:
            container.mux(packet)


def _silence(stream: Any, begin: Fraction, seconds: float) -> list[Any]:
    packets: list[Any] = []
    for i in range(int(seconds * 48_000 / 1024)):
        frame = av.AudioFrame.from_ndarray(np.zeros((2, 1024), np.float32), format="fltp", layout="stereo")
        frame.sample_rate, frame.pts = 48_000, round(48_000 * begin) + i * 1024
        packets += stream.encode(frame)
    return packets + stream.encode() if stream is not None else packets


def make(
    path: Path,
    *,
    num_frames: int = 30,
    rate: Fraction = Fraction(30),
    time_base: Fraction | None = None,
    first: Fraction = Fraction(0),
    start: Fraction | None = Fraction(0),
    **settings: Any,
) -> Expected:
    """A clip at a steady rate, with the first frame at `first`.

    Args:
        path: its ending decides container and time base if no time base is given.
        start: see `Expected`.
        settings: see `encode`.
    """
    time_base = time_base or {".mkv": MS, ".webm": MS, ".avi": 1 / rate, ".mjpeg": 1 / rate}.get(path.suffix, TICK)
    if settings.get("codec") in ("mpeg4", "mpeg2video"):
        time_base = max(time_base, 1 / rate)  # what they can write
    pts = [round((first + i / rate) / time_base) for i in range(num_frames)]
    encode(path, pts, time_base, **settings)
    tick = MS if path.suffix in (".mkv", ".webm") else time_base
    return Expected(
        path=path,
        numbers=tuple(range(num_frames)),
        times=tuple(round((time - pts[0]) * time_base / tick) * tick for time in pts),
        start=start,
        duration=None if path.suffix in (".mkv", ".webm") else num_frames / rate,
        hw=settings.get("hw", HW),
    )


def make_three_rates(path: Path, **settings: Any) -> Expected:
    """Ten frames each at 30, 10 and 4/3 frames a second."""
    time_base = MS if path.suffix in (".mkv", ".webm") else TICK
    steps = [Fraction(1, 30)] * 10 + [Fraction(1, 10)] * 10 + [Fraction(3, 4)] * 9
    pts = [round(time / time_base) for time in itertools.accumulate(steps, initial=Fraction(0))]
    encode(path, pts, time_base, **settings)
    start = None if path.suffix == ".ts" else Fraction(0)
    return Expected(path=path, numbers=tuple(range(30)), times=tuple(time * time_base for time in pts), start=start)


def make_cut(path: Path, *, first: int, stop: int = 30, **settings: Any) -> Expected:
    """An mp4 file whose edit list shows frames first to stop - 1 of 30."""
    whole = make(path, **settings)
    data = bytearray(path.read_bytes())
    at = data.index(b"elst") + 12
    begin = struct.unpack_from(">i", data, at + 4)[0]
    # Its duration counts in ms, its begin in ticks.
    struct.pack_into(">Ii", data, at, (stop - first) * 1000 // 30, begin + first * 3000)
    path.write_bytes(data)
    return replace(
        whole,
        numbers=tuple(range(first, stop)),
        times=whole.times[: stop - first],
        duration=Fraction(stop - first, 30),
    )


def make_turned(path: Path, *, degrees: int, mirror: bool = False) -> Expected:
    """Coded lying down; the display matrix sets it upright."""

    def lay(image: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.rot90(image[:, ::-1] if mirror else image, -degrees // 90))

    def setup(container: Any, video: Any) -> Sequence[Any]:
        video.set_display_rotation(degrees, hflip=mirror)
        return ()

    return make(path, num_frames=20, change=lay, setup=setup)


def make_turned_sizes(path: Path) -> Expected:
    """Motion JPEG of three sizes, one of them square, in one stream that is turned by its display matrix."""
    sizes = [HW, (96, 96), (128, 64)]
    packets = []
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("mjpeg", rate=Fraction(25))
        stream.height, stream.width, stream.pix_fmt = HW[1], HW[0], "yuvj420p"
        stream.codec_context.time_base = MS
        stream.set_display_rotation(90)
        for number in range(15):
            height, width = sizes[number // 5]
            coder: Any = av.CodecContext.create("mjpeg", "w")
            coder.height, coder.width, coder.pix_fmt, coder.time_base = width, height, "yuvj420p", MS
            lying = np.ascontiguousarray(np.rot90(draw(number, (height, width)), -1))
            frame = av.VideoFrame.from_ndarray(lying, format="rgb24")
            frame.pts, frame.time_base = 40 * number, MS
            for packet in coder.encode(frame) + coder.encode():
                packet.stream, packet.time_base = stream, MS
                packets.append(packet)
        container.start_encoding()
        for packet in packets:
            container.mux(packet)
    return Expected(path=path, numbers=tuple(range(15)), times=tuple(40 * n * MS for n in range(15)))


def make_hidden_vp8(path: Path) -> Expected:
    """Packets between the frames hold pictures that are not shown, as VP8 has them to refer to."""
    whole = make(path, codec="libvpx")
    with av.open(str(path)) as source:
        stream = source.streams.video[0]
        packets = [(packet.pts, bytes(packet)) for packet in source.demux(stream) if packet.size]
    with av.open(str(path), "w") as container:
        copy: Any = container.add_stream("libvpx", rate=30)
        copy.height, copy.width, copy.pix_fmt = *HW, "yuv420p"
        copy.codec_context.time_base = MS
        container.start_encoding()
        for pts, data in packets:
            for time, content in ((pts, data), (pts + 1, bytes([data[0] & ~0x10]) + data[1:])):
                packet = av.Packet(content)
                packet.pts = packet.dts = time
                packet.stream, packet.time_base, packet.is_keyframe = copy, MS, True
                container.mux(packet)
    return whole


def make_joined(path: Path, *, parts: Sequence[dict[str, Any]] = ({}, {})) -> Expected:
    """Transport streams of 20 frames one behind the other: times go on, packet counters do not, as if packets were lost.

    Args:
        path: of the file.
        parts: what is special in each, see `encode`.
    """
    data = b""
    for i, settings in enumerate(parts):
        pts = [(10 + 20 * i + j) * 3000 for j in range(20)]
        encode(path, pts, TICK, first_number=20 * i, **settings)
        data += path.read_bytes()
    path.write_bytes(data)
    num_frames = 20 * len(parts)
    return Expected(
        path=path,
        numbers=tuple(range(num_frames)),
        times=tuple(Fraction(i, 30) for i in range(num_frames)),
        start=Fraction(1, 3),
        damage=f"packets lost or damaged in {len(parts) - 1} places?, the first near 0.600 s",
    )


def make_growing_mjpeg(path: Path) -> Expected:
    """Raw motion JPEG whose frames change size."""
    data = b""
    for part, hw in enumerate((HW, (96, 64), (128, 128))):
        encode(path, range(5), Fraction(1, 25), codec="mjpeg", pixel_format="yuvj420p", hw=hw, first_number=5 * part)
        data += path.read_bytes()
    path.write_bytes(data)
    return Expected(
        path=path, numbers=tuple(range(15)), times=tuple(Fraction(i, 25) for i in range(15)), duration=Fraction(15, 25)
    )


def make_broadcast_cut(path: Path, **settings: Any) -> Expected:
    """A transport stream from the middle of a group of pictures on: nothing before the next key frame can be shown."""
    whole = make(path, **settings)
    with av.open(str(path)) as container:
        positions = [packet.pos for packet in container.demux(container.streams.video[0]) if packet.size]
    data = path.read_bytes()
    path.write_bytes(data[: 3 * 188] + data[positions[5] :])
    return replace(whole, numbers=tuple(range(12, 30)), times=whole.times[:18], start=None, duration=Fraction(18, 30))


def make_covered(path: Path) -> Expected:
    """A cover picture beside the video: in mp4 a stream, in Matroska an attachment."""

    def setup(container: Any, video: Any) -> Sequence[Any]:
        coder: Any = av.CodecContext.create("mjpeg", "w")
        if path.suffix == ".mp4":
            coder = container.add_stream("mjpeg", rate=1)
            coder.disposition = av.stream.Disposition.attached_pic
        coder.height, coder.width, coder.pix_fmt = 200, 300, "yuvj420p"
        if path.suffix == ".mkv":
            coder.time_base = MS
        packets = _encode_cover(coder)
        if path.suffix == ".mp4":
            return packets
        container.add_attachment("cover.jpg", "image/jpeg", bytes(packets[0]))
        return ()

    return make(path, setup=setup)


def _encode_cover(coder: Any) -> list[Any]:
    return coder.encode(av.VideoFrame.from_ndarray(draw(99, (200, 300)), format="rgb24")) + coder.encode()


def make_second_video(path: Path) -> Expected:
    """The first video stream is a single picture without any mark, as some taggers write covers; the second is the film."""
    whole = make(path)
    with av.open(str(path)) as source:
        stream = source.streams.video[0]
        packets = [packet for packet in source.demux(stream) if packet.size]
        with av.open(str(path) + ".mkv", "w") as container:
            cover: Any = container.add_stream("mjpeg", rate=1)
            cover.height, cover.width, cover.pix_fmt = 200, 300, "yuvj420p"
            film = container.add_stream_from_template(stream)
            for packet in _encode_cover(cover):
                container.mux(packet)
            for packet in packets:
                packet.stream = film
                container.mux(packet)
    Path(str(path) + ".mkv").replace(path)
    return whole


def make_latin1(path: Path, **settings: Any) -> Expected:
    """Its title is not UTF-8."""

    def setup(container: Any, video: Any) -> Sequence[Any]:
        container.metadata["title"] = "Caf*"
        return ()

    whole = make(path, setup=setup, **settings)
    data = path.read_bytes()
    assert b"Caf*" in data
    path.write_bytes(data.replace(b"Caf*", b"Caf\xe9"))
    return whole


def make_patched(path: Path, *, old: bytes, new: bytes, **settings: Any) -> Expected:
    """A clip with some bytes replaced everywhere."""
    whole = make(path, **settings)
    data = path.read_bytes()
    assert old in data and len(old) == len(new)
    path.write_bytes(data.replace(old, new))
    return whole


def make_dropped_avi(path: Path, **settings: Any) -> Expected:
    """An AVI file in which frames were dropped: it counts them and has empty chunks for them."""
    pts = (0, 1, 2, 5, 6, 10, 11, 12)
    encode(path, pts, Fraction(1, 30), **settings)
    return Expected(
        path=path,
        numbers=tuple(range(8)),
        times=tuple(Fraction(time, 30) for time in pts),
        start=None,
        duration=Fraction(13, 30),
    )


def make_long_last_frame(path: Path) -> Expected:
    """The last frame stands for three seconds, which only the header of the file knows."""
    return make(path, last_duration=3000)


CLIPS: dict[str, tuple[str, Maker]] = {
    "30 fps": ("mp4", make),
    "29.97 fps": ("mp4", partial(make, rate=Fraction(30_000, 1001))),
    "three rates": ("mp4", partial(make_three_rates, options=B_FRAMES)),
    "three rates mkv": ("mkv", partial(make_three_rates, options=B_FRAMES)),
    "three rates ts": ("ts", partial(make_three_rates, options=B_FRAMES)),
    "B frames": ("mp4", partial(make, options=B_FRAMES)),
    "B frames mov": ("mov", partial(make, options=B_FRAMES)),
    "starts at 10 s": ("mp4", partial(make, first=Fraction(10), start=Fraction(10), options=B_FRAMES)),
    "starts at 10 s mkv": ("mkv", partial(make, first=Fraction(10), start=Fraction(10), options=B_FRAMES)),
    "no edit list": ("mp4", partial(make, options=B_FRAMES, muxer={"use_editlist": "0"}, start=Fraction(1, 15))),
    "negative composition offsets": (
        "mp4",
        partial(make, options=B_FRAMES, muxer={"movflags": "negative_cts_offsets"}),
    ),
    "edit list cuts 5": ("mp4", partial(make_cut, first=5, options=B_FRAMES)),
    "edit list cuts 5, no B frames": ("mp4", partial(make_cut, first=5)),
    "edit list cuts a group": ("mp4", partial(make_cut, first=12, options=B_FRAMES)),
    "edit list cuts a group and 3": ("mp4", partial(make_cut, first=15, options=B_FRAMES)),
    "edit list cuts the end": ("mp4", partial(make_cut, first=0, stop=15, options=B_FRAMES)),
    "turned 90": ("mp4", partial(make_turned, degrees=90)),
    "turned 180": ("mp4", partial(make_turned, degrees=180)),
    "turned 270": ("mov", partial(make_turned, degrees=270)),
    "turned 90 mkv": ("mkv", partial(make_turned, degrees=90)),
    "mirrored": ("mp4", partial(make_turned, degrees=0, mirror=True)),
    "turned 90 and mirrored": ("mp4", partial(make_turned, degrees=90, mirror=True)),
    "turned 180 and mirrored": ("mp4", partial(make_turned, degrees=180, mirror=True)),
    "turned, changing size": ("mkv", make_turned_sizes),
    "odd size, 4:4:4": ("mp4", partial(make, hw=(63, 97), pixel_format="yuv444p")),
    "odd size, mpeg4": ("mp4", partial(make, hw=(63, 97), codec="mpeg4")),
    "odd size, vp9": ("webm", partial(make, hw=(63, 97), codec="libvpx-vp9")),
    "odd size, mjpeg": ("avi", partial(make, hw=(63, 97), codec="mjpeg", pixel_format="yuvj420p")),
    "one long group": ("mp4", partial(make, num_frames=60, options=B_FRAMES | {"g": "250"})),
    "intra only": ("mp4", partial(make, options=X264 | {"g": "1"})),
    "intra refresh": ("mp4", partial(make, options=X264 | {"x264-params": "intra-refresh=1"})),
    "all frames call themselves key frames": (
        "mp4",
        partial(make_patched, old=b"stss", new=b"free", codec="mpeg4"),
    ),
    "mkv": ("mkv", partial(make, options=B_FRAMES)),
    "mkv without cues": ("mkv", partial(make_patched, old=b"\x1c\x53\xbb\x6b", new=b"\x1c\x53\xbb\x6c", options=B_FRAMES)),
    "mkv without duration": ("mkv", partial(make, options=B_FRAMES, muxer={"live": "1"})),
    "mkv with a long last frame": ("mkv", make_long_last_frame),
    "mkv, mpeg4 with B frames": ("mkv", partial(make, codec="mpeg4", options={"g": "12", "bf": "2"})),
    "webm vp9": ("webm", partial(make, codec="libvpx-vp9")),
    "webm vp8 with hidden pictures": ("webm", make_hidden_vp8),
    "mkv av1": ("mkv", partial(make, codec="libsvtav1")),
    "avi mpeg4": ("avi", partial(make, codec="mpeg4")),
    "avi mpeg4 with B frames": ("avi", partial(make, codec="mpeg4", options={"g": "12", "bf": "2"}, start=None)),
    "avi h264": ("avi", partial(make, start=None)),
    "avi h264 with B frames": ("avi", partial(make, options=B_FRAMES, start=None)),
    "avi with dropped frames": ("avi", partial(make_dropped_avi, codec="mpeg4")),
    "avi h264 with dropped frames": ("avi", make_dropped_avi),
    "ts": ("ts", partial(make, options=B_FRAMES, start=None)),
    "ts from a late time": ("ts", partial(make, first=Fraction(80_000), start=Fraction(80_000), options=B_FRAMES)),
    "ts whose clock wraps": ("ts", partial(make, num_frames=60, first=2**33 * TICK - 1, start=None, options=B_FRAMES)),
    "ts mpeg2": ("ts", partial(make, codec="mpeg2video", start=None)),
    "ts mpeg4": ("ts", partial(make, codec="mpeg4", start=None)),
    "ts joined": ("ts", make_joined),
    "ts joined, changing size": ("ts", partial(make_joined, parts=({}, {"hw": (96, 64)}, {"hw": (128, 128)}))),
    "ts joined, audio in the second part": ("ts", partial(make_joined, parts=({}, {"audio_s": 1.0}))),
    "ts from within a group": ("ts", partial(make_broadcast_cut, options=B_FRAMES)),
    "ts from within a group, mpeg2": ("ts", partial(make_broadcast_cut, codec="mpeg2video")),
    "ts from within a group, mpeg4": ("ts", partial(make_broadcast_cut, codec="mpeg4")),
    "ts from within a group, open groups": ("ts", partial(make_broadcast_cut, codec="libx265")),
    "mjpeg": ("mjpeg", partial(make, codec="mjpeg", rate=Fraction(25), pixel_format="yuvj420p")),
    "mjpeg, changing size": ("mjpeg", make_growing_mjpeg),
    "hevc with open groups": ("mp4", partial(make, num_frames=40, codec="libx265")),
    "hevc with open groups ts": ("ts", partial(make, num_frames=40, codec="libx265", start=None)),
    "h264 with open groups": (
        "mp4",
        partial(make, num_frames=40, options=B_FRAMES | {"x264-params": "open-gop=1"}),
    ),
    "h264 with open groups ts": (
        "ts",
        partial(make, num_frames=40, options=B_FRAMES | {"x264-params": "open-gop=1"}, start=None),
    ),
    "fragmented": (
        "mp4",
        partial(make, options=B_FRAMES, muxer={"movflags": "frag_keyframe+empty_moov+default_base_moof"}, start=None),
    ),
    "fragmented with an index": (
        "mp4",
        partial(make, options=B_FRAMES, muxer={"movflags": "dash+global_sidx+frag_keyframe+empty_moov"}, start=None),
    ),
    "longer audio": ("mp4", partial(make, options=B_FRAMES, audio_s=3.0)),
    "longer audio mkv": ("mkv", partial(make, options=B_FRAMES, audio_s=3.0)),
    "longer audio ts": ("ts", partial(make, options=B_FRAMES, audio_s=3.0, start=None)),
    "cover": ("mp4", make_covered),
    "cover mkv": ("mkv", make_covered),
    "picture in the first stream": ("mkv", make_second_video),
    "10 bits": ("mp4", partial(make, pixel_format="yuv420p10le")),
    "4:4:4": ("mp4", partial(make, pixel_format="yuv444p")),
    "full range": ("mp4", partial(make, pixel_format="yuvj420p")),
    "title in latin-1": ("mp4", make_latin1),
    "title in latin-1 avi": ("avi", partial(make_latin1, codec="mpeg4")),
    "title in latin-1 mkv": ("mkv", make_latin1),
}
"""Name -> (ending, maker) of clips of which nothing is missing."""


def noisy(image: np.ndarray) -> np.ndarray:
    """The image with noise, which makes frames of several kilobytes."""
    noise = np.random.default_rng(int(image.sum())).integers(-60, 60, image.shape)
    return (image.astype(np.int64) + noise).clip(0, 255).astype(np.uint8)


def places(path: Path) -> list[tuple[int, float]]:
    """(position in the file, seconds from the first frame shown) of the video packets, in the order of decoding."""
    with av.open(str(path)) as container:
        stream: Any = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        first = min(packet.pts for packet in packets)
        return [(packet.pos, float((packet.pts - first) * stream.time_base)) for packet in packets]


def make_truncated(path: Path, *, damage: str, **settings: Any) -> Expected:
    """Cut in the middle of the 20th of 30 packets: `numbers` and `times` are those of the whole frames before."""
    whole = make(path, **settings)
    found = places(path)
    times = sorted(round(time, 6) for _, time in found[:19])
    path.write_bytes(path.read_bytes()[: (found[19][0] + found[20][0]) // 2])
    return replace(
        whole,
        numbers=tuple(whole.number_at[time] for time in times),
        times=tuple(time for time in whole.times if round(float(time), 6) in times),
        damage=damage,
    )


def make_holed(path: Path, *, packet: int, num_bytes: int = 2048, **settings: Any) -> Expected:
    """Zeros from the middle of a packet on. `numbers` and `times` are those of the whole clip."""
    whole = make(path, change=noisy, **settings)
    data = bytearray(path.read_bytes())
    found = places(path)
    at = (found[packet][0] + found[packet + 1][0]) // 2
    data[at : at + num_bytes] = bytes(num_bytes)
    path.write_bytes(data)
    return replace(whole, damage=".")


def make_overstated_avi(path: Path) -> Expected:
    """The headers of an AVI file count twice the frames that are there."""
    whole = make(path, codec="mpeg4")
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, data.index(b"avih") + 8 + 16, 60)
    struct.pack_into("<I", data, data.index(b"strh") + 8 + 32, 60)
    path.write_bytes(data)
    return replace(whole, duration=Fraction(2), damage=r"ends early: at 1\.000 of 2\.000 s")


def make_overstated_mkv(path: Path) -> Expected:
    """The header of a Matroska file gives twice its duration."""
    whole = make(path)
    data = bytearray(path.read_bytes())
    at = data.index(b"\x44\x89\x88") + 3
    struct.pack_into(">d", data, at, 2 * struct.unpack_from(">d", data, at)[0])
    path.write_bytes(data)
    return replace(whole, duration=Fraction(2), damage=r"ends early: at 1\.000 of 2\.000 s")


def make_set_back(path: Path) -> Expected:
    """Two transport streams with the same times one behind the other: only the first can be told in time."""
    whole = make(path, options=B_FRAMES, start=None)
    first = path.read_bytes()
    encode(path, [3000 * i for i in range(30)], TICK, options=B_FRAMES, first_number=30)
    path.write_bytes(first + path.read_bytes())
    return replace(whole, damage="the clock is set back")


HOLED: dict[str, tuple[str, Maker]] = {
    "mp4": ("mp4", partial(make_holed, packet=14, options=B_FRAMES)),
    "mkv": ("mkv", partial(make_holed, packet=14, options=B_FRAMES)),
    "avi mpeg4": ("avi", partial(make_holed, packet=14, num_bytes=200, codec="mpeg4")),
    "avi h264 with B frames": ("avi", partial(make_holed, packet=14, num_bytes=3500, options=B_FRAMES)),
    "ts": ("ts", partial(make_holed, packet=14, options=B_FRAMES, start=None)),
    "ts mpeg2": ("ts", partial(make_holed, packet=14, codec="mpeg2video", start=None)),
    "mkv av1": ("mkv", partial(make_holed, packet=14, num_bytes=300, codec="libsvtav1")),
    "key frame": ("mp4", partial(make_holed, packet=12, options=B_FRAMES)),
    "first key frame": ("mp4", partial(make_holed, packet=0, options=B_FRAMES)),
    "first key frame mkv": ("mkv", partial(make_holed, packet=0, options=B_FRAMES)),
}
"""Name -> (ending, maker) of clips with zeros in the middle."""

FASTSTART = {"movflags": "faststart"}
FRAGMENTS = {"movflags": "frag_keyframe+empty_moov+default_base_moof"}

SHORT: dict[str, tuple[str, Maker]] = {
    "mp4": (
        "mp4",
        partial(make_truncated, options=B_FRAMES, muxer=FASTSTART, damage=r"ends early: at 0\.700 of 1\.000 s"),
    ),
    "mp4 with longer audio": (
        "mp4",
        partial(
            make_truncated,
            options=B_FRAMES,
            muxer=FASTSTART,
            audio_s=3.0,
            damage=r"ends early: at 0\.700 of 1\.000 s",
        ),
    ),
    "fragmented": (
        "mp4",
        partial(make_truncated, options=B_FRAMES, muxer=FRAGMENTS, start=None, damage=r"ends early: at 0\.700 of 0\.800 s"),
    ),
    "mkv": ("mkv", partial(make_truncated, options=B_FRAMES, damage=r"ends early: at 0\.700 of 1\.000 s")),
    "webm": ("webm", partial(make_truncated, codec="libvpx-vp9", damage=r"ends early: at 0\.633 of 1\.000 s")),
    "ts": ("ts", partial(make_truncated, options=B_FRAMES, start=None, damage="ends early: the file is cut off")),
    "avi mpeg4": ("avi", partial(make_truncated, codec="mpeg4", damage=r"ends early: at 0\.667 of 1\.000 s")),
    "avi h264 with B frames": (
        "avi",
        partial(make_truncated, options=B_FRAMES, start=None, damage=r"ends early: at 0\.667 of 1\.000 s"),
    ),
    "overstated avi": ("avi", make_overstated_avi),
    "overstated mkv": ("mkv", make_overstated_mkv),
    "ts whose clock is set back": ("ts", make_set_back),
}
"""Name -> (ending, maker) of clips that hold less than they promise."""
