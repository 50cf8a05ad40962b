"""Files -> clips."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ser_fast.errors import BackendUnavailable, DecodeError, RefusedMedia
from ser_fast.ops import crop_resize
from ser_fast.types import Clip
from ser_fast.video import pyav
from ser_fast.video.media import Limits, check_file
from ser_fast.video.sampling import TIME_TOLERANCE_S, frames_at, uniform_times, window

BACKENDS = ("auto", "pyav")
IMAGE_FORMATS = ("BMP", "JPEG", "PNG", "WEBP")
OTHER_IMAGES = (b"GIF8", b"II*\0", b"MM\0*", b"8BPS", b"\0\0\1\0", b"qoif", b"\0\0\0\x0cJXL", b"\0\0\0\x0cjP")
"""First bytes of images that are whole, but not opened: GIF, TIFF, Photoshop, icons, QOI, JPEG XL, JPEG 2000."""
EXIF_ORIENTATION = 0x0112


def load_clip(
    path: str | os.PathLike[str],
    *,
    fps: float | None = None,
    times: Sequence[float] | None = None,
    max_frames: int | None = None,
    start: float | None = None,
    end: float | None = None,
    size: tuple[int, int] | None = None,
    backend: str = "auto",
    device: torch.device | str = "cpu",
    limits: Limits | None = None,
) -> Clip:
    """Decodes frames of a video, each once, in order of time.

    Time 0 is the first frame that a player shows, whatever the file calls it. Frames come at `fps` a second, or those on
    display at `times`, or all of them; rotation in the file's metadata is applied.

    Args:
        path: a regular file: mov/mp4, matroska/webm, avi, mpegts or mjpeg.
        fps: frames a second of the window; see `uniform_times` for what max_frames does to it.
        times: seconds, in any order; two that fall on one frame give it once. Excludes fps, max_frames, start and end.
        max_frames: at most so many frames, evenly spread over the window.
        start, end: window in seconds.
        size: (height, width) to resize to, antialiased bicubic; the frame's own size if not given.
        backend: "auto" or "pyav".
        device: where the frames go.
        limits: caps on frame size, duration, number of frames and bytes, checked before decoding.

    Returns:
        A clip. Where the file ends early or cannot be decoded in places, the frames that there are, and `damage` says so.
        Behind a damaged frame those up to the next key frame are left out: decoders would show them wrong.

    Raises:
        DecodeError: the file cannot be read, or none of the frames can; names file, position and reason.
        RefusedMedia: a playlist, a script, another container, or a file beyond the limits.
        ValueError: arguments that exclude each other or make no sense, times outside the clip, an empty window.
        BackendUnavailable: an unknown backend.
    """
    index = open_video(path, backend=backend, limits=limits)
    return decode_clip(
        index,
        choose_frames(index, fps=fps, times=times, max_frames=max_frames, start=start, end=end),
        size=size,
        device=device,
        limits=limits,
    )


def open_video(path: str | os.PathLike[str], *, backend: str = "auto", limits: Limits | None = None) -> pyav.VideoIndex:
    """When each frame of a file is shown, and its size; decodes as little as it can. Errors as `load_clip`."""
    if backend not in BACKENDS:
        raise BackendUnavailable(f"load_clip: no backend {backend!r} (pyav: available)")
    return pyav.read_index(path, limits)


def choose_frames(
    index: pyav.VideoIndex,
    *,
    fps: float | None = None,
    times: Sequence[float] | None = None,
    max_frames: int | None = None,
    start: float | None = None,
    end: float | None = None,
) -> list[int]:
    """The numbers of the frames that `load_clip` would decode. Errors as there."""
    shown = index.times
    last = float(shown[-1])
    if times is not None:
        if any(value is not None for value in (fps, max_frames, start, end)):
            raise ValueError("times: expected without fps, max_frames, start and end")
        for time in times:
            if not 0 <= time <= (math.inf if index.is_cut else index.duration + TIME_TOLERANCE_S):
                raise ValueError(f"times: expected seconds in [0, {index.duration:.3f}], got {time}")
        return frames_at(shown, [time for time in times if has_frame(index, time)])
    if fps is not None:
        return frames_at(shown, uniform_times(last, fps=fps, max_frames=max_frames, start=start, end=end))
    if max_frames is not None and max_frames < 1:
        raise ValueError(f"max_frames: expected a number > 0, got {max_frames}")
    first_s, last_s = window(last, start, end)
    first, stop = frames_at(shown, [first_s])[0], frames_at(shown, [last_s])[-1] + 1
    if max_frames is not None and stop - first > max_frames:
        return np.linspace(first, stop - 1, max_frames).round().astype(int).tolist()
    return list(range(first, stop))


def has_frame(index: pyav.VideoIndex, time: float) -> bool:
    """Whether a frame of the file is on display at a time: what it promises and does not have is not replaced by its last."""
    is_short = index.is_cut or index.end < index.duration
    return not is_short or time <= index.times[-1] + TIME_TOLERANCE_S or time + TIME_TOLERANCE_S < index.end


def decode_clip(
    index: pyav.VideoIndex,
    numbers: Sequence[int],
    *,
    at_least_one: bool = True,
    size: tuple[int, int] | None = None,
    device: torch.device | str = "cpu",
    limits: Limits | None = None,
) -> Clip:
    """Decodes frames by number. Returns and raises as `load_clip`; with at_least_one=False an empty clip is no error."""
    found = pyav.decode(index, numbers, limits)
    missing = [number for number in numbers if number not in found]
    damage = index.damage
    if missing:
        where = f"at {index.times[missing[0]]:.3f} s"
        if not found and at_least_one:
            raise DecodeError(index.path, where, "the frame cannot be decoded")
        lost = f"{len(missing)} of {len(numbers)} frames cannot be decoded, the first {where}"
        damage = lost if damage is None else f"{damage}; {lost}"
    kept = [number for number in numbers if number in found]
    frames = torch.from_numpy(np.stack([found[n] for n in kept])) if kept else _no_frames(index.frame_hw)
    return Clip(
        frames=_resize(frames, size).to(device),
        times=torch.from_numpy(index.times[kept]).to(device),
        start_s=index.start_s,
        duration=index.duration,
        source=index.path,
        decoded_by=pyav.NAME,
        damage=damage,
    )


def load_image(
    path: str | os.PathLike[str],
    *,
    size: tuple[int, int] | None = None,
    device: torch.device | str = "cpu",
    limits: Limits | None = None,
) -> Clip:
    """Reads an image as a clip of one frame at time 0; orientation in its metadata is applied, transparency dropped.

    Raises:
        DecodeError, RefusedMedia: as `load_clip`; BMP, JPEG, PNG and WebP are opened.
    """
    from PIL import Image, UnidentifiedImageError

    path, limits = os.fspath(path), limits or Limits()
    head = check_file(path)
    try:
        with Image.open(path, formats=IMAGE_FORMATS) as image:
            if image.width * image.height > limits.max_pixels:
                raise RefusedMedia(path, "open", f"{image.height} x {image.width} exceed {limits.max_pixels} pixels")
            pixels = _upright_pixels(image)
    except Image.DecompressionBombError as error:
        raise RefusedMedia(path, "open", str(error)) from error
    except UnidentifiedImageError as error:
        kind = RefusedMedia if head.startswith(OTHER_IMAGES) else DecodeError
        raise kind(path, "open", f"not an image of a known format ({', '.join(IMAGE_FORMATS)})") from error
    except (OSError, SyntaxError, ValueError) as error:  # what Pillow raises for broken files
        raise DecodeError(path, "decode", str(error) or type(error).__name__) from error
    return Clip(
        frames=_resize(torch.from_numpy(pixels)[None], size).to(device),
        times=torch.zeros(1, dtype=torch.float64, device=device),
        start_s=0.0,
        duration=0.0,
        source=path,
        decoded_by="pillow",
    )


def _upright_pixels(image: Any) -> np.ndarray:
    """uint8[H,W,3] of a Pillow image. (ImageOps.exif_transpose fails on an EXIF block that it cannot write again.)"""
    image.load()  # EXIF may come behind the pixels
    if image.mode.startswith("I"):  # 16 bits of grey, which convert() would clip
        pixels = np.repeat((np.array(image)[..., None] / 257).round().astype(np.uint8), 3, axis=2)
    else:
        pixels = np.array(image.convert("RGB"))
    orientation = image.getexif().get(EXIF_ORIENTATION, 1)
    if orientation in (5, 6, 7, 8):
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


def _resize(frames: torch.Tensor, size: tuple[int, int] | None) -> torch.Tensor:
    num_frames, height, width, _ = frames.shape
    if size is None or size == (height, width):
        return frames
    boxes = torch.tensor([[0, 0, width, height]]).expand(num_frames, 4)
    return crop_resize(frames, torch.arange(num_frames), boxes, out_hw=size)


def _no_frames(frame_hw: tuple[int, int]) -> torch.Tensor:
    return torch.empty(0, *frame_hw, 3, dtype=torch.uint8)
