"""What all tables are made of: ragged rows, and a `repr` that shows shapes."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ser_fast.numbers import is_whole_number

if TYPE_CHECKING:
    import torch


class ShapeRepr:
    """Prints shapes instead of data."""

    __slots__ = ()

    def __repr__(self) -> str:
        parts = []
        for item in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if hasattr(value, "shape") and hasattr(value, "dtype"):
                text = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
            elif isinstance(value, (tuple, list)) and len(value) > 8:
                text = f"<{len(value)} items>"
            else:
                text = repr(value)
            parts.append(f"{item.name}={text}")
        return f"{type(self).__name__}({', '.join(parts)})"


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Segments(ShapeRepr):
    """G consecutive runs of rows in a flat table: run g is rows offsets[g] to offsets[g + 1] - 1."""

    offsets: torch.Tensor
    """int64[G+1], starts at 0, never falls."""
    host: tuple[int, ...]
    """The same numbers on the host."""

    def __post_init__(self) -> None:
        import torch

        if torch.compiler.is_compiling():  # lengths are symbols there
            return
        rising = all(is_whole_number(n) for n in self.host) and list(self.host) == sorted(self.host)
        if not rising or self.host[:1] != (0,):
            raise ValueError(f"host: expected whole numbers that start at 0 and never fall, got {self.host!r:.80}")
        if self.offsets.dtype != torch.int64 or self.offsets.shape != (len(self.host),):
            got = f"{self.offsets.dtype}{list(self.offsets.shape)}".removeprefix("torch.")
            raise ValueError(f"offsets: expected int64[{len(self.host)}], got {got}")
        if self.offsets.device.type == "cpu" and self.offsets.tolist() != list(self.host):
            raise ValueError(f"offsets: expected those of host, {self.host!r:.80}, got {self.offsets.tolist()!r:.80}")

    @classmethod
    def from_lengths(cls, lengths: Iterable[int], *, device: torch.device | str = "cpu") -> Segments:
        """Builds segments from the number of rows in each run.

        Raises:
            ValueError: a length is negative or no whole number.
        """
        import torch

        lengths = list(lengths)
        if not all(is_whole_number(n) and n >= 0 for n in lengths):
            raise ValueError(f"lengths: expected whole numbers >= 0, got {lengths!r:.80}")
        host = (0, *itertools.accumulate(lengths))
        return cls(offsets=torch.tensor(host, dtype=torch.int64, device=device), host=host)

    def __len__(self) -> int:
        return len(self.host) - 1

    @property
    def num_rows(self) -> int:
        """Of all runs together."""
        return self.host[-1]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Rows in each run."""
        return tuple(b - a for a, b in itertools.pairwise(self.host))

    def rows(self, g: int) -> range:
        """The row numbers of run g."""
        return range(self.host[g], self.host[g + 1])

    def slice(self, g: int) -> slice:
        """The rows of run g, to index a table with."""
        return slice(self.host[g], self.host[g + 1])
