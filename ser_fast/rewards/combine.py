"""Parts -> one reward a response."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ser_fast.types import RewardTable


def combine(
    parts: Mapping[str, torch.Tensor], weights: Mapping[str, float], *, gate: Mapping[str, str] | None = None
) -> RewardTable:
    """total = sum of weight_k part_k, in the order of the weights.

    A part that is NaN (system faults left nothing of it to score) makes the response not valid if it has a weight other than
    0, and so does its gate: dropping it would be the same as scoring it 0. A gated part enters as 0 where the part that gates
    it is not above 0.

    Args:
        parts: name -> [R].
        weights: name -> weight; names the parts that count.
        gate: name of a part -> name of the part that must be above 0 for it to count.

    Raises:
        ValueError: a weight or a gate names no part.
    """
    gate = gate or {}
    unknown = [name for name in (*weights, *gate, *gate.values()) if name not in parts]
    if unknown:
        raise ValueError(f"weights, gate: expected names among {', '.join(parts)}, got {unknown[0]!r}")
    num_responses = next(iter(parts.values())).shape[0]
    total = torch.zeros(num_responses, dtype=torch.float32)
    valid = torch.ones(num_responses, dtype=torch.bool)
    for name, weight in weights.items():
        if weight == 0:
            continue
        part = parts[name]
        valid &= ~part.isnan()
        if name in gate:
            valid &= ~parts[gate[name]].isnan()
            part = torch.where(parts[gate[name]] > 0, part, 0.0)
        total += weight * part
    return RewardTable(total=torch.where(valid, total, torch.nan), parts=dict(parts), valid=valid)
