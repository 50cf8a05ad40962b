"""Progress of a run with the time that is left: bars in a terminal; elsewhere, and from several processes at once, lines."""

from __future__ import annotations

import math
import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

TELL_EVERY_S = 20.0
"""Between two lines."""
ESTIMATE_S = 3600.0
"""The time left is told from the steps of so long a time: one may take minutes."""


class Progress:
    """To be entered; then called after each step. A stage that begins at a later step goes on with an earlier run."""

    def __init__(self, *, bars: bool = True) -> None:
        """bars: in a terminal; else lines everywhere."""
        console = Console()
        self._bars: Bars | None = None
        if bars and console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            left = (TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[figures]}"))
            self._bars = Bars(*columns, *left, speed_estimate_period=ESTIMATE_S)
        self._tasks: dict[str, TaskID] = {}
        self._begin: dict[str, tuple[float, int]] = {}
        self._told = -math.inf

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, stage: str, step: int, num_steps: int, loss: float | None = None, **figures: float | None) -> None:
        """A step of a stage is done; loss and figures are shown."""
        figures = {"loss": loss, **figures}
        text = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in figures.items() if value is not None)
        now = time.perf_counter()
        if self._bars is not None:
            if stage not in self._tasks:
                self._tasks[stage] = self._bars.add_task(stage, total=num_steps, completed=step, figures=text)
            self._bars.update(self._tasks[stage], completed=step + 1, figures=text)
        elif now - self._told >= TELL_EVERY_S or step + 1 == num_steps or stage not in self._begin:
            began, first = self._begin.setdefault(stage, (now, step))
            a_step = (now - began) / max(1, step - first)
            left = f"{a_step * (num_steps - step - 1) / 60:.0f} min left" if step > first else "begun"
            print(", ".join(filter(None, (f"{stage}: step {step + 1} of {num_steps}", text, left))), flush=True)
            self._told = now
