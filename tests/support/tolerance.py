"""Tolerances as functions: what may differ, and by how much, is said once."""

from __future__ import annotations

import torch


def exact(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Same dtype, shape and bits; NaN equals NaN. For integers, indices, offsets, uint8 pixels of the CPU kernels."""
    assert actual.dtype == expected.dtype, f"dtype {actual.dtype}, expected {expected.dtype}"
    assert actual.shape == expected.shape, f"shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    same = (actual == expected) | (actual.isnan() & expected.isnan()) if actual.is_floating_point() else actual == expected
    assert bool(same.all()), _worst(actual, expected)


def derived(actual: torch.Tensor, oracle: torch.Tensor, reference: torch.Tensor) -> None:
    """For floats: the error against a float64 oracle is at most twice that of a plain reference in the same dtype, plus a
    band of two roundings."""
    assert actual.dtype == reference.dtype, f"dtype {actual.dtype}, expected {reference.dtype}"
    assert actual.shape == oracle.shape, f"shape {tuple(actual.shape)}, expected {tuple(oracle.shape)}"
    band = 2 * torch.finfo(actual.dtype).eps * oracle.abs().max().clamp(min=1e-30)
    allowed = 2 * (reference.double() - oracle).abs().max() + band
    error = (actual.double() - oracle).abs().max()
    assert error <= allowed, f"error {error:.3e}, allowed {allowed:.3e}; {_worst(actual, oracle)}"


def _worst(actual: torch.Tensor, expected: torch.Tensor) -> str:
    difference = (actual.double() - expected.double()).abs().nan_to_num(torch.inf).flatten()
    at = int(difference.argmax())
    return (
        f"{int((difference > 0).sum())} of {difference.numel()} differ, most at {at}: "
        f"{actual.flatten()[at].item()}, expected {expected.flatten()[at].item()}"
    )
