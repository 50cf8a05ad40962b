"""The policy-gradient loss by hand, in loops."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from trainer.loss import LossConfig, policy_loss

LENGTHS = (3, 1, 4)


def _tables() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    owners = torch.tensor([i for i, n in enumerate(LENGTHS) for _ in range(n)])
    logprob, reference = -3 * torch.rand(2, len(owners), generator=generator, dtype=torch.float64)
    sampled = logprob + 0.5 * torch.randn(len(owners), generator=generator, dtype=torch.float64)
    return logprob, sampled, torch.tensor([1.2, -0.7, 0.4], dtype=torch.float64), owners, reference


def _by_hand(config: LossConfig) -> tuple[float, float]:
    """The loss, and the share of ratios that were clipped."""
    logprob, sampled, advantage, owners, reference = (x.tolist() for x in _tables())
    first = 0
    per_sequence, tokens, clips = [], [], []
    for r, length in enumerate(LENGTHS):
        span = range(first, first + length)
        first += length
        assert all(owners[i] == r for i in span)
        geometric = math.exp(sum(logprob[i] - sampled[i] for i in span) / length)
        losses = []
        for i in span:
            ratio = geometric if config.ratio == "sequence" else math.exp(logprob[i] - sampled[i])
            clipped = min(max(ratio, 1 - config.clip_low), 1 + config.clip_high)
            if config.ratio == "token" or i == span[0]:
                clips.append(ratio != clipped)
            away = reference[i] - logprob[i]
            losses.append(-min(ratio * advantage[r], clipped * advantage[r]) + config.kl * (math.exp(away) - away - 1))
        per_sequence.append(sum(losses) / length)
        tokens += losses
    mean = sum(tokens) / len(tokens) if config.mean == "token" else sum(per_sequence) / len(per_sequence)
    return mean, sum(clips) / len(clips)


@pytest.mark.parametrize(
    ("ratio", "mean", "kl"), [*itertools.product(("token", "sequence"), ("token", "sequence"), (0.0, 0.3))]
)
def test_loss_equals_loops(ratio: str, mean: str, kl: float) -> None:
    config = LossConfig(ratio=ratio, mean=mean, kl=kl, clip_low=0.1, clip_high=0.3)  # type: ignore[arg-type]
    logprob, sampled, advantage, owners, reference = _tables()
    loss = policy_loss(logprob, sampled, advantage, owners, config, reference=reference)
    expected, clipped = _by_hand(config)
    assert loss.total.item() == pytest.approx(expected, abs=1e-12)
    assert loss.clipped == pytest.approx(clipped)


@pytest.mark.parametrize("ratio", ["token", "sequence"])
def test_gradient_at_the_sampling_policy_is_that_of_reinforce(ratio: str) -> None:
    """Where nothing has moved yet: -A / N for each token."""
    logprob, _, advantage, owners, _ = _tables()
    logprob.requires_grad_()
    loss = policy_loss(logprob, logprob.detach(), advantage, owners, LossConfig(ratio=ratio))  # type: ignore[arg-type]
    (gradient,) = torch.autograd.grad(loss.total, logprob)
    torch.testing.assert_close(gradient, -advantage[owners] / len(owners))
    assert (loss.clipped, loss.kl) == (0.0, None)


def test_a_ratio_beyond_the_clip_pulls_no_further() -> None:
    logprob = torch.tensor([0.0, 0.0], requires_grad=True)
    sampled = torch.tensor([-1.0, -1.0])
    loss = policy_loss(logprob, sampled, torch.tensor([1.0, -1.0]), torch.tensor([0, 1]), LossConfig())
    (gradient,) = torch.autograd.grad(loss.total, logprob)
    assert gradient.tolist() == pytest.approx([0.0, math.e / 2]), "good ones are clipped, bad ones are not"


def test_bad_settings_are_named() -> None:
    with pytest.raises(ValueError, match="ratio: expected token or sequence, got 'word'"):
        LossConfig(ratio="word")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="clip_low, clip_high, kl: expected"):
        LossConfig(clip_low=1.0)
    logprob, sampled, advantage, owners, _ = _tables()
    with pytest.raises(ValueError, match="reference: expected log-probabilities where kl is above 0, got none"):
        policy_loss(logprob, sampled, advantage, owners, LossConfig(kl=0.1))
