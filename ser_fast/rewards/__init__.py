"""Rewards: from what was found in a response to numbers."""

from ser_fast.rewards.answer import answer_reward, rouge_mean
from ser_fast.rewards.combine import combine
from ser_fast.rewards.evidence import EvidenceConfig, TimeLabels, claim_penalty, evidence_part
from ser_fast.rewards.format import format_reward
from ser_fast.rewards.presets import PRESETS, RewardConfig, get_reward

__all__ = [
    "PRESETS",
    "EvidenceConfig",
    "RewardConfig",
    "TimeLabels",
    "answer_reward",
    "claim_penalty",
    "combine",
    "evidence_part",
    "format_reward",
    "get_reward",
    "rouge_mean",
]
