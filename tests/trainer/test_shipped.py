"""The shipped toy models: what they know, and that ordinary text does them no harm."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ser_fast.assets import TOY_REFEREE
from ser_fast.referee import VLMReferee
from ser_fast.types import RefereeRequest
from tests.support.referee import make_clip
from trainer.evaluate import measure
from trainer.policy import Policy
from trainer.toy import POLICY
from trainer.toy.boxes import in_pixels
from trainer.toy.evaluate import answer, answer_blind, ask, constant_when
from trainer.toy.files import write_split
from trainer.toy.judgements import Judged, judge
from trainer.toy.lessons import seen_clip
from trainer.toy.measure_referee import jittered_claims, measure_referee, policy_claims, swapped_claims
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
    scores = referee.score([request])
    assert scores.valid.all()
    assert scores.reasons == (None,)
    policy = Policy.load("toy")
    for tokenizer in (policy.tokenizer, referee.tokenizer):
        assert tokenizer.unk_token_id is None
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids) == text, "nothing is lost"
    completions = policy.generate(
        [(policy.prompts.clip(clip), policy.prompts.question(text))], num=4, max_new_tokens=112, temperature=1.0
    )
    assert any("<answer>" in completion.text for completion in completions), "it still writes what it has learnt to write"


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
    judged = policy_claims(Policy.load("toy"), folder, scenes * 4, num // 2, seed=0)
    judged += jittered_claims(folder, scenes, num // 2, seed=0)
    figures = measure_referee(VLMReferee("toy"), judged)
    for name, value in figures.to_json().items():
        record_property(name, value)
    chance = 0.0 if len(scenes) == FULL else 0.03  # two standard errors of the figures on 400 claims; the bounds are for 2,000
    assert figures.auc >= 0.9 - chance
    assert figures.relevance_accuracy >= 0.95 - chance
    assert figures.rank_correlation >= 0.7 - chance
    assert figures.level_mass >= 0.9


def test_swapped_claims_differ_in_the_box_alone(held_out: tuple[Path, list[Scene]]) -> None:
    judged = swapped_claims(*held_out, 200, seed=0)
    for good, swapped in zip(judged[::2], judged[1::2], strict=True):
        assert good.localization >= 0.45
        assert swapped.localization < 0.45
        assert good.request.boxes != swapped.request.boxes
        assert dataclasses.replace(good.request, boxes=swapped.request.boxes) == swapped.request
    assert {claim.relevance for claim in judged} == {0.0, 1.0}


@pytest.mark.parametrize("name", [*ORDINARY, "thing", "person", "123", "dog on a sofa"])
def test_the_referee_sees_through_names_that_say_nothing(held_out: tuple[Path, list[Scene]], name: str) -> None:
    """On the true box of the asked thing, where nothing but the name is wrong."""
    judged = list(_true_boxes(*held_out, name))
    scores = VLMReferee("toy").score([claim.request for claim in judged])
    assert (scores.relevance < 0.5).float().mean() >= 0.95


def _true_boxes(folder: Path, scenes: list[Scene], name: str) -> Iterator[Judged]:
    for asked in ask(scenes)[:QUICK]:
        clip = seen_clip(folder, asked.scene)
        views = [(i, box) for i, t in enumerate(clip.times.tolist()) if (box := asked.thing.box(t)) is not None]
        if views:
            frame, box = views[len(views) // 2]
            yield judge(asked.scene, clip, frame, in_pixels(box), name, asked.thing, asked.attribute)


def test_the_policy_is_a_cold_start(held_out: tuple[Path, list[Scene]], record_property: Callable[[str, object], None]) -> None:
    """It cites what it sees, better than any constant time or what it knows without looking; and there is room above it."""
    folder, scenes = held_out
    policy = Policy.load("toy")
    asked = ask(scenes)
    clips = [seen_clip(folder, scene) for scene in scenes]
    figures, blind = measure(answer(policy, asked, clips)), measure(answer_blind(policy, asked, clips))
    for name, value in figures.to_json().items():
        record_property(name, value)
    assert figures.without_claims <= 0.05
    assert figures.truncated <= 0.05
    assert figures.when is not None
    assert figures.where is not None
    assert blind.when is not None
    assert blind.where is not None
    few = len(scenes) == QUICK  # a bound on all clips is one of two standard errors more on few
    assert 0.5 <= figures.what <= 0.9 + few * 0.08
    assert 0.5 <= figures.when <= 0.7 + few * 0.1
    assert 0.2 <= figures.where <= 0.5
    assert figures.what - blind.what > 0.3
    assert figures.when - blind.when > 0.1
    assert figures.where - blind.where > 0.1
    if not few:
        assert figures.when - constant_when(asked) > 0.05
