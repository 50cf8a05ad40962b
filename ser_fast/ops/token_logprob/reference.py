"""token_logprob in plain torch, tile by tile. T tokens, H hidden, K columns of a tile."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ser_fast.ops.checks import float_dtype


def token_logprob(
    hidden: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, chunk: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-probability, entropy, and the log-sum-exp as the largest logit and what it exceeds that by."""
    dtype = float_dtype(hidden)
    num_tokens = hidden.shape[0]
    # sum exp(z - peak) and sum exp(z - peak) (z - peak), rescaled whenever a tile raises the peak: differences of large
    # logits are exact where the logits themselves would cancel
    peak_T = torch.full((num_tokens,), -torch.inf, dtype=dtype, device=hidden.device)
    total_T = torch.zeros_like(peak_T)
    weighted_T = torch.zeros_like(peak_T)
    chosen_T = torch.full_like(peak_T, torch.nan)
    for first, logits_TK in _tiles(hidden, weight, chunk):
        new_peak_T = torch.maximum(peak_T, logits_TK.amax(1))
        # Logits of -inf only so far: any finite shift will do.
        shift_T = torch.where(new_peak_T == -torch.inf, 0.0, new_peak_T)
        below_TK = logits_TK - shift_T[:, None]
        share_TK = below_TK.exp()
        sunk_T = peak_T - shift_T
        weighted_T = torch.where(total_T > 0, sunk_T.exp() * (weighted_T + total_T * sunk_T), 0.0)
        weighted_T += torch.where(share_TK > 0, share_TK * below_TK, 0.0).sum(1)
        total_T = total_T * sunk_T.exp() + share_TK.sum(1)
        peak_T = new_peak_T
        here_T, column_T = _in_tile(target, first, logits_TK.shape[1])
        chosen_T = torch.where(here_T, logits_TK.gather(1, column_T[:, None])[:, 0], chosen_T)
    log_total_T = total_T.log()
    # Rounding must not lift a probability over 1 nor an entropy under 0.
    logprob_T = torch.where(target == -100, 0.0, (chosen_T - peak_T - log_total_T).clamp(max=0.0))
    entropy_T = (log_total_T - weighted_T / total_T).clamp(min=0.0)
    return logprob_T, entropy_T, peak_T, log_total_T


def token_logprob_backward(
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
    """dz = g_logprob (1[v = y] - p) - g_entropy p (log p + H); a gradient that is not needed comes back with no rows."""
    dtype = float_dtype(hidden)
    grad_hidden_TH = torch.zeros(hidden.shape if need_hidden else (0, hidden.shape[1]), dtype=dtype, device=hidden.device)
    grad_weight_VH = torch.zeros(weight.shape if need_weight else (0, weight.shape[1]), dtype=dtype, device=hidden.device)
    grad_logprob_T = torch.where((target >= 0) & (target < weight.shape[0]), grad_logprob, 0.0)
    for first, logits_TK in _tiles(hidden, weight, chunk):
        logp_TK = logits_TK - peak[:, None] - log_total[:, None]
        p_TK = logp_TK.exp()
        surprise_TK = torch.where(p_TK > 0, p_TK * (logp_TK + entropy[:, None]), 0.0)
        grad_TK = -grad_logprob_T[:, None] * p_TK - grad_entropy[:, None] * surprise_TK
        here_T, column_T = _in_tile(target, first, logits_TK.shape[1])
        grad_TK.scatter_add_(1, column_T[:, None], torch.where(here_T, grad_logprob_T, 0.0)[:, None])
        rows = slice(first, first + logits_TK.shape[1])
        if need_hidden:
            grad_hidden_TH += grad_TK @ weight[rows].to(dtype)
        if need_weight:
            grad_weight_VH[rows] = grad_TK.T @ hidden.to(dtype)
    return grad_hidden_TH.to(hidden.dtype), grad_weight_VH.to(weight.dtype)


def _tiles(hidden: torch.Tensor, weight: torch.Tensor, chunk: int) -> Iterator[tuple[int, torch.Tensor]]:
    """(first column, logits of the tile)."""
    dtype = float_dtype(hidden)
    hidden = hidden.to(dtype)
    for first in range(0, weight.shape[0], chunk):
        yield first, hidden @ weight[first : first + chunk].to(dtype).T


def _in_tile(target: torch.Tensor, first: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Which targets lie in the tile, and their column there (0 for the others)."""
    column = target - first
    here = (column >= 0) & (column < width)
    return here, torch.where(here, column, 0)
