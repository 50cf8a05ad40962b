"""Checks of arguments, one wording for all ops: the argument, what was expected, what came."""

from __future__ import annotations

from typing import Any

import torch

from ser_fast.types import Segments


def check_tensor(
    name: str,
    value: Any,
    *,
    shape: tuple[int | None, ...],
    dtypes: tuple[torch.dtype, ...] = (),
    device: torch.device | None = None,
) -> None:
    """Checks type, number of dimensions, fixed sizes (None: any), dtype (empty: any real one) and device (None: any)."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(value).__name__}")
    fits = value.ndim == len(shape) and all(want is None or want == got for want, got in zip(shape, value.shape, strict=True))
    if not fits:
        sizes = ", ".join("n" if size is None else str(size) for size in shape)
        raise ValueError(f"{name}: expected the shape [{sizes}], got {list(value.shape)}")
    if dtypes and value.dtype not in dtypes:
        wanted = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise ValueError(f"{name}: expected {wanted}, got {str(value.dtype).removeprefix('torch.')}")
    if not dtypes and (value.dtype.is_complex or value.dtype == torch.bool):
        raise ValueError(f"{name}: expected real numbers, got {str(value.dtype).removeprefix('torch.')}")
    if device is not None and value.device != device:
        raise ValueError(f"{name}: expected on {device}, got {value.device}")


def check_segments(name: str, value: Any, *, num_rows: int, device: torch.device) -> None:
    """Checks type, number of rows and device."""
    if not isinstance(value, Segments):
        raise TypeError(f"{name}: expected Segments, got {type(value).__name__}")
    if value.num_rows != num_rows:
        raise ValueError(f"{name}: expected segments of {num_rows} rows, got {value.num_rows}")
    if value.offsets.device != device:
        raise ValueError(f"{name}: expected offsets on {device}, got {value.offsets.device}")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Checks that a setting is one of those known."""
    if value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(choices)}, got {value!r}")


def float_dtype(*tensors: torch.Tensor) -> torch.dtype:
    """The dtype that an op computes and answers in: float64 where an argument is, else float32."""
    return torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32
