"""The shipped toy models: what they know, and that ordinary text does them no harm."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ser_fast.assets import TOY_REFEREE
from ser_fast.referee import VLMReferee
from ser_fast.types import Clip, RefereeRequest
from tests.support.referee import make_clip
from trainer.policy import Policy
from trainer.toy import POLICY
from trainer.toy.evaluate import ask, complete, measure
from trainer.toy.files import write_split
from trainer.toy.lessons import seen_clip
from trainer.toy.measure_referee import jittered_claims, measure_referee, policy_claims
from trainer.toy.models import PROMPT
from trainer.toy.world import Scene

QUICK, FULL = 64, 320
"""Held-out clips."""
ORDINARY = ("woman in a light coat", "\u72ac\u3068\u732b", "\U0001f469\u200d\U0001f467 caf\u00e9")


def test_both_together_are_small() -> None:
    size = sum(path.stat().st_size for folder in (TOY_REFEREE, POLICY) for path in folder.iterdir())
    assert size <= 15e6


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_does_no_harm(text: str) -> None:
    clip = make_clip(6, height=168, width=168)
    referee = VLMReferee("toy")
    request = RefereeRequest(
        clip=clip, frame_idx=1, boxes=((10.0, 10.0, 60.0, 70.0),), name=text, time_s=1.0, question=f"{text}?", answer=text
    )
    assert referee.score([request]).valid.all()
    policy = Policy.load(POLICY, prompt=PROMPT)
    assert policy.tokenizer.unk_token_id is None
    assert text in policy.tokenizer.decode(policy.prompts.question(text)), "every token has a meaning"
    ids = policy.prompts.question(text)
    (completion,) = policy.generate([(policy.prompts.clip(clip), ids)], max_new_tokens=8)
    assert completion.ids


@pytest.fixture(scope="module", params=[QUICK, pytest.param(FULL, marks=pytest.mark.full)])
def held_out(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Scene]]:
    folder = tmp_path_factory.mktemp("held-out")
    return folder, write_split(folder, split="held-out", seed=0, num_clips=request.param)


def test_the_referee_knows_its_world(
    held_out: tuple[Path, list[Scene]], record_property: Callable[[str, object], None]
) -> None:
    """On claims of the cold-start policy and on jittered true boxes, in equal parts."""
    folder, scenes = held_out
    num = 2000 if len(scenes) == FULL else 400
    judged = policy_claims(Policy.load(POLICY, prompt=PROMPT), folder, scenes * 4, num // 2, seed=0)
    judged += jittered_claims(folder, scenes, num // 2, seed=0)
    figures = measure_referee(VLMReferee("toy"), judged)
    for name, value in figures.to_json().items():
        record_property(name, value)
    chance = 0.0 if len(scenes) == FULL else 0.03  # two standard errors of the figures on 400 claims; the bounds are for 2,000
    assert figures.auc >= 0.9 - chance
    assert figures.relevance_accuracy >= 0.95 - chance
    assert figures.rank_correlation >= 0.7 - chance
    assert figures.level_mass >= 0.9


def _black(clip: Clip) -> Clip:
    return dataclasses.replace(clip, frames=torch.zeros_like(clip.frames))


def test_the_policy_is_a_cold_start(held_out: tuple[Path, list[Scene]], record_property: Callable[[str, object], None]) -> None:
    """It cites what it sees, and there is room above it."""
    folder, scenes = held_out
    policy = Policy.load(POLICY, prompt=PROMPT)
    asked = ask(scenes)
    clips = [seen_clip(folder, scene) for scene in scenes]
    questions, durations = [question.question for question in asked], [clip.duration for clip in clips]
    figures = measure(policy, asked, complete(policy, clips, questions), durations)
    for name, value in figures.to_json().items():
        record_property(name, value)
    assert figures.without_claims <= 0.05
    assert figures.truncated <= 0.05
    assert figures.when is not None
    assert figures.where is not None
    assert 0.5 <= figures.what <= 0.9
    assert 0.4 <= figures.when <= 0.7
    assert 0.15 <= figures.where <= 0.5
    blind = measure(policy, asked, complete(policy, [_black(clip) for clip in clips], questions), durations)
    assert blind.when is not None
    assert blind.where is not None
    assert figures.what - blind.what > 0.3, "it looks at the frames"
    assert figures.where - blind.where > 0.1
    if len(scenes) == FULL:
        assert figures.when - blind.when > 0.1
