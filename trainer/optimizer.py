"""AdamW whose updates are not lost in narrow weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


class MasterAdamW:
    """AdamW on float32 copies of the weights that are narrower; after each step the weights are the copies, rounded.

    bfloat16 has 8 significant bits: a weight does not change in an update of less than 1/512 of it, and reinforcement at 1e-6
    moves most weights by less than that in a step. Float32 weights are updated as they are, without a copy. The scheme is that
    of Mixed Precision Training, arXiv 1710.03740.
    """

    def __init__(self, weights: Iterable[torch.nn.Parameter], *, learning_rate: float) -> None:
        self._weights = list(weights)
        self._masters = [w if w.dtype == torch.float32 else w.detach().float().requires_grad_() for w in self._weights]
        self._adamw = torch.optim.AdamW(self._masters, lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.0)

    def step(self, learning_rate: float) -> None:
        """One update with the gradients that the weights have, which are gone when this returns."""
        for group in self._adamw.param_groups:
            group["lr"] = learning_rate
        for weight, master in self._copies():
            master.grad = weight.grad.float() if weight.grad is not None else None
        self._adamw.step()
        with torch.no_grad():
            for weight, master in self._copies():
                weight.copy_(master)
        for weights in (self._weights, self._masters):
            for w in weights:
                w.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Moments, and the copies."""
        return {"adamw": self._adamw.state_dict(), "masters": [master.detach() for _, master in self._copies()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave. The weights are not touched: they have a place of their own in a checkpoint."""
        self._adamw.load_state_dict(state["adamw"])
        with torch.no_grad():
            for (_, master), saved in zip(self._copies(), state["masters"], strict=True):
                master.copy_(saved)

    def _copies(self) -> list[tuple[torch.nn.Parameter, torch.Tensor]]:
        """Weights with float32 copies."""
        return [(w, m) for w, m in zip(self._weights, self._masters, strict=True) if m is not w]
