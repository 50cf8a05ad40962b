"""What is not opened, and how it is said."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import shutil
import socket
import wave
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from ser_fast.errors import DecodeError, RefusedMedia
from ser_fast.types import Clip
from ser_fast.video import Limits, load_clip, load_image, media
from ser_fast.video.clip import open_video
from ser_fast.video.pyav import decode, index
from tests.support.clips import B_FRAMES, Expected, draw, encode, make, read_numbers


def assert_refused(path: Path, reason: str, *, refused: bool, limits: Limits | None = None) -> None:
    """One error that names file, position and reason; RefusedMedia exactly where it is on purpose."""
    with pytest.raises(DecodeError, match=reason) as caught:
        load_clip(path, limits=limits)
    assert isinstance(caught.value, RefusedMedia) == refused
    assert caught.value.path == str(path)
    assert caught.value.position
    assert str(caught.value) == f"{path}: {caught.value.position}: {caught.value.reason}"
    assert "\n" not in caught.value.reason


SCRIPTS = {
    "HLS playlist": "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{target}\n#EXT-X-ENDLIST\n",
    "HLS playlist behind a byte order mark": "\ufeff#EXTM3U\n#EXTINF:1,\n{target}\n#EXT-X-ENDLIST\n",
    "HLS playlist behind empty lines": "\n\n  \n#EXTM3U\n#EXTINF:1,\n{target}\n#EXT-X-ENDLIST\n",
    "concat script": "ffconcat version 1.0\nfile '{target}'\n",
    "concat script in capitals": "FFCONCAT version 1.0\nfile '{target}'\n",
    "PLS playlist": "[playlist]\nFile1={target}\n",
    "DASH manifest": '<?xml version="1.0"?>\n<MPD><BaseURL>{target}</BaseURL></MPD>\n',
    "bare DASH manifest": "<MPD><BaseURL>{target}</BaseURL></MPD>\n",
    "ASX playlist": '<asx version="3.0"><entry><ref href="{target}"/></entry></asx>\n',
    "SMIL": '<smil><body><video src="{target}"/></body></smil>\n',
    "SDP": "v=0\no=- 0 0 IN IP4 127.0.0.1\nm=video 5000 RTP/AVP 96\n",
}


@pytest.mark.parametrize("ending", ["mp4", "m3u8", "ffconcat"])
@pytest.mark.parametrize("kind", SCRIPTS)
def test_playlists_and_scripts(kind: str, ending: str, tmp_path: Path) -> None:
    """Whatever the file is called. The file that they name is there and could be read."""
    target = make(tmp_path / "target.ts").path
    path = tmp_path / f"script.{ending}"
    path.write_text(SCRIPTS[kind].format(target=target), encoding="utf-8")
    assert_refused(path, "open: a playlist or a script, not a media file", refused=True)


@pytest.mark.parametrize(("kind", "ending"), [("HLS playlist", "m3u8"), ("concat script", "mp4")])
def test_ffmpeg_does_not_follow_scripts_either(kind: str, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were one not recognised, the list of containers would stop it."""
    target = make(tmp_path / "target.ts").path
    path = tmp_path / f"script.{ending}"
    path.write_text(SCRIPTS[kind].format(target=target), encoding="utf-8")
    careless = {"allowed_extensions": "ALL", "allowed_segment_extensions": "ALL", "extension_picky": "0", "safe": "0"}
    with av.open(str(path), options=careless) as container:
        assert len(list(container.decode(video=0))) == 30, "FFmpeg by itself does"
    monkeypatch.setattr(media, "_SCRIPT", re.compile(rb"(?!)"))
    assert_refused(path, "open: the container is not one of those that are opened", refused=True)


def test_a_concat_script_without_its_first_line(tmp_path: Path) -> None:
    target = make(tmp_path / "target.ts").path
    for text in (f"file '{target}'\n", f"# a list\n\n# of files\nffconcat version 1.0\nfile {target}\n"):
        (tmp_path / "script.mp4").write_text(text)
        assert_refused(tmp_path / "script.mp4", "open: a playlist or a script, not a media file", refused=True)


def save(kind: str, path: Path) -> None:
    """Writes a file of another kind."""
    if kind in ("PNG", "GIF", "JPEG", "BMP", "TIFF", "WEBP"):
        Image.fromarray(draw(3)).save(path, format=kind)
    elif kind == "WAV":
        with wave.open(str(path), "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(8000)
            sound.writeframes(bytes(16_000))
    else:
        muxer, codec = {"FLV": ("flv", "flv1"), "MPEG PS": ("mpeg", "mpeg2video"), "IVF": ("ivf", "libvpx-vp9")}.get(
            kind, ("h264", "libx264")
        )
        with av.open(str(path), "w", format=muxer) as container:
            stream = container.add_stream(codec, rate=30)
            stream.height, stream.width, stream.pix_fmt = 64, 96, "yuv420p"
            for number in range(10):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(draw(number), format="rgb24")))
            container.mux(stream.encode())


@pytest.mark.parametrize("kind", ["PNG", "GIF", "JPEG", "BMP", "TIFF", "WEBP", "WAV", "FLV", "MPEG PS", "IVF", "raw H.264"])
def test_other_containers(kind: str, tmp_path: Path) -> None:
    save(kind, tmp_path / "other.mp4")
    assert_refused(tmp_path / "other.mp4", "open: the container is not one of those that are opened", refused=True)


JUNK = {
    "text": b"These are words and no pictures.\n" * 50,
    "a word": b"word",
    "one byte": b"\0",
    "zeros": bytes(5000),
    "noise": np.random.default_rng(1).bytes(5000),
    "half a header": b"\0\0\0\x20ftypisom",
    "only a header": b"\0\0\0\x08ftyp",
    "Matroska and nothing": b"\x1aE\xdf\xa3" + bytes(100),
    "AVI and nothing": b"RIFF\0\0\0\0AVI " + bytes(100),
}


@pytest.mark.parametrize("kind", JUNK)
def test_junk(kind: str, tmp_path: Path) -> None:
    (tmp_path / "junk.mp4").write_bytes(JUNK[kind])
    assert_refused(tmp_path / "junk.mp4", "open: ", refused=False)


def test_a_known_beginning_with_another_rest_is_damage(tmp_path: Path) -> None:
    """A transport stream that is too short for FFmpeg to know it."""
    path = make(tmp_path / "short.ts", num_frames=3, codec="mpeg4").path
    assert_refused(path, "open: begins like a known container and goes on unlike it", refused=False)


def test_an_mp4_file_without_its_index(tmp_path: Path) -> None:
    path = make(tmp_path / "cut.mp4").path
    path.write_bytes(path.read_bytes()[:-2000])
    assert_refused(path, "open: invalid data", refused=False)


def test_no_frame_that_can_be_decoded(tmp_path: Path) -> None:
    path = make(tmp_path / "zeros.mp4", options=B_FRAMES | {"g": "250"}).path
    data = bytearray(path.read_bytes())
    at = data.index(b"mdat") + 4
    end = data.index(b"moov") - 4
    data[at:end] = bytes(end - at)
    path.write_bytes(data)
    assert_refused(path, "first frame: no frame can be decoded", refused=False)


def test_sound_without_pictures(tmp_path: Path) -> None:
    encode(tmp_path / "both.mp4", [0], Fraction(1, 30), audio_s=1.0)
    with av.open(str(tmp_path / "both.mp4")) as source, av.open(str(tmp_path / "sound.mp4"), "w") as target:
        stream = target.add_stream_from_template(source.streams.audio[0])
        for packet in source.demux(source.streams.audio[0]):
            if packet.size:
                packet.stream = stream
                target.mux(packet)
    assert_refused(tmp_path / "sound.mp4", "open: no video stream", refused=False)


def test_an_unknown_codec(tmp_path: Path) -> None:
    path = make(tmp_path / "unknown.mp4").path
    path.write_bytes(path.read_bytes().replace(b"avc1", b"zzz1").replace(b"avcC", b"zzzC"))
    assert_refused(path, "open: no decoder for the video stream", refused=False)


def test_a_picture_turned_by_45_degrees(tmp_path: Path) -> None:
    def setup(container: object, video: object) -> tuple[()]:
        video.set_display_rotation(45)  # type: ignore[attr-defined]
        return ()

    path = make(tmp_path / "tilted.mp4", setup=setup).path
    assert_refused(path, "open: a display matrix of 0.707 -0.707 0.707 0.707 is no quarter turn", refused=False)


# Not regular files


def test_a_missing_file(tmp_path: Path) -> None:
    assert_refused(tmp_path / "none.mp4", "open: No such file or directory", refused=False)


def test_a_name_with_a_nul(tmp_path: Path) -> None:
    assert_refused(tmp_path / "a\0b.mp4", "open: embedded null byte", refused=False)


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    assert_refused(tmp_path / ("x" * 300), "open: File name too long", refused=False)


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").touch()
    assert_refused(tmp_path / "empty.mp4", "open: the file is empty", refused=False)


def test_a_folder(tmp_path: Path) -> None:
    assert_refused(tmp_path, "open: not a regular file", refused=False)


@pytest.mark.usefixtures("in_five_seconds")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.mp4")
    assert_refused(tmp_path / "pipe.mp4", "open: not a regular file", refused=False)


@pytest.mark.usefixtures("in_five_seconds")
def test_devices_and_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_refused(Path("/dev/zero"), "open: not a regular file", refused=False)
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        assert_refused(Path("socket"), "open: not a regular file", refused=False)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(plain: Expected) -> None:
    plain.path.chmod(0)
    assert_refused(plain.path, "open: Permission denied", refused=False)


NAMES = [
    "a:b.mp4",
    "concat:plain.mp4",
    "concat:plain.mp4|plain.mp4",
    "file:plain.mp4",
    "http:plain.mp4",
    "-i.mp4",
    "100%.mp4",
    "%03d.mp4",
    "clip?.mp4#t=1",
    "été 日本.mp4",
    "subfile,,start,0,end,0,,:plain.mp4",
    "'\"\n.mp4",
    os.fsdecode(b"\xff\xfe.mp4"),
    "none",
    "clip.m3u8",
    "clip.jpg",
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_name_is_only_a_name(name: str, plain: Expected, monkeypatch: pytest.MonkeyPatch) -> None:
    plain.path.rename(plain.path.parent / name)
    assert read_numbers(load_clip(plain.path.parent / name).frames) == list(range(30))
    monkeypatch.chdir(plain.path.parent)
    assert read_numbers(load_clip(name, times=[0.5]).frames) == [15], "relative"
    with pytest.raises(DecodeError, match="No such file"):
        load_clip("file:" + name)


# Limits


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(max_pixels=6143), "frames of 64 x 96 exceed 6143 pixels"),
        (Limits(max_duration_s=0.9), r"1\.000 s, more than 0\.900 s"),
        (Limits(max_frames=29), "30 frames, more than 29"),
    ],
    ids=["pixels", "duration", "frames"],
)
@pytest.mark.parametrize("ending", ["mp4", "avi"])
def test_limits_hold_before_anything_is_decoded(
    ending: str, limits: Limits, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / f"clip.{ending}").path
    monkeypatch.setattr(index, "read_frames", None)
    assert_refused(path, reason, refused=True, limits=limits)


@pytest.mark.parametrize("ending", ["mkv", "ts", "mjpeg"])
def test_limits_hold_where_the_file_says_nothing(ending: str, tmp_path: Path) -> None:
    """Then its packets are counted."""
    coder = {"codec": "mjpeg", "pixel_format": "yuvj420p"} if ending == "mjpeg" else {}
    path = make(tmp_path / f"clip.{ending}", muxer={"live": "1"} if ending == "mkv" else None, **coder).path
    assert_refused(path, "index: more than 29 frames", refused=True, limits=Limits(max_frames=29))
    assert_refused(path, "s, more than 0.900 s", refused=True, limits=Limits(max_duration_s=0.9))
    assert_refused(path, "exceed 6143 pixels", refused=True, limits=Limits(max_pixels=6143))


def test_frames_are_counted_before_they_are_all_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H.264 in AVI has to be decoded to be put in order."""
    path = make(tmp_path / "clip.avi", options=B_FRAMES).path
    data = path.read_bytes()
    for tag, offset in ((b"avih", 24), (b"strh", 40)):  # headers that count no frames
        at = data.index(tag) + offset
        data = data[:at] + bytes(4) + data[at + 4 :]
    path.write_bytes(data)
    monkeypatch.setattr(index, "_decode_all", None)
    assert_refused(path, "index: more than 20 frames", refused=True, limits=Limits(max_frames=20))


def test_limits_that_just_suffice(plain: Expected) -> None:
    limits = Limits(max_pixels=64 * 96, max_duration_s=1.0, max_frames=30, max_bytes=30 * 64 * 96 * 3)
    assert len(load_clip(plain.path, limits=limits).times) == 30


def test_bytes_are_those_of_the_frames_asked_for(plain: Expected) -> None:
    limits = Limits(max_bytes=10 * 64 * 96 * 3)
    assert len(load_clip(plain.path, times=[i / 30 for i in range(10)], limits=limits).times) == 10
    with pytest.raises(RefusedMedia, match="decode: 11 frames of 64 x 96 are more than 184320 bytes"):
        load_clip(plain.path, times=[i / 30 for i in range(11)], limits=limits)


def test_frames_that_grow_beyond_the_limit_on_the_way_are_left_out(clip_of: Callable[[str], Expected]) -> None:
    clip = load_clip(clip_of("mjpeg, changing size").path, limits=Limits(max_pixels=64 * 96))
    assert read_numbers(clip.frames) == list(range(10))
    assert clip.damage == "5 of 15 frames cannot be decoded, the first at 0.400 s"


# Images


@pytest.mark.parametrize("kind", [*JUNK, "TIFF", "GIF", "raw H.264"])
def test_images_of_other_kinds(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    path.write_bytes(JUNK[kind]) if kind in JUNK else save(kind, path)
    with pytest.raises(DecodeError, match=r"open: not an image of a known format \(BMP, JPEG, PNG, WEBP\)"):
        load_image(path)


@pytest.mark.parametrize("kind", ["BMP", "JPEG", "PNG", "WEBP"])
def test_truncated_images(kind: str, tmp_path: Path) -> None:
    save(kind, tmp_path / "image")
    data = (tmp_path / "image").read_bytes()
    (tmp_path / "image").write_bytes(data[: len(data) // 2])
    with pytest.raises(DecodeError):
        load_image(tmp_path / "image")


def test_large_images(tmp_path: Path) -> None:
    save("PNG", tmp_path / "image.png")
    with pytest.raises(RefusedMedia, match="open: 64 x 96 exceed 6143 pixels"):
        load_image(tmp_path / "image.png", limits=Limits(max_pixels=6143))
    assert load_image(tmp_path / "image.png", limits=Limits(max_pixels=6144)).frame_hw == (64, 96)


def test_images_are_regular_files_too(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    for path, reason in ((tmp_path / "pipe.png", "not a regular file"), (tmp_path / "none.png", "No such file")):
        with pytest.raises(DecodeError, match=reason):
            load_image(path)


# The errors themselves


@pytest.mark.parametrize("kind", [DecodeError, RefusedMedia])
def test_errors_cross_processes(kind: type[DecodeError]) -> None:
    error = pickle.loads(pickle.dumps(kind("a.mp4", "at 0.500 s", "why")))
    assert type(error) is kind
    assert (error.path, error.position, error.reason) == ("a.mp4", "at 0.500 s", "why")
    assert str(error) == "a.mp4: at 0.500 s: why"


def test_a_file_that_vanishes_after_it_was_indexed(plain: Expected) -> None:
    opened = open_video(plain.path)
    plain.path.unlink()
    with pytest.raises(DecodeError, match="No such file"):
        decode(opened, [0])


FLIPS = 60


def test_flipped_bits_never_raise_anything_else(tmp_path: Path) -> None:
    """Times ascend and frames have the size that is promised, whatever comes out."""
    random = np.random.default_rng(0)
    for ending, settings in (("mp4", {}), ("mkv", {}), ("ts", {}), ("avi", {}), ("webm", {"codec": "libvpx-vp9"})):
        data = make(tmp_path / f"whole.{ending}", **settings).path.read_bytes()
        for _ in range(FLIPS):
            broken = bytearray(data)
            for at in random.integers(0, len(data) if random.random() < 0.5 else 1000, 4):
                broken[at] ^= 1 << random.integers(8)
            path = tmp_path / f"broken.{ending}"
            path.write_bytes(broken[: random.integers(1, len(data))] if random.random() < 0.2 else broken)
            with contextlib.suppress(DecodeError):
                check_order(load_clip(path))


def check_order(clip: Clip) -> None:
    """Times ascend from 0 or later to the duration."""
    times = clip.times.numpy()
    assert (np.diff(times) > 0).all()
    assert times[0] >= 0
    assert times[-1] <= clip.duration + 1e-6


def test_copies_are_equal(plain: Expected, tmp_path: Path) -> None:
    """Where a file lies makes no difference."""
    shutil.copy(plain.path, tmp_path / "copy")
    assert (load_clip(plain.path).frames == load_clip(tmp_path / "copy").frames).all()
