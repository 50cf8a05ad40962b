"""What a step of reinforcement tells: rewards by part, and the marks of a policy that pleases the referee instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ser_fast.faults import PolicyFault
from ser_fast.types import ClaimBatch, ScoredRollouts
from trainer.evaluate import mean
from trainer.rollout import Group

WHOLE_FRAME = 0.9
"""Share of the frame from which a box says nothing."""


def figures_of_step(groups: Sequence[Group], scored: ScoredRollouts) -> dict[str, Any]:
    """One number each, None where there is nothing to take it of; rewards are means over the valid completions."""
    claims, valid = scored.claims, scored.table.valid
    num = len(scored)
    counts = [len(claims.responses.rows(r)) for r in range(num)]
    sizes = [group.clip.frame_hw for group in groups for _ in group.completions]
    faults = Counter(fault if fault in set(PolicyFault) else fault.partition(":")[0] for fault in scored.faults if fault)
    faults.update(str(claim.reason) for r in range(num) for claim in scored.report.rejected_claims(r))
    asked = scored.scores.valid
    lost = [fault is not None for fault in scored.faults if fault not in set(PolicyFault)]
    parts = {"reward": scored.table.total, **scored.table.parts}
    return {
        **{name: _mean_of(part[valid].tolist()) for name, part in parts.items()},
        "relevance": _mean_of(scored.scores.relevance[asked].tolist()),
        "localization": _mean_of(scored.scores.localization[asked].tolist()),
        "penalty": _mean_of(scored.penalty[asked].tolist()),
        "level_mass": min(scored.scores.level_mass[asked].tolist(), default=None),
        "claims": _mean_of([float(n) for n in counts]),
        "with_claims": _mean_of([float(n > 0) for n in counts]),
        "whole_frame": _mean_of([_covers(claims, c, sizes[r]) for r in range(num) for c in claims.responses.rows(r)]),
        "repeated": _mean_of([_repeats(claims, r) for r in range(num)]),
        "not_valid": _mean_of([float(not v) for v in valid.tolist()]),
        "not_scored": _mean_of(list(map(float, lost))),
        "tokens": _mean_of([float(len(c.ids)) for group in groups for c in group.completions]),
        "truncated": _mean_of([float(c.truncated) for group in groups for c in group.completions]),
        "faults": dict(sorted(faults.items())),
    }


def _covers(claims: ClaimBatch, c: int, frame_hw: tuple[int, int]) -> float:
    """1 if a box of the claim is nearly the whole frame."""
    height, width = frame_hw
    return float(any((x2 - x1) * (y2 - y1) > WHOLE_FRAME * height * width for x1, y1, x2, y2 in claims.claim_boxes(c)))


def _repeats(claims: ClaimBatch, r: int) -> float:
    """Share of a response's claims that an earlier one of it makes too."""
    rows = claims.responses.rows(r)
    seen = {(claims.name(c), float(claims.time_s[c]), tuple(claims.claim_boxes(c))) for c in rows}
    return 1 - len(seen) / len(rows) if len(rows) else 0.0


def _mean_of(values: Sequence[float]) -> float | None:
    return mean(values) if values else None
