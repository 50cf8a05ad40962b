"""crop_resize and crop_patchify against Pillow and transformers.

The oracles are Pillow's crop and resize and `Qwen2VLImageProcessorPil` on the crop. From 12.2 Pillow runs the vertical
pass first on very tall images, from 13 wherever the height shrinks much more than the width, and its bytes differ there; in the
range below the horizontal pass always comes first.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import PIL
import pytest
import torch
from packaging.version import Version
from PIL import Image

from ser_fast.ops import PatchSpec, crop_patchify, crop_resize
from tests.support.tolerance import exact

PILLOW_RANGE = ("11", "12.2")
NUM_QUICK, NUM_FULL = 300, 6000
PATCH_SIZES = (14, 16)

Content = Callable[[np.random.Generator, int, int], np.ndarray]


def _natural(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Smooth shades, edges and a little noise, as in a photograph."""
    y, x = np.mgrid[0:height, 0:width]
    phases = rng.uniform(0, 6, (3, 2))
    waves = [np.sin(x / (7 + 9 * c) + phases[c, 0]) + np.cos(y / (11 + 5 * c) + phases[c, 1]) for c in range(3)]
    image = (
        128 + 50 * np.stack(waves, axis=-1) + 60 * ((x // 23 + y // 31) % 2)[..., None] + rng.normal(0, 4, (height, width, 3))
    )
    return image.clip(0, 255).astype(np.uint8)


def _noise(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


def _checkerboard(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    y, x = np.mgrid[0:height, 0:width]
    cell = int(rng.integers(1, 4))
    return np.repeat((((x // cell + y // cell) % 2) * 255).astype(np.uint8)[..., None], 3, axis=2)


def _saturated(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    return np.where(rng.random((height, width, 3)) < 0.5, 0, 255).astype(np.uint8)


CONTENTS: dict[str, Content] = {"natural": _natural, "noise": _noise, "checkerboard": _checkerboard, "saturated": _saturated}


def test_the_pillow_at_hand_is_the_oracle() -> None:
    assert Version(PILLOW_RANGE[0]) <= Version(PIL.__version__) < Version(PILLOW_RANGE[1]), PIL.__version__


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("num", [NUM_QUICK, pytest.param(NUM_FULL, marks=pytest.mark.full)])
def test_uint8_stage_is_bit_equal_to_pillow(content: str, num: int, record_property: Callable[[str, object], None]) -> None:
    rng = random.Random(content)
    num_pixels = 0
    for frame, box in _frames_and_boxes(rng, CONTENTS[content], num):
        size = _log_uniform(rng, 1, 260), _log_uniform(rng, 1, 260)
        if rng.random() < 0.1:
            size = box[3] - box[1], size[1]  # one pass only
        actual = crop_resize(torch.from_numpy(frame)[None], torch.tensor([0]), torch.tensor([box]), out_hw=size, backend="cpu")
        expected = _pillow(frame, box, size)
        assert np.array_equal(actual[0].numpy(), expected), f"frame {frame.shape[:2]}, box {box}, size {size}"
        num_pixels += expected.size
    record_property("crops", num)
    record_property("values, all equal", num_pixels)


@pytest.mark.parametrize("patch_size", PATCH_SIZES)
@pytest.mark.parametrize("num", [NUM_QUICK // 3, pytest.param(NUM_FULL // 3, marks=pytest.mark.full)])
def test_rows_equal_the_processor_on_the_pillow_crop(
    patch_size: int, num: int, record_property: Callable[[str, object], None]
) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    mean, std = ((0.5,) * 3, (0.5,) * 3) if patch_size == 16 else (PatchSpec().image_mean, PatchSpec().image_std)
    limits = {"min_pixels": 4 * (2 * patch_size) ** 2, "max_pixels": 60 * (2 * patch_size) ** 2}
    spec = PatchSpec(patch_size=patch_size, image_mean=mean, image_std=std, **limits)
    processor = Qwen2VLImageProcessorPil(patch_size=patch_size, image_mean=mean, image_std=std, **limits)
    rng = random.Random(patch_size)
    worst = 0.0
    for content in CONTENTS.values():
        for frame, box in _frames_and_boxes(rng, content, num // len(CONTENTS)):
            x1, y1, x2, y2 = box
            if max(x2 - x1, y2 - y1) > 200 * min(x2 - x1, y2 - y1):
                continue  # the processor refuses such crops
            size = spec.fit(y2 - y1, x2 - x1)
            rows, grid = crop_patchify(
                torch.from_numpy(frame)[None], torch.tensor([0]), torch.tensor([box]), sizes=[size], spec=spec
            )
            expected = processor(Image.fromarray(frame).crop(box), return_tensors="pt")
            assert torch.equal(grid, expected["image_grid_thw"])
            worst = max(worst, float((rows - expected["pixel_values"]).abs().max()))
    assert worst <= 1e-6
    record_property("largest difference", f"{worst:.1e}")


@pytest.mark.parametrize("content", CONTENTS)
def test_reference_equals_the_kernel(content: str) -> None:
    rng = random.Random(content)
    for frame, box in _frames_and_boxes(rng, CONTENTS[content], 40):
        size = _log_uniform(rng, 1, 200), _log_uniform(rng, 1, 200)
        arguments = torch.from_numpy(frame)[None], torch.tensor([0]), torch.tensor([box])
        exact(crop_resize(*arguments, out_hw=size, backend="cpu"), crop_resize(*arguments, out_hw=size, backend="reference"))


def test_many_boxes_of_many_frames_come_out_in_order() -> None:
    frames = torch.randint(256, (5, 60, 80, 3), dtype=torch.uint8)
    spec = PatchSpec()
    frame_idx = torch.tensor([4, 0, 0, 2])
    boxes = torch.tensor([[0, 0, 80, 60], [5, 6, 30, 40], [79, 59, 80, 60], [0, 0, 1, 60]])
    sizes = [spec.fit(60, 80), (28, 84), (56, 28), (112, 28)]
    rows, grid = crop_patchify(frames, frame_idx, boxes, sizes=sizes, spec=spec)
    alone = [crop_patchify(frames, frame_idx[i : i + 1], boxes[i : i + 1], sizes=[sizes[i]], spec=spec)[0] for i in range(4)]
    exact(rows, torch.cat(alone))
    assert grid.tolist() == [[1, h // 14, w // 14] for h, w in sizes]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_rows_are_the_rounded_float_rows(dtype: torch.dtype) -> None:
    frames = torch.randint(256, (1, 50, 70, 3), dtype=torch.uint8)
    arguments = frames, torch.tensor([0]), torch.tensor([[3, 4, 60, 44]])
    options = {"sizes": [(56, 84)], "spec": PatchSpec()}
    exact(crop_patchify(*arguments, **options, dtype=dtype)[0], crop_patchify(*arguments, **options)[0].to(dtype))


def test_identity_crop_keeps_the_bytes() -> None:
    frames = torch.randint(256, (1, 33, 47, 3), dtype=torch.uint8)
    exact(crop_resize(frames, torch.tensor([0]), torch.tensor([[0, 0, 47, 33]]), out_hw=(33, 47)), frames)


def test_out_is_written_and_returned() -> None:
    frames = torch.randint(256, (1, 50, 70, 3), dtype=torch.uint8)
    arguments = frames, torch.tensor([0]), torch.tensor([[3, 4, 60, 44]])
    out = torch.full((24, PatchSpec().row_size), torch.nan)
    rows, _ = crop_patchify(*arguments, sizes=[(56, 84)], spec=PatchSpec(), out=out)
    assert rows is out
    exact(out, crop_patchify(*arguments, sizes=[(56, 84)], spec=PatchSpec())[0])
    image = torch.zeros(1, 5, 6, 3, dtype=torch.uint8)
    assert crop_resize(*arguments, out_hw=(5, 6), out=image) is image
    exact(image, crop_resize(*arguments, out_hw=(5, 6)))


STRIDED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "every other frame": lambda frames: frames[::2],
    "every other row": lambda frames: frames[:, ::2],
    "a part of each row": lambda frames: frames[:, :, 20:70],
    "one frame repeated": lambda frames: frames[:1].expand(4, -1, -1, -1),
    "every other pixel": lambda frames: frames[:, :, ::2],
    "channels first": lambda frames: frames.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1),
    "transposed": lambda frames: frames.transpose(1, 2),
}


@pytest.mark.parametrize("kind", STRIDED)
@pytest.mark.parametrize("size", [(28, 56), (28, 47), (28, 28)], ids=["two passes", "one pass", "none"])
def test_strided_frames(kind: str, size: tuple[int, int]) -> None:
    view = STRIDED[kind](torch.randint(256, (4, 80, 100, 3), dtype=torch.uint8))
    box = [3, 9, 31, 37] if size == (28, 28) else [3, 9, 50, 37]
    arguments = torch.tensor([1]), torch.tensor([box])
    exact(crop_resize(view, *arguments, out_hw=size), crop_resize(view.clone(), *arguments, out_hw=size, backend="reference"))
    options = {"sizes": [(28, 28)], "spec": PatchSpec()}
    rows, _ = crop_patchify(view, *arguments, **options)
    exact(rows, crop_patchify(view.clone(), *arguments, **options, backend="reference")[0])


def test_threads_do_not_change_the_bytes() -> None:
    frames = torch.randint(256, (3, 90, 120, 3), dtype=torch.uint8)
    boxes = torch.tensor([[i, i, 100 + i, 60 + i] for i in range(20)])
    arguments = frames, torch.arange(20) % 3, boxes
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        single = crop_resize(*arguments, out_hw=(50, 61))
        torch.set_num_threads(4)
        exact(crop_resize(*arguments, out_hw=(50, 61)), single)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("height_width", [(1, 1), (1, 4000), (360, 640), (56, 56), (3, 800), (1079, 1919), (28, 5600)])
def test_fit_is_smart_resize(height_width: tuple[int, int]) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    height, width = height_width
    for spec in (PatchSpec(), PatchSpec(patch_size=16, min_pixels=65536, max_pixels=200_000)):
        size = spec.fit(height, width)
        assert all(side % spec.factor == 0 and side > 0 for side in size)
        if width <= 200 * height:
            assert size == smart_resize(height, width, spec.factor, spec.min_pixels, spec.max_pixels)
    assert PatchSpec().fit(1080, 1920, max_pixels=100_000) == smart_resize(1080, 1920, 28, 3136, 100_000)


CONFIG = {
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.5, 0.6, 0.7],
    "min_pixels": 5000,
    "max_pixels": 70_000,
    "rescale_factor": 1 / 127.5,
}


def test_spec_from_a_config() -> None:
    assert PatchSpec.from_config(CONFIG) == PatchSpec(
        patch_size=16,
        image_mean=(0.5, 0.4, 0.3),
        image_std=(0.5, 0.6, 0.7),
        rescale_factor=1 / 127.5,
        min_pixels=5000,
        max_pixels=70_000,
    )
    sizes = {"min_pixels": None, "max_pixels": None, "size": {"shortest_edge": 4096, "longest_edge": 8192}}
    spec = PatchSpec.from_config(CONFIG | sizes)
    assert (spec.min_pixels, spec.max_pixels) == (4096, 8192)


def test_the_limit_of_the_spec_holds_against_a_wider_one() -> None:
    assert PatchSpec(max_pixels=100_000).fit(1080, 1920, max_pixels=10**6) == PatchSpec(max_pixels=100_000).fit(1080, 1920)


def test_rescaling_is_that_of_the_config() -> None:
    """Qwen2-VL processors divide by 255; another factor must not be lost."""
    frames = torch.full((1, 28, 28, 3), 51, dtype=torch.uint8)
    spec = PatchSpec(image_mean=(0.0, 0.0, 0.0), image_std=(1.0, 1.0, 1.0), rescale_factor=1 / 102)
    for backend in ("cpu", "reference"):
        rows, _ = crop_patchify(
            frames, torch.tensor([0]), torch.tensor([[0, 0, 28, 28]]), sizes=[(28, 28)], spec=spec, backend=backend
        )
        exact(rows, torch.full_like(rows, 0.5))


@pytest.mark.parametrize("temporal", [1, 3])
def test_other_temporal_patch_sizes(temporal: int) -> None:
    frames = torch.randint(256, (1, 40, 40, 3), dtype=torch.uint8)
    spec = PatchSpec(temporal_patch_size=temporal)
    arguments = frames, torch.tensor([0]), torch.tensor([[2, 3, 40, 30]])
    rows, _ = crop_patchify(*arguments, sizes=[(28, 56)], spec=spec)
    exact(rows, crop_patchify(*arguments, sizes=[(28, 56)], spec=spec, backend="reference")[0])
    slots = rows.reshape(8, 3, temporal, 14, 14)
    exact(slots, slots[:, :, :1].expand_as(slots).contiguous())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"patch_size": 0}, "patch_size: expected a whole number > 0, got 0"),
        ({"patch_size": None}, "patch_size: expected a whole number > 0, got None"),
        ({"merge_size": True}, "merge_size: expected a whole number > 0, got True"),
        ({"min_pixels": 80_000}, "min_pixels: expected at most max_pixels, 70000, got 80000"),
        ({"image_mean": [0.5, 0.5]}, r"image_mean: expected three numbers, got \(0.5, 0.5\)"),
        ({"image_mean": None}, "image_mean: expected three numbers, got None"),
        ({"image_std": [1.0, 0.0, 1.0]}, "image_std: expected numbers > 0"),
        ({"rescale_factor": None}, "rescale_factor: expected a number > 0, got None"),
        ({"resample": 2}, "resample: expected 3, got 2"),
        ({"do_resize": False}, "do_resize: expected True, got False"),
    ],
)
def test_specs_that_make_no_sense(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PatchSpec.from_config(CONFIG | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"frames": torch.zeros(1, 9, 9, 3)}, "frames: expected uint8, got float32"),
        ({"frames": torch.zeros(1, 3, 9, 9, dtype=torch.uint8)}, r"frames: expected the shape \[n, n, n, 3\]"),
        ({"frame_idx": torch.tensor([1])}, r"frame_idx\[0\]: expected 0 <= index < 1, got 1"),
        ({"frame_idx": torch.tensor([-1])}, r"frame_idx\[0\]: expected 0 <= index < 1, got -1"),
        ({"boxes": torch.tensor([[0.0, 0, 9, 9]])}, "boxes: expected int64 or int32, got float32"),
        ({"boxes": torch.tensor([[0, 0, 10, 9]])}, r"boxes\[0\]: expected a non-empty box inside a frame of 9 x 9"),
        ({"boxes": torch.tensor([[3, 3, 3, 9]])}, r"boxes\[0\]: expected a non-empty box"),
        ({"boxes": torch.tensor([[5, 0, 2, 9]])}, r"got x1 5, y1 0, x2 2, y2 9"),
        ({"sizes": [(28, 30)]}, r"sizes\[0\]: expected positive multiples of 28, got 28 x 30"),
        ({"sizes": []}, "sizes: expected one for each of 1 boxes, got 0"),
        ({"dtype": torch.float64}, "dtype: expected float32, bfloat16 or float16, got torch.float64"),
        ({"out": torch.zeros(3, 1176)}, r"out: expected the shape \[4, 1176\], got \[3, 1176\]"),
    ],
)
def test_errors(change: dict[str, object], message: str) -> None:
    arguments = {
        "frames": torch.zeros(1, 9, 9, 3, dtype=torch.uint8),
        "frame_idx": torch.tensor([0]),
        "boxes": torch.tensor([[0, 0, 9, 9]]),
        "sizes": [(28, 28)],
        "spec": PatchSpec(),
    } | change
    with pytest.raises(ValueError, match=message):
        crop_patchify(**arguments)  # type: ignore[arg-type]


def _log_uniform(rng: random.Random, low: int, high: int) -> int:
    return round(low * (high / low) ** rng.random())


def _frames_and_boxes(rng: random.Random, content: Content, num: int) -> list[tuple[np.ndarray, tuple[int, int, int, int]]]:
    """Frames of that content with a box each: from one pixel to the whole frame."""
    generator = np.random.default_rng(rng.randrange(1 << 30))
    pairs = []
    for i in range(num):
        height, width = _log_uniform(rng, 1, 300), _log_uniform(rng, 1, 400)
        box_height, box_width = _log_uniform(rng, 1, height), _log_uniform(rng, 1, width)
        if i % 7 == 0:
            box_height, box_width = height, width
        x, y = rng.randint(0, width - box_width), rng.randint(0, height - box_height)
        pairs.append((content(generator, height, width), (x, y, x + box_width, y + box_height)))
    return pairs


def _pillow(frame: np.ndarray, box: tuple[int, int, int, int], size: tuple[int, int]) -> np.ndarray:
    return np.asarray(Image.fromarray(frame).crop(box).resize(size[::-1], Image.Resampling.BICUBIC))
