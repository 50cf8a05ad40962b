"""The chain prompts, scored by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from tests.support.toy import make_toy_scene, make_toy_thing
from trainer.decode import Completion, Prompt
from trainer.policy import Policy
from trainer.toy.chains import ChainFigures, measure_chains, read_places
from trainer.toy.files import write_split
from trainer.toy.lessons import seen_clip
from trainer.toy.tasks import CHAIN_TASKS

SEEN_AT = (1.0, 2.0, 3.0)
"""Whole seconds at which the thing is in view, at [0,0,42,42] of 84 x 84."""


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (
            {"when": "From <t>1.00</t>s to <t>4.00</t>s", "when-at": "From <t>2.00</t>s to <t>4.00</t>s"},
            {"when": 1.0, "when_at": 2 / 3},
        ),
        (
            {"when": "From <t>3.00</t>s to <t>5.00</t>s", "when-at": "From <t>4.00</t>s to <t>6.00</t>s"},
            {"when": 0.25, "when_at": 0.0},
        ),
        ({"when": "From <t>3.00</t>s to <t>2.00</t>s", "when-at": "at 2 s"}, {"when": 0.0, "when_at": 0.0}),
        (
            {
                "where-at": " ".join(f"<t>{t:.2f}</t>s<box>[0,0,42,42]</box>" for t in SEEN_AT),
                "where": "<t>2.00</t>s<box>[0,0,42,84]</box> <t>5.00</t>s<box>[0,0,42,42]</box>",
            },
            {"where_at": 1.0, "where": 0.25},
        ),
        ({"where-at": "<t>5.00</t>s<box>[0,0,42,42]</box>", "where": ""}, {"where_at": 0.0, "where": 0.0}),
    ],
)
def test_by_hand(
    answers: dict[str, str], expected: dict[str, float], policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (real,) = write_split(tmp_path, split="validation", seed=0, num_clips=1)
    clip = dataclasses.replace(seen_clip(tmp_path, real), times=torch.arange(6, dtype=torch.float64))
    tasks = iter(CHAIN_TASKS)

    def generate(prompts: Sequence[Prompt], *, max_new_tokens: int) -> list[Completion]:
        ((_, question),) = prompts
        assert "red circle" in policy.tokenizer.decode(question)
        text = f"<think></think><answer>{answers.get(next(tasks), '')}</answer>"
        return [Completion(ids=(), logprobs=(), text=text, truncated=False)]

    monkeypatch.setattr(policy, "generate", generate)
    figures = measure_chains(policy, [clip], [make_toy_scene(make_toy_thing())], seed=0)
    zeros = {"when": 0.0, "where_at": 0.0, "where": 0.0, "when_at": 0.0}
    assert figures == ChainFigures(**(zeros | {name: pytest.approx(value) for name, value in expected.items()}))


def test_places_are_read_as_they_are_written() -> None:
    assert read_places("<t>1.00</t>s<box>[1,2,30,40]</box> <t>2.5</t>s<box>[0,0,84,84]</box> <t>3</t>s<box>[1,2,3]</box>") == [
        (1.0, (1.0, 2.0, 30.0, 40.0)),
        (2.5, (0.0, 0.0, 84.0, 84.0)),
    ]
