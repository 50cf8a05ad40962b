"""load_clip on every kind of clip: which frames come out, and when they are shown."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from ser_fast.errors import BackendUnavailable, DecodeError
from ser_fast.ops import crop_resize
from ser_fast.types import Clip
from ser_fast.video import load_clip
from ser_fast.video.clip import open_video
from ser_fast.video.pyav import container, frames, index
from tests.support.clips import (
    B_FRAMES,
    CLIPS,
    HOLED,
    HW,
    SHORT,
    Expected,
    make,
    places,
    read_number,
    read_numbers,
)

Made = Callable[[str], Expected]
Decoded = Callable[[str], Clip]


def assert_as_expected(clip: Clip, expected: Expected) -> None:
    """The numbers burnt into the frames, in order, at their exact times."""
    assert read_numbers(clip.frames) == list(expected.numbers)
    np.testing.assert_allclose(clip.times, [float(time) for time in expected.times], rtol=0, atol=1e-6)


# All frames


@pytest.mark.parametrize("name", CLIPS)
def test_every_frame_at_its_time(name: str, clip_of: Made, decoded: Decoded) -> None:
    expected, clip = clip_of(name), decoded(name)
    assert_as_expected(clip, expected)
    assert clip.times[0] == 0
    assert clip.times.dtype == torch.float64
    assert clip.frames.dtype == torch.uint8
    assert clip.frame_hw == expected.hw
    assert clip.source == str(expected.path)
    if expected.start is not None:
        assert clip.start_s == pytest.approx(float(expected.start), abs=1e-6)
    if expected.duration is not None:
        assert clip.duration == pytest.approx(float(expected.duration), abs=1e-6)


@pytest.mark.parametrize("name", [name for name in CLIPS if "joined" not in name])
def test_nothing_is_missing(name: str, clip_of: Made, decoded: Decoded) -> None:
    assert decoded(name).damage is None
    assert open_video(clip_of(name).path).damage is None


@pytest.mark.parametrize("name", [name for name in CLIPS if "joined" in name])
def test_streams_joined_look_like_lost_packets_and_lose_no_frame(name: str, clip_of: Made, decoded: Decoded) -> None:
    expected, clip = clip_of(name), decoded(name)
    assert expected.damage is not None
    assert re.fullmatch(expected.damage, clip.damage or "")
    assert len(clip.times) == len(expected.times)


# Some frames


@pytest.mark.parametrize("name", CLIPS)
def test_single_frames_in_any_order_are_those_of_decoding_through(name: str, clip_of: Made, decoded: Decoded) -> None:
    expected, whole = clip_of(name), decoded(name)
    numbers = [len(expected.times) - 1, *random.Random(name).sample(range(len(expected.times)), 6)]
    for number in numbers:
        clip = load_clip(expected.path, times=[float(expected.times[number])])
        assert clip.times.tolist() == [whole.times[number]]
        assert torch.equal(clip.frames[0], whole.frames[number]), f"frame {number}"


@pytest.mark.parametrize("name", CLIPS)
def test_each_time_selects_the_frame_on_display(name: str, clip_of: Made, decoded: Decoded) -> None:
    """Halfway to the next frame, in a single call, in shuffled order, some twice."""
    expected, whole = clip_of(name), decoded(name)
    numbers = list(range(1, len(expected.times) - 1, 4))
    times = [float(expected.times[n] + expected.times[n + 1]) / 2 for n in numbers]
    random.Random(name).shuffle(times)
    clip = load_clip(expected.path, times=[*times, *times[:2]])
    assert clip.times.tolist() == whole.times[numbers].tolist()
    assert torch.equal(clip.frames, whole.frames[numbers])


@pytest.mark.parametrize("name", ["30 fps", "29.97 fps", "three rates", "ts", "avi h264 with B frames", "edit list cuts 5"])
def test_frames_at_a_rate(name: str, clip_of: Made) -> None:
    expected = clip_of(name)
    clip = load_clip(expected.path, fps=8)
    wanted = [i / 8 for i in range(int(float(expected.times[-1]) * 8 + 1e-6) + 1)]
    shown = [max(n for n, time in enumerate(expected.times) if time <= t + 1e-3) for t in wanted]
    assert read_numbers(clip.frames) == [expected.numbers[n] for n in sorted(set(shown))]


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ({"start": 0.5}, range(15, 30)),
        ({"end": 0.5}, range(16)),
        ({"start": 0.31, "end": 0.61}, range(9, 19)),
        ({"start": 0.31, "end": 0.31}, [9]),
        ({"end": 99.0}, range(30)),
        ({"max_frames": 5}, [0, 7, 14, 22, 29]),
        ({"max_frames": 1}, [0]),
        ({"max_frames": 99}, range(30)),
        ({"start": 0.5, "end": 0.7, "max_frames": 3}, [15, 18, 21]),
        ({"fps": 10}, range(0, 30, 3)),
        ({"fps": 10, "start": 0.1, "end": 0.5}, [3, 6, 9, 12, 15]),
        ({"fps": 10, "start": 0.05}, range(1, 29, 3)),
        ({"fps": 10, "max_frames": 3}, [0, 14, 29]),
        ({"fps": 1000}, range(30)),
        ({"fps": 0.01}, [0]),
        ({"times": []}, []),
        ({"times": [0.9, 0.0, 0.9, 0.91]}, [0, 27]),
        ({"times": [1.0]}, [29]),
        ({"times": [0.0333]}, [1]),
        ({"times": [0.0313]}, [0]),
    ],
    ids=str,
)
def test_windows_and_limits(arguments: dict[str, object], numbers: range | list[int], clip_of: Made) -> None:
    clip = load_clip(clip_of("30 fps").path, **arguments)  # type: ignore[arg-type]
    assert read_numbers(clip.frames) == list(numbers)
    assert clip.times.tolist() == pytest.approx([n / 30 for n in numbers])
    assert clip.frames.shape[1:] == (*HW, 3)


def test_far_apart_frames_are_sought_and_not_decoded_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = make(tmp_path / "long.mp4", num_frames=250, options=B_FRAMES)
    decoded_frames = []

    def count(*arguments: object) -> object:
        for item in frames.read_frames(*arguments):  # type: ignore[arg-type]
            decoded_frames.append(item)
            yield item

    monkeypatch.setattr("ser_fast.video.pyav.decoding.read_frames", count)
    clip = load_clip(expected.path, times=[0.0, 4.0, 8.2])
    assert read_numbers(clip.frames) == [0, 120, 246]
    assert len(decoded_frames) < 30


# Shape and colour


@pytest.mark.parametrize("size", [(32, 48), (63, 97), (7, 5)])
def test_resizing_is_crop_resize(size: tuple[int, int], clip_of: Made, decoded: Decoded) -> None:
    clip = load_clip(clip_of("30 fps").path, size=size)
    whole = decoded("30 fps").frames
    boxes = torch.tensor([[0, 0, HW[1], HW[0]]]).expand(len(whole), 4)
    assert torch.equal(clip.frames, crop_resize(whole, torch.arange(len(whole)), boxes, out_hw=size))


def test_resizing_no_frame_at_all(clip_of: Made) -> None:
    assert load_clip(clip_of("30 fps").path, times=[], size=(7, 5)).frames.shape == (0, 7, 5, 3)


COLOURS = np.array([(255, 255, 255), (0, 0, 0), (255, 0, 0), (0, 255, 0), (0, 0, 255), (128, 128, 128), (200, 150, 100)])


@pytest.mark.parametrize("full_range", [False, True], ids=["limited", "full"])
@pytest.mark.parametrize(
    ("code", "red", "blue"),
    [(6, 0.299, 0.114), (1, 0.2126, 0.0722), (9, 0.2627, 0.0593), (2, 0.299, 0.114)],
    ids=["BT.601", "BT.709", "BT.2020", "not said"],
)
def test_colours_follow_the_matrix_and_range_of_the_file(
    code: int, red: float, blue: float, full_range: bool, tmp_path: Path
) -> None:
    green = 1 - red - blue
    luma = COLOURS / 255 @ [red, green, blue]
    chroma = [(COLOURS[:, 2] / 255 - luma) / (2 - 2 * blue), (COLOURS[:, 0] / 255 - luma) / (2 - 2 * red)]
    scales, offset = ((255, 255), 0) if full_range else ((219, 224), 16)
    planes = np.stack([luma * scales[0] + offset, *(c * scales[1] + 128 for c in chroma)]).round().clip(0, 255)
    image = np.ascontiguousarray(planes.repeat(32, axis=1)[:, None].repeat(64, axis=1).astype(np.uint8))
    with av.open(str(tmp_path / "colours.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=30, options={"qp": "4"})
        stream.height, stream.width, stream.pix_fmt = 64, 224, "yuv444p"
        frame = av.VideoFrame.from_ndarray(image, format="yuv444p")
        for tagged in (stream.codec_context, frame):
            tagged.color_range, tagged.colorspace = 1 + full_range, code
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    clip = load_clip(tmp_path / "colours.mp4")
    np.testing.assert_allclose(clip.frames[0, 32, 16::32].numpy().astype(int), COLOURS, atol=4)


# Clips that hold less than they promise


@pytest.mark.parametrize("name", SHORT)
def test_a_clip_that_ends_early_gives_what_there_is(name: str, clip_of: Made, decoded: Decoded) -> None:
    expected, clip = clip_of(f"short {name}"), decoded(f"short {name}")
    if name == "avi h264 with B frames":  # nothing tells when the last two of them are shown
        expected = Expected(path=expected.path, numbers=expected.numbers[:-2], times=expected.times[:-2])
    assert_as_expected(clip, expected)
    damage = clip_of(f"short {name}").damage
    assert damage is not None
    assert re.search(damage, clip.damage or "")


@pytest.mark.parametrize("name", ["mp4", "mkv", "webm", "avi mpeg4", "overstated avi", "overstated mkv"])
def test_what_is_promised_and_missing_is_not_replaced_by_the_last_frame(name: str, clip_of: Made) -> None:
    expected = clip_of(f"short {name}")
    index = open_video(expected.path)
    assert index.duration == pytest.approx(2.0 if "overstated" in name else 1.0, abs=2e-3)
    assert load_clip(expected.path, times=[index.duration - 0.1]).times.tolist() == []
    last = float(expected.times[-1])
    assert read_numbers(load_clip(expected.path, times=[last + 0.01]).frames) == [expected.numbers[-1]]


def test_the_last_frame_of_a_short_clip_is_on_display_until_its_end(clip_of: Made) -> None:
    path = clip_of("short overstated avi").path
    assert read_numbers(load_clip(path, times=[0.99]).frames) == [29]
    assert load_clip(path, times=[1.01]).times.tolist() == []


@pytest.mark.parametrize("name", HOLED)
def test_behind_damage_no_frame_shows_what_it_should_not(name: str, clip_of: Made, decoded: Decoded) -> None:
    expected, clip = clip_of(f"holed {name}"), decoded(f"holed {name}")
    numbers = read_numbers(clip.frames)
    assert numbers == [expected.number_at[round(time, 6)] for time in clip.times.tolist()]
    assert set(numbers) >= {*(range(12) if "first" not in name else ()), *range(24, 30)}, "groups without damage are complete"
    assert len(numbers) < 30
    assert clip.damage is not None


@pytest.mark.parametrize("name", HOLED)
def test_damaged_clips_give_the_same_frames_after_a_seek(name: str, clip_of: Made, decoded: Decoded) -> None:
    path, whole = clip_of(f"holed {name}").path, decoded(f"holed {name}")
    for number in random.Random(name).sample(range(len(whole.times)), 6):
        clip = load_clip(path, times=[float(whole.times[number])])
        assert torch.equal(clip.frames[0], whole.frames[number])


@pytest.mark.parametrize("name", ["first key frame", "first key frame mkv"])
def test_a_lost_beginning_does_not_shift_the_clock(name: str, decoded: Decoded) -> None:
    clip = decoded(f"holed {name}")
    assert clip.times[0].item() == pytest.approx(0.4)
    assert read_number(clip.frames[0]) == 12
    assert clip.damage is not None
    assert clip.damage.startswith("the first 0.400 s cannot be decoded")


def test_frames_that_cannot_be_decoded_are_named(clip_of: Made) -> None:
    path = clip_of("holed mp4").path
    clip = load_clip(path, times=[14 / 30, 0.9])
    assert read_numbers(clip.frames) == [27]
    assert clip.damage == "1 of 2 frames cannot be decoded, the first at 0.467 s"
    with pytest.raises(DecodeError, match=r"at 0\.467 s: the frame cannot be decoded") as caught:
        load_clip(path, times=[14 / 30])
    assert (caught.value.path, caught.value.position) == (str(path), "at 0.467 s")


@pytest.mark.parametrize("codec", ["libx264", "libx265", "libsvtav1", "mpeg4"])
def test_a_file_cut_anywhere_gives_a_sound_beginning(codec: str, tmp_path: Path) -> None:
    whole = make(tmp_path / "whole.mp4", codec=codec, muxer={"movflags": "faststart"})
    data = whole.path.read_bytes()
    second = places(whole.path)[1][0]
    cut = tmp_path / "cut.mp4"
    for length in range(second + 1, len(data) - 16, (len(data) - second) // 15):
        cut.write_bytes(data[:length])
        clip = load_clip(cut)
        assert read_numbers(clip.frames) == [whole.number_at[round(time, 6)] for time in clip.times.tolist()]
        assert clip.damage is not None
        assert clip.duration == pytest.approx(1.0)


def test_a_read_error_still_gives_the_frames_that_the_decoder_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = make(tmp_path / "b.mp4", options=B_FRAMES)

    def fail(*arguments: object) -> object:
        for i, packet in enumerate(container.demux(*arguments)):
            if i == 17:
                raise av.error.OSError(5, "Input/output error")
            yield packet

    for module in (frames, index):
        monkeypatch.setattr(module, "demux", fail)
    clip = load_clip(expected.path)
    assert read_numbers(clip.frames) == list(range(17))
    assert clip.damage is not None
    assert "read error at 0.567 s: input/output error" in clip.damage


# Beyond a single thread and a single file


EARLY = """
import sys
from ser_fast.video import load_clip
for path in sys.argv[1:]:
    for i in range(30):
        clip = load_clip(path, times=[i / 40])
        assert len(clip.times) == 1
print("done")
"""


def test_decoding_can_stop_early_again_and_again(clip_of: Made) -> None:
    names = ["B frames", "hevc with open groups", "mkv av1", "webm vp9", "ts"]
    command = [sys.executable, "-c", EARLY, *(str(clip_of(name).path) for name in names)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.stdout == "done\n", run.stderr


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
def test_one_decoder_thread(clip_of: Made) -> None:
    code = (
        "import sys, threading, pathlib\nfrom ser_fast.video import Limits\n"
        "from ser_fast.video.pyav.container import open_container\nfrom ser_fast.video.pyav.frames import read_frames\n"
        "count = lambda: len(list(pathlib.Path('/proc/self/task').iterdir()))\n"
        "for path in sys.argv[1:]:\n"
        "    with open_container(path, Limits()) as (container, stream):\n"
        "        frames = read_frames(container, stream, Limits())\n"
        "        before = count()\n        next(frames)\n        print(count() - before)\n"
    )
    names = ["B frames", "hevc with open groups", "mkv av1", "webm vp9"]
    command = [sys.executable, "-c", code, *(str(clip_of(name).path) for name in names)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert all(int(more) <= 0 for more in run.stdout.split()), run.stdout


# Arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"times": [0.1], "fps": 2}, "times: expected without fps, max_frames, start and end"),
        ({"times": [0.1], "max_frames": 2}, "times: expected without fps, max_frames, start and end"),
        ({"times": [0.1], "start": 0.0}, "times: expected without fps, max_frames, start and end"),
        ({"times": [0.1], "end": 1.0}, "times: expected without fps, max_frames, start and end"),
        ({"times": [-0.1]}, r"times: expected seconds in \[0, 1\.000\], got -0\.1"),
        ({"times": [1.1]}, r"times: expected seconds in \[0, 1\.000\], got 1\.1"),
        ({"times": [float("nan")]}, r"times: expected seconds in \[0, 1\.000\], got nan"),
        ({"fps": 0}, "fps: expected a number > 0, got 0"),
        ({"fps": float("inf")}, "fps: expected a number > 0, got inf"),
        ({"fps": float("nan")}, "fps: expected a number > 0, got nan"),
        ({"fps": 1e12}, "fps: expected at most 10000000 times in 0.967 s, got 1000000000000.0, which makes 9666"),
        ({"max_frames": 0}, "max_frames: expected a number > 0, got 0"),
        ({"fps": 2, "max_frames": -1}, "max_frames: expected a number > 0, got -1"),
        ({"start": 0.5, "end": 0.4}, r"start, end: expected a window that begins in \[0, 0\.967\] s, got 0\.5, 0\.4"),
        ({"start": 1.5}, r"start, end: expected a window that begins in \[0, 0\.967\] s, got 1\.5, None"),
        ({"start": -1.0, "fps": 1}, r"start, end: expected a window that begins in \[0, 0\.967\] s, got -1\.0, None"),
        ({"end": float("nan")}, "start, end: expected a window"),
        ({"size": (0, 5)}, "positive"),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense(arguments: dict[str, object], message: str, clip_of: Made) -> None:
    with pytest.raises(ValueError, match=message):
        load_clip(clip_of("30 fps").path, **arguments)  # type: ignore[arg-type]


def test_unknown_backend(clip_of: Made) -> None:
    with pytest.raises(BackendUnavailable, match=r"load_clip: no backend 'x' \(pyav: available\)"):
        load_clip(clip_of("30 fps").path, backend="x")
    assert len(load_clip(clip_of("30 fps").path, backend="pyav", fps=1).times) == 1


# Real clips


@pytest.mark.parametrize(("name", "num_frames"), [("clip_a.mp4", 540), ("clip_b.mp4", 553)])
def test_real_clips(name: str, num_frames: int, shared_data: Path) -> None:
    path = shared_data / "videos" / name
    if not path.is_file():
        pytest.skip(f"no {path}")
    index = open_video(path)
    assert len(index.times) == num_frames
    np.testing.assert_allclose(index.times, np.arange(num_frames) * 1001 / 30_000, rtol=0, atol=1e-9)
    assert index.damage is None
    clip = load_clip(path, fps=2, max_frames=4)
    assert clip.times[0] == 0
    assert clip.times[-1].item() == index.times[-1]
    for number, time in enumerate(clip.times.tolist()):
        assert torch.equal(load_clip(path, times=[time]).frames[0], clip.frames[number])
