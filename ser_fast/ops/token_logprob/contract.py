"""Schemas, fakes, gradient and cases of token_logprob."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ser_fast.ops.checks import float_dtype
from ser_fast.ops.registry import LIBRARY, Case, Kernel, Op, register
from ser_fast.ops.token_logprob import reference


def _fake(hidden: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, chunk: int) -> tuple[torch.Tensor, ...]:
    return tuple(hidden.new_empty(hidden.shape[0], dtype=float_dtype(hidden)) for _ in range(4))


def _backward_fake(
    grad_logprob: torch.Tensor,
    grad_entropy: torch.Tensor,
    hidden: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    entropy: torch.Tensor,
    peak: torch.Tensor,
    log_total: torch.Tensor,
    chunk: int,
    need_hidden: bool,
    need_weight: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    num_tokens, num_rows = hidden.shape[0] if need_hidden else 0, weight.shape[0] if need_weight else 0
    return hidden.new_empty(num_tokens, hidden.shape[1]), weight.new_empty(num_rows, weight.shape[1])


def _inputs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(9, 16, generator=generator).to(dtype)
    weight = torch.randn(50, 16, generator=generator).to(dtype)
    target = torch.randint(50, (9,), generator=generator)
    target[2] = -100
    return hidden, weight, target


def _cases() -> Iterator[Case]:
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        hidden, weight, target = _inputs(dtype)
        yield Case(id=str(dtype).removeprefix("torch."), args=(hidden, weight, target, 16))
    hidden, weight, target = _inputs(torch.float32)
    strided = (hidden.t().contiguous().t(), weight.t().contiguous().t(), target)
    yield Case(id="strided", args=(*strided, 50))
    yield Case(id="gradient", args=(hidden.clone().requires_grad_(), weight.clone().requires_grad_(), target, 7))
    yield Case(id="gradient-hidden", args=(hidden.clone().requires_grad_(), weight, target, 64))
    yield Case(id="no-tokens", args=(hidden[:0], weight, target[:0], 16))
    yield Case(id="one", args=(hidden[:1], weight, target[:1], 1))


def _backward_cases() -> Iterator[Case]:
    hidden, weight, target = _inputs(torch.float32)
    _, *statistics = reference.token_logprob(hidden, weight, target, 16)
    grads = (torch.linspace(-1, 1, 9), torch.linspace(1, -2, 9))
    for needs in ((True, True), (True, False), (False, True)):
        yield Case(
            id=f"hidden-{needs[0]}-weight-{needs[1]}",
            args=(*grads, hidden, weight, target, *statistics, 16, *needs),
        )


OP = register(
    Op(
        name="token_logprob",
        public="token_logprob",
        signature=(
            "(Tensor hidden, Tensor weight, Tensor target, SymInt chunk)"
            " -> (Tensor logprob, Tensor entropy, Tensor peak, Tensor log_total)"
        ),
        kernels=(Kernel(name="reference", run=reference.token_logprob, devices=("cpu", "cuda")),),
        fake=_fake,
        cases=_cases,
        differentiable=True,
    )
)

BACKWARD_OP = register(
    Op(
        name="token_logprob_backward",
        public="token_logprob",
        signature=(
            "(Tensor grad_logprob, Tensor grad_entropy, Tensor hidden, Tensor weight, Tensor target, Tensor entropy,"
            " Tensor peak, Tensor log_total, SymInt chunk, bool need_hidden, bool need_weight)"
            " -> (Tensor grad_hidden, Tensor grad_weight)"
        ),
        kernels=(Kernel(name="reference", run=reference.token_logprob_backward, devices=("cpu", "cuda")),),
        fake=_backward_fake,
        cases=_backward_cases,
    )
)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    hidden, weight, target, ctx.chunk, ctx.backend = inputs
    _, entropy, peak, log_total = output
    ctx.save_for_backward(hidden, weight, target, entropy, peak, log_total)
    ctx.mark_non_differentiable(peak, log_total)


def _backward(
    ctx: Any, grad_logprob: torch.Tensor, grad_entropy: torch.Tensor, *_: torch.Tensor
) -> tuple[torch.Tensor | None, ...]:
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError("token_logprob: differentiable once, got create_graph=True")
    need_hidden, need_weight = ctx.needs_input_grad[:2]
    grad_hidden, grad_weight = BACKWARD_OP(
        grad_logprob,
        grad_entropy,
        *ctx.saved_tensors,
        ctx.chunk,
        need_hidden,
        need_weight,
        backend=ctx.backend,
    )
    return grad_hidden if need_hidden else None, grad_weight if need_weight else None, None, None, None


torch.library.register_autograd("ser_fast::token_logprob", _backward, setup_context=_setup_context, lib=LIBRARY)
