"""Small steps are not lost in narrow weights."""

from __future__ import annotations

import torch

from trainer.optimizer import MasterAdamW

RATE = 1e-6


def _weights(dtype: torch.dtype) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter((0.02 * torch.randn(n, 8, generator=generator)).to(dtype)) for n in (16, 4)]


def _gradients(step: int, weights: list[torch.nn.Parameter]) -> None:
    generator = torch.Generator().manual_seed(step)
    for w in weights:
        w.grad = (1 + torch.randn(w.shape, generator=generator)).to(w.dtype)


def test_wide_weights_move_as_under_plain_adamw() -> None:
    ours, theirs = _weights(torch.float32), _weights(torch.float32)
    optimizer = MasterAdamW(ours, learning_rate=1.0)
    plain = torch.optim.AdamW(theirs, lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(5):
        _gradients(step, ours)
        _gradients(step, theirs)
        optimizer.step(RATE)
        plain.step()
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)
        assert a.grad is None


def test_narrow_weights_arrive_where_wide_ones_do() -> None:
    """To within half a unit of their last place; updated in bfloat16, nearly all of them would stay where they were."""
    narrow, naive = _weights(torch.bfloat16), _weights(torch.bfloat16)
    wide = [torch.nn.Parameter(w.detach().float()) for w in narrow]
    start = [w.detach().clone() for w in narrow]
    ours, exact = MasterAdamW(narrow, learning_rate=RATE), MasterAdamW(wide, learning_rate=RATE)
    plain = torch.optim.AdamW(naive, lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(400):
        for weights in (narrow, naive):
            _gradients(step, weights)
        for w, n in zip(wide, narrow, strict=True):
            w.grad = n.grad.float() if n.grad is not None else None
        ours.step(RATE)
        exact.step(RATE)
        plain.step()
    for n, w in zip(narrow, wide, strict=True):
        assert torch.equal(n, w.bfloat16())
    moved = torch.cat([(n != s).flatten() for n, s in zip(narrow, start, strict=True)]).float().mean()
    lost = torch.cat([(n != s).flatten() for n, s in zip(naive, start, strict=True)]).float().mean()
    assert moved > 0.8
    assert lost < 0.3


def test_a_resumed_optimizer_goes_on_the_same() -> None:
    whole, parts = _weights(torch.bfloat16), _weights(torch.bfloat16)
    first, optimizer = MasterAdamW(whole, learning_rate=RATE), MasterAdamW(parts, learning_rate=RATE)
    for step in range(60):
        _gradients(step, whole)
        _gradients(step, parts)
        first.step(RATE)
        optimizer.step(RATE)
        if step == 30:
            state, weights = optimizer.state_dict(), [w.detach().clone() for w in parts]
            parts = [torch.nn.Parameter(w) for w in weights]
            optimizer = MasterAdamW(parts, learning_rate=RATE)
            optimizer.load_state_dict(state)
    for a, b in zip(whole, parts, strict=True):
        assert torch.equal(a, b)
