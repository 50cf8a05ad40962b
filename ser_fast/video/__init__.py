"""From files to frames with exact times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ser_fast.video.media import Limits

if TYPE_CHECKING:
    from ser_fast.video.clip import load_clip, load_image
    from ser_fast.video.folder import MediaFolder

__all__ = ["Limits", "MediaFolder", "load_clip", "load_image"]

_HOMES = {"load_clip": "clip", "load_image": "clip", "MediaFolder": "folder"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"ser_fast.video.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
