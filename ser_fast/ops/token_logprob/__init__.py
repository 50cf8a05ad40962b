"""Log-probability and entropy of tokens from hidden states, without the T x V logits."""

from __future__ import annotations

import torch

from ser_fast.ops.checks import check_tensor
from ser_fast.ops.token_logprob.contract import OP

IGNORE = -100


def token_logprob(
    hidden: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, *, chunk: int = 8192, backend: str = "auto"
) -> tuple[torch.Tensor, torch.Tensor]:
    """log p_t = z_t[y_t] - log sum_v exp z_t[v] and H_t = -sum_v p_t[v] log p_t[v], with logits z_t = weight @ hidden_t.

    Differentiable in hidden and weight, both results, once. Forward and backward look at `chunk` columns of the vocabulary at a
    time; nothing of size T x V exists.

    | target | result |
    |---|---|
    | -100 | log-probability 0, without gradient; the entropy is computed |
    | any other value outside [0, V) | log-probability NaN, without gradient |

    Args:
        hidden: [T, H].
        weight: [V, H], rows of the output head, dtype of hidden.
        target: int64[T].
        chunk: vocabulary columns in memory at a time.
        backend: "auto", or the name of one backend, which runs or raises.

    Returns:
        (log-probability [T], entropy [T] in nats), float64 if hidden is float64, else float32.

    Raises:
        ValueError: wrong shape, dtype, device or chunk.
        BackendUnavailable: see backend.

    Source: online log-sum-exp over slices of the vocabulary as in Liger-Kernel and TRL (chunked log-prob).
    """
    check_tensor("hidden", hidden, shape=(None, None))
    check_tensor("weight", weight, shape=(None, hidden.shape[1]), dtypes=(hidden.dtype,), device=hidden.device)
    check_tensor("target", target, shape=(hidden.shape[0],), dtypes=(torch.int64,), device=hidden.device)
    if not hidden.dtype.is_floating_point:
        raise ValueError(f"hidden: expected a floating point dtype, got {hidden.dtype}")
    if weight.shape[0] == 0:
        raise ValueError("weight: expected at least one row, got none")
    if chunk < 1:
        raise ValueError(f"chunk: expected a number >= 1, got {chunk}")
    logprob, entropy, *_ = OP(hidden, weight, target, chunk, backend=backend)
    return logprob, entropy
