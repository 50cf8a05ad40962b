"""The table of ops: what each is called, which kernels it has, where they run, and which inputs prove them.

An op is registered with torch.library under `ser_fast::`, so that torch.compile and opcheck see it. Behind that one boundary
`run` picks a kernel: `backend="auto"` walks the declared order, a named backend runs or raises. A kernel that raises is a
bug or a bad argument, never a reason to try the next.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from ser_fast.errors import BackendUnavailable

logger = logging.getLogger("ser_fast")

LIBRARY: Any = torch.library.Library("ser_fast", "DEF")  # type: ignore[no-untyped-call]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
    """One implementation of an op."""

    name: str
    run: Callable[..., Any]
    """Takes the op's arguments without `backend`."""
    devices: tuple[str, ...]
    """Device types of the first tensor that it takes."""
    why_missing: Callable[[], str | None] = lambda: None
    """Why it cannot run in this process at all; None where it can."""

    def refusal(self, device: str) -> str | None:
        """Why it cannot run on a device; None where it can."""
        if device not in self.devices:
            return f"runs on {' and '.join(self.devices)}, not on {device}"
        return self.why_missing()


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One input that tests, opcheck and benchmarks use."""

    id: str
    args: tuple[Any, ...]
    """Arguments of the registered op, without `backend`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Op:
    """One registered op."""

    name: str
    public: str
    """The function of `ser_fast.ops` that calls it."""
    signature: str
    """Schema behind the name, without `backend`: "(Tensor a, Tensor b) -> Tensor"."""
    kernels: tuple[Kernel, ...]
    """In order of preference."""
    fake: Callable[..., Any]
    """Shapes and dtypes of the result, from those of the arguments."""
    cases: Callable[[], Iterable[Case]]
    differentiable: bool = False
    """Has a gradient of its own, registered beside it. The others' results never require one, whatever goes in."""

    def __call__(self, *args: Any, backend: str = "auto") -> Any:
        """Calls the registered op."""
        return getattr(torch.ops.ser_fast, self.name)(*args, backend)

    def select(self, backend: str, device: str) -> Kernel:
        """The kernel that `backend` means on a device.

        Raises:
            BackendUnavailable: the named backend cannot run there, or none can; lists every candidate with its reason.
        """
        backend = (os.environ.get("SER_FAST_BACKEND") or "auto") if backend == "auto" else backend
        for kernel in self.kernels:
            if backend not in ("auto", kernel.name):
                continue
            if kernel.refusal(device) is None:
                return kernel
            if backend == "auto" and (reason := kernel.why_missing()) is not None:
                _warn_once(f"{self.name}: {kernel.name} kernel skipped: {reason}")
        reasons = "; ".join(f"{k.name}: {k.refusal(device) or 'available'}" for k in self.kernels)
        raise BackendUnavailable(f"{self.name}: no backend {backend!r} for {device} tensors ({reasons})")


OPS: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Adds an op to torch.library and to the table."""
    arguments, arrow, result = op.signature.rpartition(" -> ")
    LIBRARY.define(f"{op.name}{arguments[:-1]}, str backend){arrow}{result}")

    def run(*args: Any) -> Any:
        *inputs, backend = args
        device = inputs[0].device.type
        with torch.autocast(device, enabled=False):  # an op computes in the dtype that it states
            return op.select(backend, device).run(*inputs)

    def fake(*args: Any) -> Any:
        return op.fake(*args[:-1])

    def without_gradient(*args: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            result = op(*args[:-1], backend=args[-1])
        if "(a!)" in op.signature:  # written into: autograd must not use what stood there before
            torch.autograd.graph.increment_version(args[-2])
        return result

    LIBRARY.impl(op.name, run, "CompositeExplicitAutograd")
    if not op.differentiable:
        LIBRARY.impl(op.name, without_gradient, "Autograd")
    torch.library.register_fake(f"ser_fast::{op.name}", fake, lib=LIBRARY)
    OPS[op.name] = op
    return op


def into_fresh(write: Callable[..., None], allocate: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A kernel that returns its result, made of one that writes it into its last argument."""

    def run(*args: Any) -> torch.Tensor:
        out = allocate(*args)
        write(*args, out)
        return out

    return run


@functools.cache
def _warn_once(message: str) -> None:
    logger.warning(message)
