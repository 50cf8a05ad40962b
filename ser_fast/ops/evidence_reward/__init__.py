"""Claim scores -> one evidence reward a response."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from ser_fast.numbers import is_whole_number
from ser_fast.ops.checks import check_choice, check_segments, check_tensor
from ser_fast.ops.evidence_reward.contract import OP
from ser_fast.types import Segments

COMBINE = ("product", "mean", "gate")
PENALTY_FORMS = ("scale", "subtract")


class EvidenceReward(NamedTuple):
    """What `evidence_reward` returns."""

    reward: torch.Tensor
    """[R]; NaN where valid is False."""
    valid: torch.Tensor
    """bool[R]: False where system faults left no claim to score."""
    claim_reward: torch.Tensor
    """[C]; 0 beyond the cap, NaN for claims that are not valid."""


def evidence_reward(
    relevance: torch.Tensor,
    localization: torch.Tensor,
    penalty: torch.Tensor,
    valid: torch.Tensor,
    segments: Segments,
    *,
    num_rejected: torch.Tensor | None = None,
    combine: str = "product",
    weight: float = 0.5,
    penalty_form: str = "scale",
    penalty_weight: float = 0.5,
    cap: int = 8,
    count_cost: float = 0.1,
    backend: str = "auto",
) -> EvidenceReward:
    """R_r = (1 / n) * sum of the rewards of its first K claims - count_cost * max(0, n - K) / K; 0 if n = 0.

    n counts the claims of the response, those beyond the cap K and the rejected ones (policy faults) included, those that
    are not valid (system faults) excluded. A claim with relevance rho, localization lam and penalty p earns

    | combine | s | | penalty_form | reward |
    |---|---|---|---|---|
    | product | rho lam | | scale | s (1 - p) |
    | mean | weight rho + (1 - weight) lam | | subtract | max(0, s - penalty_weight p) |
    | gate | lam if rho >= weight, else 0 | | | |

    | input | result |
    |---|---|
    | a valid claim with a NaN or an infinity among rho, lam, p | counts as not valid |
    | claims, but all within the cap not valid, and none rejected | NaN, valid False |
    | no claims | 0, valid |

    Args:
        relevance, localization, penalty: [C] in [0, 1].
        valid: bool[C]; looked at within the cap only.
        segments: R -> C, claims in the order of the text.
        num_rejected: int64[R] claims that were rejected as policy faults; none if not given.
        combine, weight, penalty_form, penalty_weight: see above.
        cap: K >= 1, claims scored in one response.
        count_cost: cost per K claims beyond the cap.
        backend: "auto", or the name of one backend, which runs or raises.

    Returns:
        `EvidenceReward`; float64 if an input is float64, else float32.

    Raises:
        ValueError: wrong shape, dtype or device, an unknown rule, a number that makes no sense.
        BackendUnavailable: see backend.

    Source: our reconstruction of SER (arXiv 2606.24726), which is public as an abstract only: every rule and constant here is
    a default of ours, none is the paper's.
    """
    check_tensor("relevance", relevance, shape=(None,))
    num_claims, device = relevance.shape[0], relevance.device
    check_tensor("localization", localization, shape=(num_claims,), device=device)
    check_tensor("penalty", penalty, shape=(num_claims,), device=device)
    check_tensor("valid", valid, shape=(num_claims,), dtypes=(torch.bool,), device=device)
    check_segments("segments", segments, num_rows=num_claims, device=device)
    check_rule(combine, weight, penalty_form, penalty_weight, cap, count_cost)
    if num_rejected is None:
        num_rejected = torch.zeros(len(segments), dtype=torch.int64, device=device)
    check_tensor("num_rejected", num_rejected, shape=(len(segments),), dtypes=(torch.int64,), device=device)
    rule = (combine, float(weight), penalty_form, float(penalty_weight), cap, float(count_cost))
    result = OP(relevance, localization, penalty, valid, segments.offsets, num_rejected, *rule, backend=backend)
    return EvidenceReward(*result)


def check_rule(combine: str, weight: float, penalty_form: str, penalty_weight: float, cap: int, count_cost: float) -> None:
    """Checks the settings of `evidence_reward`.

    Raises:
        ValueError: see there.
    """
    check_choice("combine", combine, COMBINE)
    check_choice("penalty_form", penalty_form, PENALTY_FORMS)
    if not 0 <= weight <= 1:
        raise ValueError(f"weight: expected a number in [0, 1], got {weight}")
    if not is_whole_number(cap) or cap < 1:
        raise ValueError(f"cap: expected a whole number >= 1, got {cap}")
    for name, value in (("penalty_weight", penalty_weight), ("count_cost", count_cost)):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name}: expected a number >= 0, got {value}")
