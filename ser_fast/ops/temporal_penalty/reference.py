"""temporal_penalty in plain torch: the oracle. C claims, K targets (frames, key times or intervals), P pairs of the two."""

from __future__ import annotations

import torch

from ser_fast.ops.checks import float_dtype
from ser_fast.ops.ragged import pair_rows, row_to_segment, segment_sum


def temporal_penalty(
    time_s: torch.Tensor,
    offsets: torch.Tensor,
    duration: torch.Tensor,
    targets: torch.Tensor,
    target_offsets: torch.Tensor,
    num_pairs: int,
    frame_times: torch.Tensor | None,
    frame_offsets: torch.Tensor | None,
    mode: str,
    sigma: float,
    unit: str,
) -> torch.Tensor:
    num_claims = time_s.shape[0]
    time_C = time_s.double()
    response_C = row_to_segment(offsets, num_claims)
    duration_C = duration.double()[response_C]
    targets = targets.double()
    first_C, num_C = target_offsets[response_C], target_offsets.diff()[response_C]
    claim_P, target_P = pair_rows(offsets, target_offsets, num_claims, num_pairs)

    if mode == "snap":
        earlier_C = segment_sum((targets[target_P] <= time_C[claim_P]).long(), claim_P, num_claims)
        distance_C, gap_C = _around(time_C, targets, first_C, num_C, earlier_C, duration_C)
        penalty_C = _ratio(distance_C, gap_C / 2).clamp(max=1.0)
    else:
        target = targets[target_P]
        time_P = time_C[claim_P]
        if mode == "points":
            distance_P = (time_P - target).abs()
        else:
            distance_P = torch.maximum(target[:, 0] - time_P, time_P - target[:, 1]).clamp(min=0)
        distance_C = time_C.new_full((num_claims,), torch.inf)
        distance_C = distance_C.scatter_reduce(0, claim_P, distance_P, "amin")
        if unit == "spacing":
            assert frame_times is not None and frame_offsets is not None
            distance_C = _ratio(distance_C, _mean_gap(frame_times, frame_offsets, duration)[response_C])
        elif unit == "duration":
            distance_C = _ratio(distance_C, duration_C)
        penalty_C = -torch.expm1(-0.5 * (distance_C / sigma) ** 2)

    penalty_C = torch.where((num_C == 0) | duration_C.isnan(), torch.nan, penalty_C)
    if time_s.is_floating_point():  # rounding t and D alike keeps t <= D true
        duration_C = duration.to(time_s.dtype)[response_C].double()
    outside_C = (time_C < 0) | (time_C > duration_C)
    penalty_C = torch.where(outside_C, 1.0, penalty_C)
    return torch.where(time_C.isnan(), torch.nan, penalty_C).to(float_dtype(time_s))


def _around(
    time_C: torch.Tensor,
    frames: torch.Tensor,
    first_C: torch.Tensor,
    num_C: torch.Tensor,
    earlier_C: torch.Tensor,
    duration_C: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Distance to the nearest frame and the gap between the frames around each time; earlier_C frames are not later."""
    if frames.numel() == 0:
        return torch.full_like(time_C, torch.nan), duration_C
    last = frames.numel() - 1

    def frame(index_C: torch.Tensor) -> torch.Tensor:
        within = index_C.clamp(min=0).minimum(num_C - 1)
        return frames[(first_C + within).clamp(0, last)]

    distance_C = torch.minimum((time_C - frame(earlier_C - 1)).abs(), (frame(earlier_C) - time_C).abs())
    left_C = (earlier_C - 1).clamp(min=0).minimum(num_C - 2)
    gap_C = torch.where(num_C > 1, frame(left_C + 1) - frame(left_C), duration_C)
    return distance_C, gap_C


def _mean_gap(frame_times: torch.Tensor, offsets: torch.Tensor, duration: torch.Tensor) -> torch.Tensor:
    """[R]: mean gap between the frames of each response; its duration where there is one frame, NaN where there is none."""
    num = offsets.diff()
    if frame_times.numel() == 0:
        return duration.new_full(num.shape, torch.nan, dtype=torch.float64)
    last = frame_times.numel() - 1
    span = frame_times.double()[(offsets[1:] - 1).clamp(0, last)] - frame_times.double()[offsets[:-1].clamp(0, last)]
    gap = torch.where(num > 1, span / (num - 1).clamp(min=1), duration.double())
    return torch.where(num == 0, torch.nan, gap)


def _ratio(distance: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """distance / scale; over a scale of 0 only a distance of 0 is near, everything else is infinitely far."""
    return torch.where((scale == 0) & (distance == 0), 0.0, distance / scale)
