"""Figures of a run: one JSON line a step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Metrics:
    """Appends to `metrics.jsonl`. A run that resumes at a step forgets the lines from there on: they are written again."""

    def __init__(self, run: Path, *, first_step: int) -> None:
        run.mkdir(parents=True, exist_ok=True)
        path = run / "metrics.jsonl"
        kept = [line for line in _whole_lines(path) if json.loads(line)["step"] < first_step]
        path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        self._file = path.open("a", encoding="utf-8")

    def write(self, step: int, **figures: Any) -> None:
        """One line, on disk when this returns."""
        self._file.write(json.dumps({"step": step, **figures}) + "\n")
        self._file.flush()


def _whole_lines(path: Path) -> list[str]:
    """A process that was killed may have left half a line at the end."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return text[: text.rfind("\n") + 1].splitlines()
