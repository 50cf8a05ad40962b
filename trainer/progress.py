"""Lines of progress with the time that is left: readable in a terminal, in a log, and from several processes at once."""

from __future__ import annotations

import time

TELL_EVERY = 50


class Progress:
    """Prints a line now and then."""

    def __init__(self) -> None:
        self._stage, self._begin, self._first = "", 0.0, 0

    def __call__(self, stage: str, step: int, num_steps: int, loss: float) -> None:
        """A step of a stage is done."""
        if stage != self._stage:
            self._stage, self._begin, self._first = stage, time.perf_counter(), step
        if (step + 1) % TELL_EVERY == 0 or step + 1 == num_steps:
            a_step = (time.perf_counter() - self._begin) / max(1, step - self._first)
            left = a_step * (num_steps - step - 1) / 60
            print(f"{stage}: step {step + 1} of {num_steps}, loss {loss:.3f}, {left:.0f} min left in this stage", flush=True)
