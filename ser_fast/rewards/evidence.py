"""The evidence part: SER, the Semantic Evidence Reward.

The paper (arXiv 2606.24726) is public as an abstract: relevance and localization by a referee, a temporal penalty, sparse
evidence. The formula and every number here are our reconstruction, none is the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from ser_fast.ops import EvidenceReward, evidence_reward, temporal_penalty
from ser_fast.ops.checks import check_choice
from ser_fast.ops.evidence_reward import check_rule
from ser_fast.ops.temporal_penalty import MODES, UNITS
from ser_fast.types import ClaimBatch, ParseReport, RefereeScores, Segments


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceConfig:
    """How claim scores become the evidence part."""

    combine: Literal["product", "mean", "gate"] = "product"
    """Of relevance and localization; see `ops.evidence_reward`."""
    combine_weight: float = 0.5
    """Weight of relevance in "mean", its threshold in "gate"."""
    penalty_form: Literal["scale", "subtract"] = "scale"
    penalty_weight: float = 0.5
    """Of the penalty when it is subtracted."""
    cap: int = 8
    """Claims scored in one response (K)."""
    count_cost: float = 0.1
    """Cost per K claims beyond the cap."""
    penalty_mode: Literal["snap", "points", "interval"] = "snap"
    """What a cited time is held against: the frames that the policy saw, or the question's key times or interval."""
    sigma: float = 1.0
    """Width of the Gaussian of "points" and "interval"."""
    penalty_unit: Literal["seconds", "spacing", "duration"] = "seconds"

    def __post_init__(self) -> None:
        check_rule(self.combine, self.combine_weight, self.penalty_form, self.penalty_weight, self.cap, self.count_cost)
        check_choice("penalty_mode", self.penalty_mode, MODES)
        check_choice("penalty_unit", self.penalty_unit, UNITS)
        if not self.sigma > 0:
            raise ValueError(f"sigma: expected a number > 0, got {self.sigma}")


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeLabels:
    """What the times of R responses are held against, a tuple each."""

    duration: Sequence[float]
    frame_times: Sequence[Sequence[float]]
    """Of the frames that the policy saw, ascending."""
    key_times: Sequence[Sequence[float]]
    intervals: Sequence[Sequence[tuple[float, float]]]


def claim_penalty(claims: ClaimBatch, labels: TimeLabels, config: EvidenceConfig) -> torch.Tensor:
    """float32[C] temporal penalty of each claim; see `ops.temporal_penalty`."""
    return temporal_penalty(
        claims.time_s,
        mode=config.penalty_mode,
        segments=claims.responses,
        duration=torch.tensor(labels.duration, dtype=torch.float64),
        frame_times=_ragged(labels.frame_times),
        key_times=_ragged(labels.key_times),
        intervals=_ragged(labels.intervals, width=2),
        sigma=config.sigma,
        unit=config.penalty_unit,
    )


def evidence_part(
    claims: ClaimBatch, report: ParseReport, scores: RefereeScores, penalty: torch.Tensor, config: EvidenceConfig
) -> EvidenceReward:
    """One evidence reward a response; see `ops.evidence_reward`. Rejected claims that count enter n with 0."""
    return evidence_reward(
        scores.relevance,
        scores.localization,
        penalty,
        scores.valid,
        claims.responses,
        num_rejected=report.num_faults,
        combine=config.combine,
        weight=config.combine_weight,
        penalty_form=config.penalty_form,
        penalty_weight=config.penalty_weight,
        cap=config.cap,
        count_cost=config.count_cost,
    )


def _ragged(rows: Sequence[Sequence[object]], width: int | None = None) -> tuple[torch.Tensor, Segments]:
    values = torch.tensor([value for row in rows for value in row], dtype=torch.float64)
    return values.reshape(-1, width) if width else values, Segments.from_lengths(len(row) for row in rows)
