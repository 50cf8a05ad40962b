"""Whole rewards by name. A preset is a function that returns a complete config."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ser_fast.errors import InputError
from ser_fast.rewards.answer import check_answerable
from ser_fast.rewards.evidence import EvidenceConfig
from ser_fast.types import Question

PARTS = ("answer", "format", "evidence")


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardConfig:
    """R = w_answer R_answer + w_format R_format + w_evidence R_evidence."""

    weights: Mapping[str, float] = field(default_factory=lambda: {"answer": 1.0, "format": 1.0, "evidence": 1.0})
    evidence: EvidenceConfig = field(default_factory=EvidenceConfig)
    require_evidence: bool = True
    """A response without any accepted claim gets half of the format part only."""
    gate_evidence: bool = False
    """Evidence counts only where the answer part is above 0: a guard against pleasing the referee."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.weights) - set(PARTS))
        if unknown or not all(math.isfinite(weight) for weight in self.weights.values()):
            raise ValueError(f"weights: expected finite numbers for {', '.join(PARTS)}, got {dict(self.weights)}")

    @property
    def needed(self) -> tuple[str, ...]:
        """The parts that have to be computed: those with a weight, and the gate."""
        gate = {"answer"} if self.gate_evidence and self.weights.get("evidence") else set()
        return tuple(part for part in PARTS if self.weights.get(part) or part in gate)

    def check_questions(self, questions: Sequence[Question]) -> None:
        """Checks, before anything is decoded or judged, that the questions have what the reward compares with.

        Raises:
            InputError: a task without an answer reward, a letter task without a letter, or no key times or interval where the
                penalty needs them.
        """
        if "answer" in self.needed:
            check_answerable(questions)
        mode = self.evidence.penalty_mode
        if "evidence" in self.needed and mode != "snap":
            for question in questions:
                if not (question.key_times if mode == "points" else question.interval):
                    label = "key_times" if mode == "points" else "interval"
                    raise InputError(f"{label} of question {question.id!r}: expected for penalty_mode {mode!r}, got none")


def ser() -> RewardConfig:
    """Our reconstruction of SER (arXiv 2606.24726): every constant is a default of ours."""
    return RewardConfig()


def answer() -> RewardConfig:
    """Answer and format alone, without a look at the evidence: what SER is compared with."""
    return RewardConfig(weights={"answer": 1.0, "format": 1.0})


PRESETS: Mapping[str, Callable[[], RewardConfig]] = {"ser": ser, "answer": answer}


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
