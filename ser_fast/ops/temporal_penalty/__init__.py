"""How far a cited time is from where it should be, as a penalty in [0, 1]."""

from __future__ import annotations

import torch

from ser_fast.ops.checks import check_choice, check_segments, check_tensor
from ser_fast.ops.temporal_penalty.contract import OP
from ser_fast.types import Segments

Ragged = tuple[torch.Tensor, Segments]
"""A flat table and the rows of each response in it."""

MODES = ("snap", "points", "interval")
UNITS = ("seconds", "spacing", "duration")


def temporal_penalty(
    time_s: torch.Tensor,
    *,
    mode: str,
    segments: Segments,
    duration: torch.Tensor,
    frame_times: Ragged | None = None,
    key_times: Ragged | None = None,
    intervals: Ragged | None = None,
    sigma: float = 1.0,
    unit: str = "seconds",
    backend: str = "auto",
) -> torch.Tensor:
    """Penalty p of each cited time t in a clip of length D.

    | mode | p |
    |---|---|
    | snap | min(1, e / (g / 2)): e the distance to the nearest frame, g the gap between the two frames around t |
    | points | 1 - exp(-d^2 / (2 sigma^2)): d the distance to the nearest key time; 1 - p is the Gaussian proximity |
    | interval | the same with d the distance to the nearest interval, 0 inside |

    | input | result |
    |---|---|
    | t < 0 or t > D | 1, in every mode |
    | t or D is NaN | NaN |
    | a response without frames, key times or intervals | NaN for its claims |
    | t before the first or behind the last frame | g is the first or the last gap |
    | a single frame | g is D |

    Args:
        time_s: [C] seconds from the first displayed frame.
        mode: "snap", "points" or "interval".
        segments: R -> C, the claims of each response.
        duration: [R] seconds.
        frame_times: ([F_total] ascending within a response, R -> F_total); needed by "snap" and by unit "spacing".
        key_times: ([K_total], R -> K_total); needed by "points".
        intervals: ([I_total, 2] start <= end, R -> I_total); needed by "interval".
        sigma: width of the Gaussian, in units.
        unit: what d is measured in: "seconds", "spacing" (the mean gap between frames) or "duration" (D).
        backend: "auto", or the name of one backend, which runs or raises.

    Returns:
        [C], float64 if time_s is float64, else float32.

    Raises:
        ValueError: wrong shape, device, mode or unit, sigma <= 0, a table that the mode needs is missing, or frame times on the
            CPU that do not ascend.
        BackendUnavailable: see backend.

    Source: Gaussian with adaptive sigma of Open-o3-Video (arXiv 2510.20579, `adaptive_sigma`); "snap" is ours.
    """
    check_tensor("time_s", time_s, shape=(None,))
    check_choice("mode", mode, MODES)
    check_choice("unit", unit, UNITS)
    check_segments("segments", segments, num_rows=time_s.shape[0], device=time_s.device)
    check_tensor("duration", duration, shape=(len(segments),), device=time_s.device)
    if not sigma > 0:
        raise ValueError(f"sigma: expected a number > 0, got {sigma}")
    target, name = {"snap": (frame_times, "frame_times"), "points": (key_times, "key_times")}.get(
        mode, (intervals, "intervals")
    )
    if target is None:
        raise ValueError(f"{name}: expected for mode {mode!r}, got none")
    _check_ragged(name, target, len(segments), time_s.device, pairs=mode == "interval")
    frames = frame_times if unit == "spacing" or mode == "snap" else None
    if unit == "spacing" and frames is None:
        raise ValueError("frame_times: expected for unit 'spacing', got none")
    if frames is not None:
        _check_ragged("frame_times", frames, len(segments), time_s.device, pairs=False)
        _check_ascending(frames)
    num_pairs = sum(c * k for c, k in zip(segments.lengths, target[1].lengths, strict=True))
    return OP(
        time_s,
        segments.offsets,
        duration,
        target[0],
        target[1].offsets,
        num_pairs,
        frames[0] if frames else None,
        frames[1].offsets if frames else None,
        mode,
        float(sigma),
        unit,
        backend=backend,
    )


def adaptive_sigma(progress: float) -> float:
    """sigma(p) = 4 (1 - p) seconds while p < 3/4, then 1: wide early in training, narrow later.

    Args:
        progress: share p of the training that is done, in [0, 1].

    Raises:
        ValueError: progress outside [0, 1].

    Source: Open-o3-Video, arXiv 2510.20579.
    """
    if not 0.0 <= progress <= 1.0:
        raise ValueError(f"progress: expected a number in [0, 1], got {progress}")
    return 4.0 * (1.0 - progress) if progress < 0.75 else 1.0


def _check_ragged(name: str, value: Ragged, num_responses: int, device: torch.device, *, pairs: bool) -> None:
    table, segments = value
    check_tensor(f"{name}[0]", table, shape=(None, 2) if pairs else (None,), device=device)
    check_segments(f"{name}[1]", segments, num_rows=table.shape[0], device=device)
    if len(segments) != num_responses:
        raise ValueError(f"{name}[1]: expected {num_responses} segments, got {len(segments)}")


def _check_ascending(frame_times: Ragged) -> None:
    """On the CPU only: elsewhere it would wait for the device."""
    times, segments = frame_times
    if times.device.type != "cpu" or torch.compiler.is_compiling():
        return
    falls, begins = (times[1:] < times[:-1]).nonzero()[:, 0] + 1, set(segments.host)
    inside = [row for row in falls.tolist() if row not in begins]
    if inside:
        raise ValueError(f"frame_times[0]: expected to ascend within a response, got a fall at row {inside[0]}")
