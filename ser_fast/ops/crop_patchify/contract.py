"""Schemas, fakes and cases of crop_patchify."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ser_fast import _native
from ser_fast.ops.crop_patchify import kernel_cpu, reference
from ser_fast.ops.crops import PatchSpec, num_patches
from ser_fast.ops.registry import Case, Kernel, Op, into_fresh, register

_ARGUMENTS = (
    "Tensor frames, Tensor frame_idx, Tensor boxes, SymInt[] sizes, int patch, int temporal, int merge,"
    " float[] mean, float[] std, float rescale_factor, ScalarType dtype"
)


def _fake(frames: torch.Tensor, *rest: Any) -> torch.Tensor:
    sizes, patch, temporal, dtype = rest[2], rest[3], rest[4], rest[9]
    return frames.new_empty((num_patches(sizes, patch), 3 * temporal * patch * patch), dtype=dtype)


def _out_fake(*_: Any) -> None:
    return None


def _cases() -> Iterator[Case]:
    frames = torch.randint(256, (2, 50, 70, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    frame_idx = torch.tensor([0, 1, 1])
    boxes = torch.tensor([[0, 0, 70, 50], [3, 5, 40, 33], [69, 49, 70, 50]])
    for name, spec in {"patch14": PatchSpec(), "patch16": PatchSpec(patch_size=16)}.items():
        factor = spec.factor
        sizes = [2 * factor, 3 * factor, factor, factor, factor, 2 * factor]
        layout = (spec.patch_size, spec.temporal_patch_size, spec.merge_size)
        values = (list(spec.image_mean), list(spec.image_std), spec.rescale_factor)
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            dtype_name = str(dtype).removeprefix("torch.")
            yield Case(id=f"{name}-{dtype_name}", args=(frames, frame_idx, boxes, sizes, *layout, *values, dtype))
        yield Case(
            id=f"{name}-strided",
            args=(frames.flip(2), frame_idx[:1], boxes[:1], sizes[:2], *layout, *values, torch.float32),
        )
        yield Case(id=f"{name}-empty", args=(frames, frame_idx[:0], boxes[:0], [], *layout, *values, torch.float32))


def _out_cases() -> Iterator[Case]:
    for case in _cases():
        yield Case(id=case.id, args=(*case.args, _fake(*case.args)))


OP = register(
    Op(
        name="crop_patchify",
        public="crop_patchify",
        signature=f"({_ARGUMENTS}) -> Tensor",
        kernels=(
            Kernel(
                name="cpu",
                run=into_fresh(kernel_cpu.crop_patchify, _fake),
                devices=("cpu",),
                why_missing=_native.why_unavailable,
            ),
            Kernel(name="reference", run=into_fresh(reference.crop_patchify, _fake), devices=("cpu", "cuda")),
        ),
        fake=_fake,
        cases=_cases,
    )
)

OUT_OP = register(
    Op(
        name="crop_patchify_out",
        public="crop_patchify",
        signature=f"({_ARGUMENTS}, Tensor(a!) out) -> ()",
        kernels=(
            Kernel(name="cpu", run=kernel_cpu.crop_patchify, devices=("cpu",), why_missing=_native.why_unavailable),
            Kernel(name="reference", run=reference.crop_patchify, devices=("cpu", "cuda")),
        ),
        fake=_out_fake,
        cases=_out_cases,
    )
)
