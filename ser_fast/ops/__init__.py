"""Functions of tensors: the kernels of the library. Each folder is one op; `registry.py` lists them all."""

from ser_fast.ops.box_iou import box_iou
from ser_fast.ops.crop_patchify import crop_patchify
from ser_fast.ops.crop_resize import crop_resize
from ser_fast.ops.crops import PatchSpec
from ser_fast.ops.evidence_reward import EvidenceReward, evidence_reward
from ser_fast.ops.group_advantage import group_advantage
from ser_fast.ops.interval_iou import interval_iou
from ser_fast.ops.temporal_penalty import adaptive_sigma, temporal_penalty
from ser_fast.ops.token_logprob import token_logprob

__all__ = [
    "EvidenceReward",
    "PatchSpec",
    "adaptive_sigma",
    "box_iou",
    "crop_patchify",
    "crop_resize",
    "evidence_reward",
    "group_advantage",
    "interval_iou",
    "temporal_penalty",
    "token_logprob",
]
