"""What counts as a number from outside, and how a float32 is written."""

from __future__ import annotations

import struct
from typing import TypeGuard


def shortest_float32(number: float) -> float:
    """The number with the fewest digits that rounds to the same float32: 9.2 for 9.19999980926513671875."""
    exact = struct.pack("f", number)
    return next(n for digits in range(6, 18) if struct.pack("f", n := float(f"{number:.{digits}g}")) == exact)


def is_whole_number(value: object) -> TypeGuard[int]:
    """A whole JSON number; true and false are not numbers."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_finite_number(value: object) -> TypeGuard[float]:
    """A JSON number that is finite and fits a float; true and false are not numbers."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -1e300 < value < 1e300
