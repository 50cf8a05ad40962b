"""Settings that make no sense are told before a run begins."""

from __future__ import annotations

import math

from ser_fast.errors import InputError


def check_counts(**values: int) -> None:
    """Raises InputError for one that is not above 0; values by the name of their setting."""
    for name, value in values.items():
        if value < 1:
            raise InputError(f"{name}: expected a whole number > 0, got {value}")


def check_positive(*, or_zero: bool = False, **values: float) -> None:
    """Raises InputError for one that is not a finite number above 0."""
    for name, value in values.items():
        if not (0 <= value < math.inf and (or_zero or value)):
            raise InputError(f"{name}: expected a number {'>=' if or_zero else '>'} 0, got {value}")
