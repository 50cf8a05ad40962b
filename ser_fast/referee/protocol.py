"""What a referee is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ser_fast.types import RefereeRequest, RefereeScores


class Referee(Protocol):
    """Judges claims one by one, in any number at a time; a claim's scores do not depend on its neighbours.

    What the referee cannot judge through no fault of the claim (a time-out, a refusal, a NaN) comes back as not valid with a
    reason. Errors are for bugs.
    """

    def score(self, requests: Sequence[RefereeRequest]) -> RefereeScores:
        """Scores for each request, in order."""
        ...
