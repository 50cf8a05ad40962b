"""Checkpoints of a run: written whole or not at all, the last one wins."""

from __future__ import annotations

import shutil
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from ser_fast.errors import InputError

NAME = "checkpoint-{:06d}"


def save(run: Path, step: int, **states: Any) -> None:
    """Writes `checkpoint-<step>` into a run's folder and removes the ones before it."""
    part, final = run / f".part-{NAME.format(step)}", run / NAME.format(step)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    torch.save(states, part / "state.pt")
    shutil.rmtree(final, ignore_errors=True)
    part.replace(final)
    for old in _all(run):
        if old != final:
            shutil.rmtree(old)


def latest(run: Path) -> tuple[int, dict[str, Any]] | None:
    """(step, states) of the last checkpoint; None where there is none. Folders that hold no state are none.

    Raises:
        InputError: the state cannot be read.
    """
    found = [folder for folder in _all(run) if (folder / "state.pt").exists()]
    if not found:
        return None
    try:
        states = torch.load(found[-1] / "state.pt", weights_only=True)
    except (RuntimeError, EOFError, UnpicklingError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{found[-1] / 'state.pt'}: cannot be read: {type(error).__name__}: {error}") from error
    if not isinstance(states, dict):
        raise InputError(f"{found[-1] / 'state.pt'}: expected states by name, got {type(states).__name__}")
    return int(_step(found[-1])), states


def resume(run: Path, **parts: Any) -> int:
    """Puts the states of the last checkpoint back into the parts that `save` was given the states of, by the same names.
    Returns its step, 0 where there is none.

    Raises:
        InputError: the state cannot be read, or is of something else.
    """
    if (found := latest(run)) is None:
        return 0
    step, states = found
    try:
        for name, part in parts.items():
            part.load_state_dict(states[name])
    except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{run / NAME.format(step) / 'state.pt'}: not of this model and optimizer: {type(error).__name__}: {error}"
        ) from error
    return step


def _all(run: Path) -> list[Path]:
    """By step; what is called otherwise is not ours."""
    return sorted((folder for folder in run.glob("checkpoint-*") if _step(folder).isdecimal()), key=lambda f: int(_step(f)))


def _step(folder: Path) -> str:
    return folder.name.rpartition("-")[2]
