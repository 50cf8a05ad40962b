"""group_advantage in plain torch: the oracle, and fast enough to be the only kernel."""

from __future__ import annotations

import torch

from ser_fast.ops.checks import float_dtype
from ser_fast.ops.ragged import row_to_segment, segment_sum


def group_advantage(
    rewards: torch.Tensor, offsets: torch.Tensor, valid: torch.Tensor, scale: str, eps: float, ddof: int
) -> torch.Tensor:
    num_groups = offsets.numel() - 1
    group = row_to_segment(offsets, rewards.shape[0])
    used = valid & rewards.isfinite()
    reward = torch.where(used, rewards.double(), 0.0)
    num = segment_sum(used.double(), group, num_groups)
    mean = segment_sum(reward, group, num_groups) / num.clamp(min=1)
    centered = torch.where(used, reward - mean[group], 0.0)
    equal = _extreme(reward, used, group, num_groups, "amax") == _extreme(reward, used, group, num_groups, "amin")
    centered = torch.where(equal[group], 0.0, centered)
    if scale == "group":
        variance = segment_sum(centered**2, group, num_groups) / (num - ddof).clamp(min=1)
        centered = centered / (variance.sqrt()[group] + eps)
    elif scale == "batch":
        variance = (centered**2).sum() / (num.sum() - ddof).clamp(min=1)
        centered = centered / (variance.sqrt() + eps)
    # A std and an eps of 0 divide 0 by 0: rewards without spread carry no signal.
    centered = torch.where(equal[group], 0.0, centered)
    return torch.where(used, centered, torch.nan).to(float_dtype(rewards))


def _extreme(reward: torch.Tensor, used: torch.Tensor, group: torch.Tensor, num_groups: int, reduce: str) -> torch.Tensor:
    """Largest or smallest used reward of each group."""
    start = -torch.inf if reduce == "amax" else torch.inf
    return reward.new_full((num_groups,), start).scatter_reduce(0, group, torch.where(used, reward, start), reduce)
