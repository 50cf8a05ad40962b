"""The folder of a run: what it is, how far it has come, and a signal to stop."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from filelock import FileLock, Timeout

from ser_fast.errors import InputError
from ser_fast.jsonl import write_text

RUN = "run.json"
"""What a run is: the preset and its settings."""
LOCK = ".lock"
"""Held by the process that works on the run."""
LOOKS = ("run", "fresh", "dry_run", "show_prompt")
"""Settings that a run may change when it goes on."""
INPUTS = ("model", "data", "videos", "held_out", "held_out_videos")
"""Settings that name what must not lie in the folder of a run that is removed."""


@contextmanager
def open_run(config: Any, *, may_differ: tuple[str, ...] = ()) -> Iterator[Path]:
    """Makes the folder of a run, or finds it as it was left; until the context is left, no other process may work on it.

    Args:
        config: a preset; its `run` is the folder, and `fresh`, if it has that, asks for the run that is there to be removed.
        may_differ: settings that a run may change when it goes on, beside LOOKS.

    Raises:
        InputError: the folder holds something else, or a run with other settings; a fresh start would remove an input; another
            process works on the run.
    """
    folder = Path(config.run)
    if hasattr(config, "model") and Path(config.model).resolve() == (folder / "model").resolve():
        raise InputError(f"model: expected another folder than {config.model}, where the run writes its own")
    if _read(folder) is None and folder.exists() and any(path.name != LOCK for path in folder.iterdir()):
        raise InputError(f"{folder}: not empty, and not the folder of a run ({RUN} is missing)")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(folder / LOCK, blocking=False).acquire()
    except Timeout:
        raise InputError(f"{folder}: another process works on this run") from None
    with lock:
        if getattr(config, "fresh", False):
            _remove(folder, config)
        preset, settings = type(config).__name__, json.loads(json.dumps(dataclasses.asdict(config), default=str))
        if (known := _read(folder)) is not None:
            _compare(folder, known, preset, settings, LOOKS + may_differ)
        write_text(folder / RUN, json.dumps({"preset": preset, "settings": settings}, indent=1) + "\n")
        yield folder


def _compare(folder: Path, known: dict[str, Any], preset: str, settings: dict[str, Any], may_differ: tuple[str, ...]) -> None:
    if known["preset"] != preset:
        raise InputError(f"{folder}: a run of {known['preset']}, expected one of {preset}")
    for name in sorted(settings.keys() | known["settings"].keys()):
        if name not in may_differ and settings.get(name) != known["settings"].get(name):
            raise InputError(f"{folder}: a run with {name} {known['settings'].get(name)!r}, expected {settings.get(name)!r}")


def _read(folder: Path) -> dict[str, Any] | None:
    """What a run wrote of itself; None where there is no such file."""
    path = folder / RUN
    if not path.exists():
        return None
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(known, dict) or not isinstance(known["settings"], dict) or not isinstance(known["preset"], str):
            raise ValueError("expected preset and settings")
    except (ValueError, KeyError, RecursionError) as error:
        raise InputError(f"{path}: not what a run writes: {error}") from error
    return known


def _remove(folder: Path, config: Any) -> None:
    if folder.is_symlink():
        raise InputError(f"{folder}: a link, and a fresh start removes no links")
    for name in INPUTS:
        value = getattr(config, name, None)
        if value is not None and Path(value).resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{name}: expected it outside of {folder}, which a fresh start removes, got {value}")
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


class Stop:
    """Set once the process has been asked to end."""

    asked = False


@contextmanager
def stop_on_sigterm() -> Iterator[Stop]:
    """SIGTERM is noted, not obeyed: whoever looks at it ends when it suits."""
    stop = Stop()

    def note(_signal: int, _frame: FrameType | None) -> None:
        stop.asked = True

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)
