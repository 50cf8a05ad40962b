"""MediaFolder: names, images, and frames by the time of a question."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from ser_fast.errors import DecodeError, InputError, RefusedMedia
from ser_fast.types import Question
from ser_fast.video import Limits, MediaFolder, load_image
from tests.support.clips import B_FRAMES, Expected, draw, make, read_number, read_numbers


def about(name: str, *, image: bool = False) -> Question:
    """A question about a video or an image."""
    return Question(id="q", question="?", answer="!", task=Any, **{"image" if image else "video": name})  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> MediaFolder:
    """A folder with a video at its top and one below, an image, and a file beside the folder that nothing may reach."""
    root = tmp_path / "media"
    (root / "below").mkdir(parents=True)
    make(root / "a.mp4", options=B_FRAMES)
    make(root / "below" / "b.mkv")
    Image.fromarray(draw(7)).save(root / "image.png")
    make(tmp_path / "secret.mp4")
    Image.fromarray(draw(9)).save(tmp_path / "secret.png")
    return MediaFolder(root)


def test_names_below_the_folder(folder: MediaFolder) -> None:
    for name in ("a.mp4", "below/b.mkv", "./a.mp4", "below/../a.mp4", str(folder.root / "a.mp4")):
        info = folder.info(about(name))
        assert (info.frame_hw, len(info.times), info.damage) == ((64, 96), 30, None)


@pytest.mark.parametrize("image", [False, True], ids=["video", "image"])
@pytest.mark.parametrize(
    "name",
    ["../secret.mp4", "below/../../secret.mp4", "{parent}/secret.mp4", "../secret.png", "/etc/passwd", "..", "../media2"],
)
def test_names_that_lead_out(name: str, image: bool, folder: MediaFolder) -> None:
    name = name.format(parent=folder.root.parent)
    question = about(name, image=image)
    for call in (lambda: folder.info(question), lambda: folder.load(question, [0.0])):
        with pytest.raises(DecodeError, match="open: the name leads out of the folder") as caught:
            call()
        assert caught.value.path == str(folder.root / name)


def test_links_that_lead_out(folder: MediaFolder) -> None:
    (folder.root / "link.mp4").symlink_to(folder.root.parent / "secret.mp4")
    (folder.root / "link.png").symlink_to("../secret.png")
    (folder.root / "up").symlink_to(folder.root.parent)
    strict = MediaFolder(folder.root, follow_links=False)
    for question in (about("link.mp4"), about("link.png", image=True), about("up/secret.mp4"), about("below/../up/secret.mp4")):
        folder.info(question)
        with pytest.raises(DecodeError, match="the name leads out of the folder"):
            strict.info(question)


def test_links_that_stay_inside(folder: MediaFolder, tmp_path: Path) -> None:
    (folder.root / "link.mp4").symlink_to("below/b.mkv")
    assert len(folder.info(about("link.mp4")).times) == 30
    (tmp_path / "way").symlink_to(folder.root)
    assert len(MediaFolder(tmp_path / "way").info(about("a.mp4")).times) == 30


def test_links_in_a_circle(folder: MediaFolder) -> None:
    (folder.root / "one").symlink_to("two")
    (folder.root / "two").symlink_to("one")
    with pytest.raises(DecodeError, match=r"one: open: .*(Symlink loop|Too many levels)"):
        folder.info(about("one"))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a\0b.mp4", "embedded null byte"),
        ("x" * 300, "File name too long"),
        ("none.mp4", "No such file"),
        ("a.mp4/b", "Not a directory"),
        ("below", "not a regular file"),
        ("", "not a regular file"),
    ],
    ids=["nul", "long", "missing", "below a file", "folder", "empty"],
)
def test_names_of_no_file(name: str, reason: str, folder: MediaFolder) -> None:
    for image in (False, True):
        with pytest.raises(DecodeError, match=f"open: {reason}"):
            folder.info(about(name, image=image))


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    for path in (tmp_path / "none", Path(__file__)):
        with pytest.raises(InputError, match="root: expected a folder, got "):
            MediaFolder(path)


# Videos


def test_frames_for_times_in_any_order(folder: MediaFolder) -> None:
    times = [0.5, 0.0, 0.51, 29 / 30, 0.5, 1.0]
    clip, frames = folder.load(about("a.mp4"), times)
    assert read_numbers(clip.frames) == [0, 15, 29]
    assert [read_number(clip.frames[i]) for i in frames if i is not None] == [15, 0, 15, 29, 15, 29]


def test_no_times_no_frames(folder: MediaFolder) -> None:
    clip, frames = folder.load(about("a.mp4"), [])
    assert (clip.frames.shape, frames) == ((0, 64, 96, 3), [])


def test_times_outside_the_clip(folder: MediaFolder) -> None:
    with pytest.raises(ValueError, match="times: expected seconds in"):
        folder.load(about("a.mp4"), [1.5])


def test_each_file_is_indexed_once(folder: MediaFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    from ser_fast.video import folder as module

    opened = []
    open_video = module.open_video

    def spy(path: Path, **settings: Any) -> Any:
        opened.append(path.name)
        return open_video(path, **settings)

    monkeypatch.setattr(module, "open_video", spy)
    for _ in range(3):
        for name in ("a.mp4", "below/b.mkv"):
            folder.info(about(name))
            folder.load(about(name), [0.1, 0.9])
    assert opened == ["a.mp4", "b.mkv"]


def test_a_file_that_fails_is_tried_again(folder: MediaFolder) -> None:
    with pytest.raises(DecodeError):
        folder.info(about("late.mp4"))
    make(folder.root / "late.mp4")
    assert len(folder.info(about("late.mp4")).times) == 30


def test_frames_that_are_promised_and_missing_are_none(clip_of: Callable[[str], Expected]) -> None:
    path = clip_of("short mp4").path
    folder = MediaFolder(path.parent)
    info = folder.info(about(path.name))
    assert info.damage is not None
    assert info.duration == pytest.approx(1.0)
    clip, frames = folder.load(about(path.name), [0.95, 0.5, 0.8, 0.0])
    assert [None if i is None else read_number(clip.frames[i]) for i in frames] == [None, 15, None, 0]


def test_frames_that_cannot_be_decoded_are_none(clip_of: Callable[[str], Expected]) -> None:
    path = clip_of("holed mp4").path
    folder = MediaFolder(path.parent)
    clip, frames = folder.load(about(path.name), [0.5, 0.9, 0.6, 0.0])
    assert [None if i is None else read_number(clip.frames[i]) for i in frames] == [None, 27, None, 0]
    assert clip.damage is not None
    assert "2 of 4 frames cannot be decoded, the first at 0.500 s" in clip.damage


def test_what_a_claim_gets_does_not_depend_on_the_others(clip_of: Callable[[str], Expected]) -> None:
    """A frame that cannot be decoded is none, alone as in company."""
    path = clip_of("holed mp4").path
    folder = MediaFolder(path.parent)
    clip, frames = folder.load(about(path.name), [0.5])
    assert (frames, len(clip.times)) == ([None], 0)


@pytest.mark.parametrize("kind", ["ts", "fragmented"])
def test_a_file_that_is_cut_off_may_have_gone_on(kind: str, clip_of: Callable[[str], Expected]) -> None:
    """It does not say how long it was, so a time behind what is left is not the fault of who cites it."""
    path = clip_of(f"short {kind}").path
    folder = MediaFolder(path.parent)
    info = folder.info(about(path.name))
    assert info.horizon == Limits().max_duration_s
    assert folder.load(about(path.name), [0.0, info.duration + 3])[1] == [0, None]


def test_only_a_file_that_is_cut_off_has_a_horizon(folder: MediaFolder, clip_of: Callable[[str], Expected]) -> None:
    for kind in ("30 fps", "short mp4"):
        path = clip_of(kind).path
        assert MediaFolder(path.parent).info(about(path.name)).horizon is None
    assert folder.info(about("a.mp4")).horizon is None


def test_a_time_that_float32_rounds_over_the_end_is_the_end(folder: MediaFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    index = folder._index("a.mp4")
    long = dataclasses.replace(index, duration=80_000.006, end=80_000.006)
    monkeypatch.setattr(folder, "_index", lambda _: long)
    assert folder.load(about("a.mp4"), [float(np.float32(80_000.006))])[1] == [0]
    with pytest.raises(ValueError, match="times: expected seconds in"):
        folder.load(about("a.mp4"), [80_000.1])


def test_limits_of_the_folder(folder: MediaFolder) -> None:
    limited = MediaFolder(folder.root, limits=Limits(max_pixels=100))
    for question in (about("a.mp4"), about("image.png", image=True)):
        with pytest.raises(RefusedMedia, match="exceed 100 pixels"):
            limited.info(question)
    with pytest.raises(RefusedMedia, match="2 frames of 64 x 96 are more than 20000 bytes"):
        MediaFolder(folder.root, limits=Limits(max_bytes=20_000)).load(about("a.mp4"), [0.0, 0.5])


# Images


def test_an_image_is_a_clip_of_one_frame(folder: MediaFolder) -> None:
    question = about("image.png", image=True)
    info = folder.info(question)
    assert (info.frame_hw, info.duration, info.times, info.damage) == ((64, 96), 0.0, (0.0,), None)
    clip, frames = folder.load(question, [0.0, 0.0])
    assert np.array_equal(clip.frames[0], draw(7))
    assert (clip.times.tolist(), clip.start_s, clip.duration, frames) == ([0.0], 0.0, 0.0, [0, 0])
    assert folder.load(question, [])[0] is clip, "read once"


@pytest.mark.parametrize("kind", ["png", "jpg", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(orientation: int, kind: str, tmp_path: Path) -> None:
    """Stored as a camera would that was held so, and upright again."""
    upright = draw(5)
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    image = Image.fromarray(np.ascontiguousarray(stored))
    exif = image.getexif()
    exif[0x0112] = orientation
    image.save(tmp_path / f"image.{kind}", exif=exif, quality=95)
    folder = MediaFolder(tmp_path)
    clip, _ = folder.load(about(f"image.{kind}", image=True), [0.0])
    assert folder.info(about(f"image.{kind}", image=True)).frame_hw == (64, 96)
    assert read_number(clip.frames[0]) == 5


def test_orientation_beside_broken_tags(tmp_path: Path) -> None:
    """A tag that Pillow reads and cannot write again."""
    image = Image.fromarray(draw(5).transpose(1, 0, 2).copy())
    exif = image.getexif()
    exif[0x0112] = 5
    exif[0x011A] = 72.0
    image.save(tmp_path / "image.jpg", exif=exif, quality=95)
    data = (tmp_path / "image.jpg").read_bytes()
    at = data.index(b"\x01\x1a\x00\x05") + 2  # resolution, a fraction
    (tmp_path / "image.jpg").write_bytes(data[:at] + b"\x00\x02" + data[at + 2 :])  # now text
    assert read_number(load_image(tmp_path / "image.jpg").frames[0]) == 5


@pytest.mark.parametrize("mode", ["P", "RGBA", "CMYK"])
def test_modes(mode: str, tmp_path: Path) -> None:
    Image.fromarray(draw(5)).convert(mode).save(tmp_path / ("image.jpg" if mode == "CMYK" else "image.png"))
    (path,) = tmp_path.iterdir()
    assert read_number(load_image(path).frames[0]) == 5


def test_transparency_is_dropped(tmp_path: Path) -> None:
    Image.fromarray(np.dstack([draw(5), np.zeros((64, 96), np.uint8)])).save(tmp_path / "image.png")
    assert np.array_equal(load_image(tmp_path / "image.png").frames[0], draw(5))


def test_sixteen_bits_of_grey(tmp_path: Path) -> None:
    grey = np.arange(65_536, dtype=np.uint16).reshape(256, 256)
    Image.fromarray(grey).save(tmp_path / "image.png")
    frame = load_image(tmp_path / "image.png").frames[0].numpy()
    expected = (grey / 257).round().astype(np.uint8)
    assert all(np.array_equal(frame[..., channel], expected) for channel in range(3))


def test_the_first_picture_of_an_animation(tmp_path: Path) -> None:
    first, *others = (Image.fromarray(draw(n)) for n in range(3))
    first.save(tmp_path / "image.png", save_all=True, append_images=others)
    assert read_numbers(load_image(tmp_path / "image.png").frames) == [0]


def test_resized_images(tmp_path: Path) -> None:
    Image.fromarray(draw(5)).save(tmp_path / "image.png")
    clip = load_image(tmp_path / "image.png", size=(32, 48))
    assert clip.frames.shape == (1, 32, 48, 3)
    assert clip.frames.dtype == torch.uint8
    assert read_number(clip.frames[0]) == 5
    assert clip.decoded_by == "pillow"
