"""Figures of a run: one JSON line a step, and the same for TensorBoard."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ser_fast.errors import InputError
from ser_fast.jsonl import write_text


class Metrics:
    """Appends to a file. A run that resumes at a step forgets the lines from there on: they are written again."""

    def __init__(self, run: Path, *, first_step: int, name: str = "metrics.jsonl") -> None:
        run.mkdir(parents=True, exist_ok=True)
        self._path = run / name
        kept = [row for row in read_rows(self._path) if row.get("step", first_step) < first_step]
        write_text(self._path, "".join(f"{json.dumps(row)}\n" for row in kept))
        self._file = self._path.open("a", encoding="utf-8")

    def write(self, step: int, **figures: Any) -> None:
        """One line, on disk when this returns."""
        self._file.write(json.dumps({"step": step, **figures}) + "\n")
        self._file.flush()

    def rows(self) -> list[dict[str, Any]]:
        """All that is written."""
        return read_rows(self._path)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """What a run has written into a file of figures; none where there is no such file.

    Raises:
        InputError: a line is not a JSON object.
    """
    rows = []
    for number, line in enumerate(_whole_lines(path), 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path}:{number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise InputError(f"{path}:{number}: expected a JSON object, got {line[:40]!r}")
        rows.append(row)
    return rows


def _whole_lines(path: Path) -> list[str]:
    """A process that was killed may have left half a line at the end."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return text[: text.rfind("\n") + 1].splitlines()


class Board:
    """The numbers of a run as TensorBoard reads them; a run that resumes at a step takes back what came after it."""

    def __init__(self, run: Path, *, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # needs the package tensorboard

        self._writer: Any = SummaryWriter(str(run / "tensorboard"), purge_step=first_step)

    def write(self, step: int, group: str, figures: Mapping[str, Any]) -> None:
        """Those that are numbers; tables by name below their own."""
        for name, value in figures.items():
            if isinstance(value, Mapping):
                self.write(step, f"{group}/{name}", value)
            elif isinstance(value, (int, float)):
                self._writer.add_scalar(f"{group}/{name}", value, step)
        self._writer.flush()
