"""token_logprob against log_softmax in float64."""

from __future__ import annotations

import math

import pytest
import torch

from ser_fast.ops import token_logprob
from tests.support.tolerance import derived, exact


def _eager(hidden: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    logp = (hidden @ weight.T).log_softmax(dim=-1)
    return logp.gather(1, target[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


def _inputs(num_tokens: int = 40, vocabulary: int = 333, hidden: int = 32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.randn(num_tokens, hidden), torch.randn(vocabulary, hidden), torch.randint(vocabulary, (num_tokens,))


@pytest.mark.parametrize("chunk", [1, 7, 333, 4096])
def test_values_and_gradients(chunk: int) -> None:
    hidden, weight, target = _inputs()
    grads = torch.randn(2, 40)

    def run(compute: object, dtype: torch.dtype) -> list[torch.Tensor]:
        h, w = hidden.to(dtype, copy=True).requires_grad_(), weight.to(dtype, copy=True).requires_grad_()
        logprob, entropy = compute(h, w, target)  # type: ignore[operator]
        (logprob @ grads[0].to(dtype) + entropy @ grads[1].to(dtype)).backward()
        return [logprob.detach(), entropy.detach(), h.grad, w.grad]

    tiled = run(lambda h, w, t: token_logprob(h, w, t, chunk=chunk), torch.float32)
    for actual, oracle, eager in zip(tiled, run(_eager, torch.float64), run(_eager, torch.float32), strict=True):
        derived(actual, oracle, eager)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    hidden, weight, target = _inputs()
    logprob, entropy = token_logprob(hidden.to(dtype), weight.to(dtype), target, chunk=100)
    oracle = _eager(hidden.to(dtype).double(), weight.to(dtype).double(), target)
    for actual, expected in zip((logprob, entropy), oracle, strict=True):
        torch.testing.assert_close(actual, expected.float(), atol=2e-5, rtol=2e-6)


def test_targets_outside_the_vocabulary() -> None:
    hidden, weight, target = _inputs(4, 10)
    target[:] = torch.tensor([3, -100, 10, -1])
    hidden.requires_grad_()
    logprob, entropy = token_logprob(hidden, weight, target, chunk=4)
    assert logprob[1].item() == 0.0
    assert logprob[2:].isnan().all()
    assert entropy.isfinite().all()
    logprob[:2].sum().backward()
    assert hidden.grad is not None
    assert hidden.grad[0].abs().sum() > 0
    exact(hidden.grad[1:], torch.zeros(3, 32))


def test_no_logprob_is_above_0_and_entropies_are_in_range() -> None:
    for scale in (0.0, 1e-3, 1.0, 30.0, 1e4):
        hidden, weight, target = _inputs()
        logprob, entropy = token_logprob(hidden * scale, weight, target, chunk=50)
        assert logprob.isfinite().all()
        assert (logprob <= 0).all()
        assert ((entropy >= 0) & (entropy <= math.log(333) + 1e-5)).all()


def test_very_negative_and_infinite_logits() -> None:
    hidden = torch.ones(1, 1)
    weight = torch.tensor([[-1e4], [-1e4], [-math.inf], [-1e4]])
    for chunk in (1, 2, 4):
        logprob, entropy = token_logprob(hidden, weight, torch.tensor([1]), chunk=chunk)
        assert logprob.item() == pytest.approx(-math.log(3))
        assert entropy.item() == pytest.approx(math.log(3))
    assert token_logprob(hidden, weight, torch.tensor([2]))[0].item() == -math.inf


def test_only_the_gradients_asked_for_are_computed() -> None:
    hidden, weight, target = _inputs()
    hidden.requires_grad_()
    token_logprob(hidden, weight, target)[0].sum().backward()
    assert weight.grad is None
    assert hidden.grad is not None


def test_no_tokens() -> None:
    logprob, entropy = token_logprob(torch.zeros(0, 8), torch.zeros(5, 8), torch.zeros(0, dtype=torch.int64))
    assert logprob.shape == entropy.shape == (0,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": torch.zeros(5, 7)}, r"weight: expected the shape \[n, 8\], got \[5, 7\]"),
        ({"weight": torch.zeros(5, 8).bfloat16()}, "weight: expected float32, got bfloat16"),
        ({"weight": torch.zeros(0, 8)}, "weight: expected at least one row, got none"),
        ({"target": torch.zeros(3, dtype=torch.int32)}, "target: expected int64, got int32"),
        ({"target": torch.zeros(4, dtype=torch.int64)}, r"target: expected the shape \[3\], got \[4\]"),
        ({"chunk": 0}, "chunk: expected a number >= 1, got 0"),
    ],
)
def test_errors(change: dict[str, object], message: str) -> None:
    arguments = {"hidden": torch.zeros(3, 8), "weight": torch.zeros(5, 8), "target": torch.zeros(3, dtype=torch.int64)} | change
    with pytest.raises(ValueError, match=message):
        token_logprob(**arguments)  # type: ignore[arg-type]
