"""The policy-gradient loss on sampled completions: clipped ratios, and optionally a penalty for leaving a reference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from ser_fast.errors import InputError


@dataclass(frozen=True, kw_only=True, slots=True)
class LossConfig:
    """How rewards move the policy. With one update a batch, as `trainer.loop` makes it, ratios are 1 and nothing is clipped."""

    ratio: Literal["token", "sequence"] = "token"
    """What is clipped: the ratio of each token (GRPO), or the geometric mean of those of a completion (GSPO)."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    mean: Literal["token", "sequence"] = "token"
    """Over all tokens alike (DAPO), or over the completions' own means (GRPO)."""
    kl: float = 0.0
    """Weight of the divergence from the reference. Groups without variance take no part in it: they cost no forward."""

    def __post_init__(self) -> None:
        for name in ("ratio", "mean"):
            if getattr(self, name) not in ("token", "sequence"):
                raise InputError(f"{name}: expected token or sequence, got {getattr(self, name)!r}")
        if not 0 <= self.clip_low < 1 or not self.clip_high >= 0 or not 0 <= self.kl < math.inf:
            raise InputError(
                f"clip_low, clip_high, kl: expected 0 <= clip_low < 1 and numbers >= 0,"
                f" got {self.clip_low}, {self.clip_high}, {self.kl}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """A scalar with a gradient, and what it says of the step."""

    total: torch.Tensor
    clipped: float
    """Share of the tokens (or completions) whose ratio was clipped."""
    kl: float | None
    """Mean divergence from the reference; None without one."""


def policy_loss(
    logprob: torch.Tensor,
    sampled: torch.Tensor,
    advantage: torch.Tensor,
    owners: torch.Tensor,
    config: LossConfig,
    *,
    reference: torch.Tensor | None = None,
) -> Loss:
    """-mean of min(r A, clip(r, 1 - low, 1 + high) A) + kl k3, r = exp(logprob - sampled).

    Args:
        logprob: [N] of each token under the policy, at the temperature of the samples, with a gradient.
        sampled: [N] when it was sampled.
        advantage: [R] of each completion.
        owners: int64[N], which completion a token belongs to; each has at least one.
        config: ratio, clipping and mean.
        reference: [N] under the reference; needed where config.kl is above 0.

    Raises:
        ValueError: config.kl without a reference.

    Source: GRPO, arXiv 2402.03300, with its estimator k3 = e^d - d - 1, d = reference - logprob; GSPO, arXiv 2507.18071
    (ratio "sequence"); DAPO, arXiv 2503.14476 (clip_high, mean "token").
    """
    if config.kl and reference is None:
        raise ValueError("reference: expected log-probabilities where kl is above 0, got none")
    num = advantage.shape[0]
    log_ratio = logprob - sampled
    if config.ratio == "sequence":
        ratio, scale = _means(log_ratio, owners, num).exp(), advantage
    else:
        ratio, scale = log_ratio.exp(), advantage[owners]
    clipped = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    gain = torch.minimum(ratio * scale, clipped * scale)
    loss = -(gain[owners] if config.ratio == "sequence" else gain)
    kl = None
    if reference is not None:
        away = reference - logprob
        k3 = away.exp() - away - 1
        loss = loss + config.kl * k3
        kl = float(k3.detach().mean())
    total = loss.mean() if config.mean == "token" else _means(loss, owners, num).mean()
    return Loss(total=total, clipped=float((ratio != clipped).float().mean()), kl=kl)


def _means(values: torch.Tensor, owners: torch.Tensor, num: int) -> torch.Tensor:
    """[num]: the mean over the tokens of each completion."""
    sums = values.new_zeros(num).index_add(0, owners, values)
    return sums / torch.bincount(owners, minlength=num)
