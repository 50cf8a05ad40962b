"""A supervised run: optimizer steps under a warm-up and a cosine, resumable to the bit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ser_fast.errors import InputError
from trainer import checkpoint
from trainer.checks import check_counts, check_positive
from trainer.metrics import Metrics


@dataclass(frozen=True, kw_only=True, slots=True)
class SupervisedConfig:
    """How a supervised run goes."""

    num_steps: int
    learning_rate: float
    """Of AdamW."""
    muon_learning_rate: float | None = None
    """If given, of Muon instead of AdamW for the matrices of blocks: what is trained from nothing learns faster."""
    final_share: float = 0.1
    """Of the learning rates at the end of the cosine."""
    num_warmup_steps: int = 100
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    clip_norm: float = 1.0
    autocast: bool = False
    """Matrix products in bfloat16 where the machine has instructions for them; weights, sums and losses stay in float32."""
    save_every: int = 200

    def __post_init__(self) -> None:
        check_counts(num_steps=self.num_steps, save_every=self.save_every)
        muon = self.muon_learning_rate or 0.0
        check_positive(or_zero=True, learning_rate=self.learning_rate, clip_norm=self.clip_norm, muon_learning_rate=muon)
        check_positive(or_zero=True, num_warmup_steps=self.num_warmup_steps, weight_decay=self.weight_decay)
        for name, value, last in (("final_share", self.final_share, 1.0), *(("betas", beta, 0.9999) for beta in self.betas)):
            if not 0 <= value <= last:
                raise InputError(f"{name}: expected a number in [0, {last}], got {value}")


def fit(
    model: Any,
    loss_at: Callable[[int], torch.Tensor],
    *,
    run: Path,
    config: SupervisedConfig,
    on_step: Callable[[int, float], None] = lambda _, __: None,
) -> None:
    """Runs from the last checkpoint of `run`, or from the start, to the end.

    `loss_at(step)` must depend on the step and the weights only: then a resumed run has the same losses as one that was
    never stopped.
    """
    model.train()
    optimizers = _optimizers(model, config)
    parts = {"model": model} | {f"optimizer_{i}": optimizer for i, (optimizer, _) in enumerate(optimizers)}
    first = checkpoint.resume(run, **parts)
    metrics = Metrics(run, first_step=first)
    device_type = next(model.parameters()).device.type
    autocast = config.autocast and has_bfloat16(device_type)
    for step in range(first, config.num_steps):
        started = time.perf_counter()
        share = learning_rate_share(step, config)
        for optimizer, rate in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = share * rate
        with torch.autocast(device_type, torch.bfloat16, enabled=autocast):
            loss = loss_at(step)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = clip_gradient(model, config.clip_norm)
        for optimizer, _ in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        metrics.write(step, loss=loss.item(), gradient_norm=norm, seconds=round(time.perf_counter() - started, 3))
        on_step(step, loss.item())
        if (step + 1) % config.save_every == 0 or step + 1 == config.num_steps:
            checkpoint.save(run, step + 1, **{name: part.state_dict() for name, part in parts.items()})
    model.eval()


def has_bfloat16(device_type: str) -> bool:
    """Whether matrix products in bfloat16 are computed, not emulated: emulated they are slower than in float32."""
    if device_type != "cpu":
        return True
    return any(torch.cpu.get_capabilities().get(name, False) for name in ("amx_bf16", "avx512_bf16", "bf16"))


def learning_rate_share(step: int, config: SupervisedConfig) -> float:
    """Linear from 0 to 1 over the warm-up, then half a cosine down to the final share."""
    if step < config.num_warmup_steps:
        return (step + 1) / config.num_warmup_steps
    progress = (step - config.num_warmup_steps) / max(1, config.num_steps - config.num_warmup_steps)
    return config.final_share + (1 - config.final_share) * (1 + math.cos(math.pi * progress)) / 2


def clip_gradient(model: Any, max_norm: float) -> float:
    """Scales the gradient down to a norm; returns what it was.

    Raises:
        InputError: it is not finite: the run has diverged.
    """
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm))
    if not math.isfinite(norm):
        raise InputError(f"learning_rate: the gradient is not finite any more (norm {norm}); a smaller one may help")
    return norm


def _optimizers(model: Any, config: SupervisedConfig) -> list[tuple[torch.optim.Optimizer, float]]:
    """With their learning rates: AdamW alone, or Muon for the matrices of numbered layers and AdamW for all other weights."""
    adamw: list[torch.nn.Parameter] = []
    muon: list[torch.nn.Parameter] = []
    for name, weights in model.named_parameters():
        in_block = weights.ndim == 2 and any(part.isdigit() for part in name.split("."))
        (muon if in_block and config.muon_learning_rate is not None else adamw).append(weights)
    decay = config.weight_decay
    optimizers: list[tuple[torch.optim.Optimizer, float]] = [
        (torch.optim.AdamW(adamw, betas=config.betas, weight_decay=decay, foreach=True), config.learning_rate)
    ]
    if config.muon_learning_rate is not None:
        optimizers.append(
            (torch.optim.Muon(muon, weight_decay=decay, adjust_lr_fn="match_rms_adamw"), config.muon_learning_rate)
        )
    return optimizers
