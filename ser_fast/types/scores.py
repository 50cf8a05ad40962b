"""What referees are asked and answer, and what becomes of it. Letters: R responses, C claims."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ser_fast.numbers import shortest_float32
from ser_fast.text import escape_surrogates
from ser_fast.types.claims import ClaimBatch, ParseReport
from ser_fast.types.media import Box, Clip
from ser_fast.types.rollouts import Rollout
from ser_fast.types.tables import ShapeRepr

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class RefereeRequest:
    """One claim, put to a referee."""

    clip: Clip
    frame_idx: int
    """The frame of the clip in which the claim is judged."""
    boxes: tuple[Box, ...]
    """Pixels of that frame. The referee's crop is their hull with a margin."""
    name: str
    time_s: float
    question: str
    answer: str

    def __post_init__(self) -> None:
        if not 0 <= self.frame_idx < self.clip.frames.shape[0]:
            raise ValueError(f"frame_idx: expected 0 <= index < {self.clip.frames.shape[0]}, got {self.frame_idx}")
        height, width = self.clip.frame_hw
        inside = (0 <= x1 < x2 <= width and 0 <= y1 < y2 <= height for x1, y1, x2, y2 in self.boxes)
        if not self.boxes or not all(inside):
            raise ValueError(f"boxes: expected non-empty ones inside a frame of {height} x {width}, got {self.boxes}")


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class RefereeScores(ShapeRepr):
    """A referee's judgement of C claims."""

    relevance: torch.Tensor
    """float32[C] in [0, 1]: is the object needed for the answer."""
    localization: torch.Tensor
    """float32[C] in [0, 1]: does the box hold it, tightly."""
    level_mass: torch.Tensor
    """float32[C]: probability on the level tokens before renormalising, the smaller of the two axes. Near 0 the referee does
    not answer in levels, and its scores mean nothing."""
    valid: torch.Tensor
    """bool[C]."""
    reasons: tuple[str | None, ...]
    """Why a claim is not valid."""

    def __post_init__(self) -> None:
        num = len(self.reasons)
        for name in ("relevance", "localization", "level_mass", "valid"):
            value, kind = getattr(self, name), "bool" if name == "valid" else "float32"
            if value.shape != (num,) or str(value.dtype) != f"torch.{kind}":
                got = f"{value.dtype}{list(value.shape)}".removeprefix("torch.")
                raise ValueError(f"{name}: expected {kind}[{num}], as many as reasons, got {got}")


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class RewardTable(ShapeRepr):
    """Rewards of R responses. What cannot be scored is NaN, never 0."""

    total: torch.Tensor
    """float32[R]: weighted sum of the parts; NaN where valid is False."""
    parts: Mapping[str, torch.Tensor]
    """name -> float32[R], unweighted; NaN where system faults leave nothing to score."""
    valid: torch.Tensor
    """bool[R]: no part that has a weight is NaN."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ScoredRollouts(ShapeRepr):
    """The outcome of `score_rollouts`, row by row the rollouts that went in."""

    rollouts: tuple[Rollout, ...]
    table: RewardTable
    claims: ClaimBatch
    report: ParseReport
    scores: RefereeScores
    """One row a claim; NaN for claims that were not put to the referee."""
    penalty: torch.Tensor
    """float32[C] in [0, 1]: temporal penalty."""
    claim_reward: torch.Tensor
    """float32[C]; 0 for a policy fault, NaN for a system fault."""
    faults: tuple[str | None, ...]
    """Per claim: a `PolicyFault`, a `SystemFault` with its details, or None where the claim was scored."""
    reasons: tuple[str | None, ...]
    """Per response: why it is not valid."""
    timings: Mapping[str, float] = field(default_factory=dict)
    """Seconds by stage, for the whole batch."""

    def __len__(self) -> int:
        return len(self.rollouts)

    def to_json_lines(self, *, timings: bool = True) -> list[str]:
        """One JSON object a response, in the order of the rollouts; `timings=False` leaves out what differs from run to run."""
        return [self._json_line(r, timings) for r in range(len(self))]

    def _json_line(self, r: int, timings: bool) -> str:
        line: dict[str, Any] = {
            "schema": 1,
            "id": self.rollouts[r].id,
            "valid": bool(self.table.valid[r]),
            "total": _json_number(self.table.total[r]),
            "parts": {name: _json_number(part[r]) for name, part in self.table.parts.items()},
            "reason": self.reasons[r],
            "claims": [self._json_claim(c) for c in self.claims.responses.rows(r)],
            "rejected": [{"reason": str(claim.reason), "text": claim.text} for claim in self.report.rejected_claims(r)],
        }
        if timings:
            line["timings"] = {stage: round(seconds, 6) for stage, seconds in self.timings.items()}
        return escape_surrogates(json.dumps(line, ensure_ascii=False))

    def _json_claim(self, c: int) -> dict[str, Any]:
        return {
            "name": self.claims.name(c),
            "time_s": shortest_float32(float(self.claims.time_s[c])),
            "boxes": [[shortest_float32(value) for value in box] for box in self.claims.claim_boxes(c)],
            "relevance": _json_number(self.scores.relevance[c]),
            "localization": _json_number(self.scores.localization[c]),
            "penalty": _json_number(self.penalty[c]),
            "reward": _json_number(self.claim_reward[c]),
            "fault": self.faults[c],
        }


def _json_number(value: torch.Tensor) -> float | None:
    """A float32 score or reward to seven digits; None for NaN, which JSON does not have."""
    number = float(value)
    return None if math.isnan(number) else float(f"{number:.7g}")
