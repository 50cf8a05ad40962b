"""Rewards -> group-relative advantages."""

from __future__ import annotations

import torch

from ser_fast.ops.checks import check_choice, check_segments, check_tensor
from ser_fast.ops.group_advantage.contract import OP
from ser_fast.types import Segments

SCALES = ("group", "batch", "none")


def group_advantage(
    rewards: torch.Tensor,
    segments: Segments,
    valid: torch.Tensor | None = None,
    *,
    scale: str = "group",
    eps: float = 1e-4,
    ddof: int = 1,
    backend: str = "auto",
) -> torch.Tensor:
    """A_i = (R_i - mean of its group) / (std + eps), over the valid rows only.

    | input | result |
    |---|---|
    | a row that is not valid, or not finite | NaN; it enters neither mean nor std: drop it, do not multiply it by 0 |
    | all valid rewards of a group equal, or a single one | exactly 0 |

    Args:
        rewards: [R].
        segments: G -> R, the rollouts of each prompt.
        valid: bool[R]; all rows if not given.
        scale: what divides: the std of the "group" (GRPO), of all valid rows of the "batch" around their group means, or
            "none" (Dr. GRPO).
        eps: added to the std.
        ddof: the std divides by the number of rows less this, and by 1 at least.
        backend: "auto", or the name of one backend, which runs or raises.

    Returns:
        [R], float64 if rewards is float64, else float32.

    Raises:
        ValueError: wrong shape, dtype, device or scale, negative eps or ddof.
        BackendUnavailable: see backend.

    Source: GRPO, arXiv 2402.03300 (scale "group"); Dr. GRPO, arXiv 2503.20783 (scale "none").
    """
    check_tensor("rewards", rewards, shape=(None,))
    check_segments("segments", segments, num_rows=rewards.shape[0], device=rewards.device)
    check_choice("scale", scale, SCALES)
    if valid is None:
        valid = torch.ones(rewards.shape, dtype=torch.bool, device=rewards.device)
    check_tensor("valid", valid, shape=(rewards.shape[0],), dtypes=(torch.bool,), device=rewards.device)
    if not eps >= 0 or ddof < 0:
        raise ValueError(f"eps, ddof: expected numbers >= 0, got {eps}, {ddof}")
    return OP(rewards, segments.offsets, valid, scale, float(eps), ddof, backend=backend)
