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

from ser_fast.errors import InputError
from ser_fast.jsonl import write_text

CONFIG = "config.json"


def open_run(folder: Path, config: Any, *, may_differ: tuple[str, ...] = (), fresh: bool = False) -> Path:
    """Makes a run's folder, or finds it as it was left.

    Args:
        folder: of the run; `config.json` in it says what it is.
        config: a dataclass.
        may_differ: fields that a run may change when it goes on.
        fresh: removes the run that is there first.

    Raises:
        InputError: the folder holds something else, or a run with other settings.
    """
    path = folder / CONFIG
    settings = json.loads(json.dumps(dataclasses.asdict(config), default=str))
    if fresh and path.exists():
        shutil.rmtree(folder)
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))
        for name in sorted(settings.keys() | known.keys()):
            if name not in may_differ and settings.get(name) != known.get(name):
                raise InputError(f"{folder}: a run with {name} {known.get(name)!r}, expected {settings.get(name)!r}")
    elif folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: not empty, and not the folder of a run ({CONFIG} is missing)")
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(settings, indent=1) + "\n")
    return folder


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
