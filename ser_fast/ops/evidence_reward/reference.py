"""evidence_reward in plain torch: the oracle."""

from __future__ import annotations

import torch

from ser_fast.ops.checks import float_dtype
from ser_fast.ops.ragged import row_to_segment, segment_sum


def evidence_reward(
    relevance: torch.Tensor,
    localization: torch.Tensor,
    penalty: torch.Tensor,
    valid: torch.Tensor,
    offsets: torch.Tensor,
    num_rejected: torch.Tensor,
    combine: str,
    weight: float,
    penalty_form: str,
    penalty_weight: float,
    cap: int,
    count_cost: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    dtype = float_dtype(relevance, localization, penalty)
    rho, lam, p = relevance.double(), localization.double(), penalty.double()
    if combine == "product":
        score = rho * lam
    elif combine == "mean":
        score = weight * rho + (1 - weight) * lam
    else:
        score = torch.where(rho >= weight, lam, torch.zeros_like(lam))
    reward = score * (1 - p) if penalty_form == "scale" else (score - penalty_weight * p).clamp(min=0)

    num_claims, num_responses = relevance.shape[0], offsets.numel() - 1
    response = row_to_segment(offsets, num_claims)
    within_cap = torch.arange(num_claims, device=offsets.device) - offsets[response] < cap
    scored = within_cap & valid & rho.isfinite() & lam.isfinite() & p.isfinite()
    claim_reward = torch.where(scored, reward, torch.where(within_cap, torch.nan, 0.0))

    def count(rows: torch.Tensor) -> torch.Tensor:
        return segment_sum(rows.double(), response, num_responses)

    n = count(scored | ~within_cap) + num_rejected
    mean = segment_sum(torch.where(scored, reward, 0.0), response, num_responses) / n.clamp(min=1)
    total = mean - count_cost * (n - cap).clamp(min=0) / cap
    is_valid = (count(scored) + num_rejected > 0) | (count(within_cap & ~scored) == 0)
    total = torch.where(is_valid, total, torch.nan)
    return total.to(dtype), is_valid, claim_reward.to(dtype)
