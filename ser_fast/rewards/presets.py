"""Whole rewards by name. A preset is a function that returns a complete config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ser_fast.errors import InputError
from ser_fast.rewards.evidence import EvidenceConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardConfig:
    """R = w_answer R_answer + w_format R_format + w_evidence R_evidence."""

    weights: Mapping[str, float] = field(default_factory=lambda: {"answer": 1.0, "format": 1.0, "evidence": 1.0})
    evidence: EvidenceConfig = field(default_factory=EvidenceConfig)
    require_evidence: bool = True
    """A response without any accepted claim gets half of the format part only."""
    gate_evidence: bool = False
    """Evidence counts only where the answer part is above 0: a guard against pleasing the referee."""


def ser() -> RewardConfig:
    """Our reconstruction of SER (arXiv 2606.24726): every constant is a default of ours."""
    return RewardConfig()


PRESETS: Mapping[str, Callable[[], RewardConfig]] = {"ser": ser}


def get_reward(reward: str | RewardConfig) -> RewardConfig:
    """A preset by name, or the config as it is.

    Raises:
        InputError: no such preset.
    """
    if isinstance(reward, RewardConfig):
        return reward
    if reward not in PRESETS:
        raise InputError(f"reward: expected a RewardConfig or one of {', '.join(PRESETS)}, got {reward!r}")
    return PRESETS[reward]()
