"""Fresh memory full of poison, so that an op that leaves an element unwritten is found out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch


@contextmanager
def poisoned_allocations() -> Iterator[None]:
    """torch.empty and Tensor.new_empty return NaN, or 0xA5 bytes for integers."""
    empty, new_empty = torch.empty, torch.Tensor.new_empty

    def fill(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_floating_point():
            return tensor.fill_(torch.nan)
        return tensor.fill_(165 if tensor.dtype == torch.uint8 else 1) if tensor.dtype != torch.bool else tensor.fill_(True)

    def poisoned_empty(*args: Any, **kwargs: Any) -> torch.Tensor:
        return fill(empty(*args, **kwargs))

    def poisoned_new_empty(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return fill(new_empty(self, *args, **kwargs))

    with mock.patch.object(torch, "empty", poisoned_empty), mock.patch.object(torch.Tensor, "new_empty", poisoned_new_empty):
        yield
