"""What crop_patchify and crop_resize share: the patch layout, the checks, and Pillow's resize as two matrix products."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ser_fast.numbers import is_finite_number, is_whole_number
from ser_fast.ops.checks import check_tensor

INTEGERS = (torch.int64, torch.int32)
WEIGHT_BITS = 22


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchSpec:
    """How a vision tower wants its pixels: the numbers of a `preprocessor_config.json` of the Qwen-VL family."""

    patch_size: int = 14
    temporal_patch_size: int = 2
    """An image fills this many temporal slots with copies of itself."""
    merge_size: int = 2
    """Patches are ordered in blocks of merge_size x merge_size, which become one token."""
    image_mean: tuple[float, float, float] = (0.48145466, 0.4578275, 0.40821073)
    image_std: tuple[float, float, float] = (0.26862954, 0.26130258, 0.27577711)
    rescale_factor: float = 1 / 255
    min_pixels: int = 56 * 56
    max_pixels: int = 28 * 28 * 1280

    def __post_init__(self) -> None:
        for key in ("patch_size", "temporal_patch_size", "merge_size", "min_pixels", "max_pixels"):
            value = getattr(self, key)
            if not is_whole_number(value) or value < 1:
                raise ValueError(f"{key}: expected a whole number > 0, got {value!r}")
        if self.min_pixels > self.max_pixels:
            raise ValueError(f"min_pixels: expected at most max_pixels, {self.max_pixels}, got {self.min_pixels}")
        for key in ("image_mean", "image_std"):
            value = getattr(self, key)
            if not isinstance(value, tuple) or len(value) != 3 or not all(map(is_finite_number, value)):
                raise ValueError(f"{key}: expected three numbers, got {value!r}")
        if min(self.image_std) <= 0:
            raise ValueError(f"image_std: expected numbers > 0, got {self.image_std!r}")
        if not is_finite_number(self.rescale_factor) or self.rescale_factor <= 0:
            raise ValueError(f"rescale_factor: expected a number > 0, got {self.rescale_factor!r}")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> PatchSpec:
        """Reads a `preprocessor_config.json`; size limits as min_pixels and max_pixels or, where those are null, as size.

        Raises:
            ValueError: a setting that this layout does not know (another resampling filter, no resizing or normalising), or
                one that is missing or no such number.
        """
        size = config.get("size")
        size = size if isinstance(size, dict) else {}
        wanted = {"do_resize": True, "do_rescale": True, "do_normalize": True, "resample": 3}
        for key, value in wanted.items():
            if config.get(key, value) != value:
                raise ValueError(f"{key}: expected {value}, got {config[key]!r}")
        keys = ("patch_size", "temporal_patch_size", "merge_size", "min_pixels", "max_pixels", "image_mean", "image_std")
        values: dict[str, Any] = {key: config.get(key) for key in keys}
        for key, edge in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")):
            if values[key] is None:
                values[key] = size.get(edge)
        for key in ("image_mean", "image_std"):
            values[key] = tuple(values[key]) if isinstance(values[key], list | tuple) else values[key]
        return cls(rescale_factor=config.get("rescale_factor", 1 / 255), **values)

    @property
    def factor(self) -> int:
        """Both sides of an image are multiples of this."""
        return self.patch_size * self.merge_size

    @property
    def row_size(self) -> int:
        """Values in one patch row."""
        return 3 * self.temporal_patch_size * self.patch_size**2

    def fit(self, height: int, width: int, *, max_pixels: int | None = None) -> tuple[int, int]:
        """(height, width) to resize to: multiples of `factor`, area about between min_pixels and max_pixels, ratio about kept.

        The arithmetic of transformers' smart_resize (round half to even), without its limit of 200 on the ratio. As there the
        limits are missed where no multiples of `factor` meet both, or where the shorter side is `factor` already.

        Raises:
            ValueError: a size < 1, or max_pixels < 1.
        """
        for name, value in (("height", height), ("width", width), ("max_pixels", max_pixels)):
            if value is not None and value < 1:
                raise ValueError(f"{name}: expected a number >= 1, got {value}")
        factor, limit = self.factor, self.max_pixels if max_pixels is None else min(self.max_pixels, max_pixels)
        rows, columns = round(height / factor) * factor, round(width / factor) * factor
        if rows * columns > limit:
            shrink = math.sqrt(height * width / limit)
            rows, columns = (max(factor, math.floor(side / shrink / factor) * factor) for side in (height, width))
        elif rows * columns < self.min_pixels:
            grow = math.sqrt(self.min_pixels / (height * width))
            rows, columns = (math.ceil(side * grow / factor) * factor for side in (height, width))
        return rows, columns

    def grid(self, height: int, width: int) -> tuple[int, int, int]:
        """(1, rows, columns) of patches of an image of this size."""
        return 1, height // self.patch_size, width // self.patch_size

    def num_tokens(self, height: int, width: int) -> int:
        """Tokens that the language model sees for an image of this size."""
        return height * width // self.factor**2


def num_patches(sizes: Sequence[int], patch: int) -> int:
    """Rows of patches of all images; sizes is a flat list of heights and widths."""
    return sum((height // patch) * (width // patch) for height, width in zip(sizes[::2], sizes[1::2], strict=True))


@functools.lru_cache(maxsize=32)
def level_table(mean: tuple[float, ...], std: tuple[float, ...], rescale_factor: float, dtype: torch.dtype) -> torch.Tensor:
    """[3, 256]: normalised value of each grey level in each channel, in the arithmetic of the HF processors (float32)."""
    levels = (torch.arange(256, dtype=torch.float64) * rescale_factor).float()
    mean_C, std_C = torch.tensor([mean, std], dtype=torch.float32)
    table = (levels[None, :] - mean_C[:, None]) / std_C[:, None]
    return table.to(dtype).contiguous()


def check_crops(
    frames: torch.Tensor, frame_idx: torch.Tensor, boxes: torch.Tensor, sizes: Sequence[tuple[int, int]], multiple: int
) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Checks the arguments of a crop op; returns frame_idx and boxes as contiguous int64 and the sizes as a flat list."""
    check_tensor("frames", frames, shape=(None, None, None, 3), dtypes=(torch.uint8,))
    check_tensor("boxes", boxes, shape=(None, 4), dtypes=INTEGERS)
    num_boxes = boxes.shape[0]
    check_tensor("frame_idx", frame_idx, shape=(num_boxes,), dtypes=INTEGERS)
    for name, value in (("frame_idx", frame_idx), ("boxes", boxes)):
        if value.device.type != "cpu":
            raise ValueError(f"{name}: expected on the host, since it decides sizes, got {value.device}")
    if len(sizes) != num_boxes:
        raise ValueError(f"sizes: expected one for each of {num_boxes} boxes, got {len(sizes)}")
    num_frames, height, width, _ = frames.shape
    for i, (frame, (x1, y1, x2, y2)) in enumerate(zip(frame_idx.tolist(), boxes.tolist(), strict=True)):
        if not 0 <= frame < num_frames:
            raise ValueError(f"frame_idx[{i}]: expected 0 <= index < {num_frames}, got {frame}")
        if not (0 <= x1 < x2 <= width and 0 <= y1 < y2 <= height):
            raise ValueError(
                f"boxes[{i}]: expected a non-empty box inside a frame of {height} x {width} (height x width),"
                f" got x1 {x1}, y1 {y1}, x2 {x2}, y2 {y2}"
            )
    for i, (rows, columns) in enumerate(sizes):
        if rows < 1 or columns < 1 or rows % multiple or columns % multiple:
            raise ValueError(f"sizes[{i}]: expected positive multiples of {multiple}, got {rows} x {columns}")
    flat = [int(side) for size in sizes for side in size]
    return frame_idx.to(torch.int64).contiguous(), boxes.to(torch.int64).contiguous(), flat


def resized_crops(
    frames: torch.Tensor, frame_idx: torch.Tensor, boxes: torch.Tensor, sizes: Sequence[int]
) -> Iterable[torch.Tensor]:
    """Each crop resized, uint8[height, width, 3]: the reference of both ops."""
    targets = list(zip(sizes[::2], sizes[1::2], strict=True))
    for frame, box, (height, width) in zip(frame_idx.tolist(), boxes.tolist(), targets, strict=True):
        x1, y1, x2, y2 = box
        image = frames[frame, y1:y2, x1:x2].permute(2, 0, 1)
        if image.shape[2] != width:
            image = _round(image.double() @ _weights(image.shape[2], width).to(frames.device).T)
        if image.shape[1] != height:
            image = _round(_weights(image.shape[1], height).to(frames.device) @ image.double())
        yield image.permute(1, 2, 0)


def _round(sums: torch.Tensor) -> torch.Tensor:
    """Fixed-point sums -> uint8: half up, clamped. The sums are whole numbers below 2^53, so float64 holds them exactly."""
    return ((sums + (1 << (WEIGHT_BITS - 1))) / (1 << WEIGHT_BITS)).floor().clamp(0, 255).to(torch.uint8)


@functools.lru_cache(maxsize=32)  # some megabytes each at worst
def _weights(size_in: int, size_out: int) -> torch.Tensor:
    """float64[out, in] of whole numbers: Pillow's antialiased bicubic weights of one axis in units of 2^-22."""
    scale = size_in / size_out
    stretch = max(scale, 1.0)
    support = 2.0 * stretch
    center = (torch.arange(size_out, dtype=torch.float64) + 0.5) * scale
    first = (center - support + 0.5).trunc().clamp(min=0).long()
    last = (center + support + 0.5).trunc().clamp(max=size_in).long()
    taps = first[:, None] + torch.arange(int((last - first).max()))
    inside = taps < last[:, None]
    exact = torch.where(inside, _cubic((taps - center[:, None] + 0.5) * (1.0 / stretch)), 0.0)
    total = torch.zeros(size_out, dtype=torch.float64)
    for column in exact.T:  # in Pillow's order: the last bit of the sum decides some weights
        total += column
    fixed = exact / total[:, None] * (1 << WEIGHT_BITS)
    whole = torch.where(fixed < 0, fixed - 0.5, fixed + 0.5).trunc()
    weights = torch.zeros(size_out, size_in, dtype=torch.float64)
    return weights.scatter_add_(1, taps.clamp(max=size_in - 1), torch.where(inside, whole, 0.0))


def _cubic(x: torch.Tensor) -> torch.Tensor:
    """Keys' cubic with a = -0.5."""
    a = -0.5
    x = x.abs()
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return torch.where(x < 1.0, near, torch.where(x < 2.0, far, 0.0))
