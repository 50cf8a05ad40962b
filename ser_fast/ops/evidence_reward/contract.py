"""Schema, fake and cases of evidence_reward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ser_fast.ops.checks import float_dtype
from ser_fast.ops.evidence_reward import reference
from ser_fast.ops.registry import Case, Kernel, Op, register


def _fake(
    relevance: torch.Tensor,
    localization: torch.Tensor,
    penalty: torch.Tensor,
    valid: torch.Tensor,
    offsets: torch.Tensor,
    *_: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    num_responses, dtype = offsets.shape[0] - 1, float_dtype(relevance, localization, penalty)
    return (
        relevance.new_empty(num_responses, dtype=dtype),
        relevance.new_empty(num_responses, dtype=torch.bool),
        relevance.new_empty(relevance.shape, dtype=dtype),
    )


def _cases() -> Iterator[Case]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(3, 12, generator=generator)
    valid = torch.ones(12, dtype=torch.bool)  # opcheck knows no NaN: rows that are not valid have tests of their own
    offsets, rejected = torch.tensor([0, 5, 5, 6, 12]), torch.tensor([0, 2, 1, 0])
    rules: dict[str, tuple[Any, ...]] = {
        "product": ("product", 0.5, "scale", 0.5, 8, 0.1),
        "mean-subtract": ("mean", 0.3, "subtract", 0.5, 8, 0.1),
        "gate-cap": ("gate", 0.6, "scale", 0.5, 2, 0.2),
    }
    for name, rule in rules.items():
        yield Case(id=name, args=(*scores, valid, offsets, rejected, *rule))
    yield Case(id="half", args=(*scores.half(), valid, offsets, rejected, *rules["product"]))
    yield Case(id="double", args=(*scores.double(), valid, offsets, rejected, *rules["product"]))
    mixed = scores[0].half(), scores[1], scores[2].double()
    yield Case(id="mixed", args=(*mixed, valid, offsets, rejected, *rules["product"]))
    strided = scores.repeat(1, 2).t().contiguous().t()[:, ::2]
    yield Case(id="strided", args=(*strided, valid, offsets, rejected, *rules["product"]))
    yield Case(id="no-claims", args=(*scores[:, :0], valid[:0], torch.tensor([0, 0]), rejected[:1], *rules["product"]))
    yield Case(id="no-responses", args=(*scores[:, :0], valid[:0], offsets[:1], rejected[:0], *rules["product"]))
    yield Case(id="one", args=(*scores[:, :1], valid[:1], torch.tensor([0, 1]), rejected[:1], *rules["product"]))


OP = register(
    Op(
        name="evidence_reward",
        public="evidence_reward",
        signature=(
            "(Tensor relevance, Tensor localization, Tensor penalty, Tensor valid, Tensor offsets, Tensor num_rejected,"
            " str combine, float weight, str penalty_form, float penalty_weight, int cap, float count_cost)"
            " -> (Tensor reward, Tensor valid_response, Tensor claim_reward)"
        ),
        kernels=(Kernel(name="reference", run=reference.evidence_reward, devices=("cpu", "cuda")),),
        fake=_fake,
        cases=_cases,
    )
)
