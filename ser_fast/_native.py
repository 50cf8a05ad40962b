"""The compiled part. Importing this module never fails; using what is missing does, with the remedy."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

_core: ModuleType | None = None
_why_missing: str | None = None
try:
    _core = importlib.import_module("ser_fast._core")
except ImportError as error:
    _why_missing = f"the compiled library ser_fast._core cannot be loaded ({error}); reinstall with `pip install .`"


def why_unavailable() -> str | None:
    """Why the compiled library is not there; None where it is."""
    return _why_missing


def call(name: str, *args: Any) -> Any:
    """Calls a function of the compiled library.

    Raises:
        ImportError: the library is not there; the message says why and what to do.
    """
    if _core is None:
        raise ImportError(_why_missing)
    return getattr(_core, name)(*args)
