"""What this installation can do: every op and kernel, versions, devices."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping
from typing import Any

import torch

import ser_fast.ops  # noqa: F401  (fills the table)
from ser_fast import _native
from ser_fast.ops.registry import OPS

PACKAGES = ("ser-fast", "torch", "triton", "transformers", "tokenizers", "av", "numpy", "pillow", "nvidia-dali-cuda130")

UNVERIFIED = "unverified on GPU"

GPU_FIGURES: Mapping[str, str] = {}
"""Setting -> the committed file under bench/results that has its figure from a GPU."""

GPU_SETTINGS = ("referee: packed rows, SDPA with the dense tree mask", "ops: reference kernels on CUDA tensors")


def collect() -> dict[str, Any]:
    """Everything `ser-fast info` prints, ready for JSON."""
    devices = ["cpu"] + [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    kinds = sorted({device.partition(":")[0] for device in devices} | {"cuda"}, key=["cpu", "cuda"].index)
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "native": _native.why_unavailable() or "loaded",
        "devices": {device: _device_name(device) for device in devices},
        "threads": torch.get_num_threads(),
        "ops": {
            name: {kernel.name: {kind: kernel.refusal(kind) or "available" for kind in kinds} for kernel in op.kernels}
            for name, op in sorted(OPS.items())
        },
        "gpu": {setting: GPU_FIGURES.get(setting, UNVERIFIED) for setting in GPU_SETTINGS},
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.processor() or platform.machine()
