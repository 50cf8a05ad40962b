"""What, when, where, AM and LGM by hand; the truth of claims; the figures of a referee."""

from __future__ import annotations

import dataclasses
import math
import random
import re
from collections.abc import Sequence

import pytest
import torch

from ser_fast.types import Clip, RefereeRequest, RefereeScores
from tests.support.toy import answered, make_toy_scene, make_toy_thing
from trainer.evaluate import measure, true_boxes
from trainer.policy import Policy
from trainer.toy.boxes import in_pixels, jittered, overlap
from trainer.toy.evaluate import Asked, ask, constant_when
from trainer.toy.judgements import Judged, claims_on, judge, soft_levels
from trainer.toy.measure_referee import area_under_curve, measure_referee, spearman
from trainer.toy.world import SECONDS, SIDE_PX, Scene, draw, make_scene

ASKED = Asked(scene=make_toy_scene(make_toy_thing()), thing=make_toy_thing(), attribute="color")


@pytest.mark.parametrize(
    ("completion", "what", "when", "where"),
    [
        # the true box is [0,0,42,42] of 84 x 84 while it is in view
        ("<think><obj>red circle</obj><box>[0,0,42,42]</box>at<t>2.00</t>s</think><answer>red</answer>", 1, 1, 1),
        ("<think><obj>red circle</obj><box>[0,0,42,42]</box>at<t>5.00</t>s</think><answer>red</answer>", 1, 0, 0),
        ("<think><obj>red circle</obj><box>[0,0,42,84]</box>at<t>2.00</t>s</think><answer>blue</answer>", 0, 1, 0.5),
        (
            "<think><obj>a</obj><box>[0,0,42,42]</box>at<t>1.00</t>s <obj>a</obj><box>[0,0,42,42]</box>at<t>4.00</t>s"
            "</think><answer>red</answer>",
            1,
            0.5,
            0.5,
        ),
        ("<think></think><answer>red</answer>", 1, 0, 0),
        ("<think><obj>red circle</obj><box>[0,0,42,42]</box>at<t>2.00</t>s", 0, 0, 0),
        ("<answer>a red one</answer>", 0, 0, 0),
    ],
)
def test_what_when_where_by_hand(completion: str, what: float, when: float, where: float, policy: Policy) -> None:
    figures = measure(answered(policy, ASKED, [completion]))
    assert (figures.what, figures.when, figures.where) == pytest.approx((what, when, where))
    assert figures.am == pytest.approx((what + when + where) / 3)


def test_lgm_caps_each_mean(policy: Policy) -> None:
    right = "<think><obj>red circle</obj><box>[0,0,42,42]</box>at<t>2.00</t>s</think><answer>red</answer>"
    wrong = "<think></think><answer>blue</answer>"
    figures = measure(answered(policy, ASKED, [right, right, right, wrong]))
    assert (figures.cap, figures.what, figures.claims, figures.without_claims) == (0.875, 0.75, 0.75, 0.25)
    assert figures.lgm == pytest.approx(math.log(4))
    full = measure(answered(policy, ASKED, [right] * 4))
    assert full.lgm == pytest.approx(math.log(8)), "ln(1 / (1 - cap)), not infinity"


def test_labels_say_where_things_are_at_any_time() -> None:
    """Boxes at whole seconds, and straight lines between them: as the simulator, to four digits."""
    rng = random.Random(0)
    for i in range(60):
        scene = make_scene("validation", 3, i)
        for thing in scene.things:
            row = Asked(scene=scene, thing=thing, attribute="color").row
            for time_s in (round(rng.uniform(0, SECONDS), 2) for _ in range(8)):
                box, found = thing.box(time_s), true_boxes(row, time_s)
                assert len(found) == (box is not None)
                if box is not None:
                    assert found[0] == pytest.approx(box, abs=5e-4)


def test_labels_at_one_time_are_of_several_things() -> None:
    """With or without names: two men in a frame are a pair of labels at each time."""
    labels = [(t, [x + t / 10, 0.0, x + t / 10 + 0.1, 0.1]) for t in (0.0, 2.0) for x in (0.0, 0.5)]
    for name in ({}, {"name": "man"}):
        boxes = tuple({"time_s": t, "box": box, **name} for t, box in labels)
        question = dataclasses.replace(ASKED.row, interval=(0.0, 3.0), boxes=boxes)
        assert true_boxes(question, 1.0) == [pytest.approx((0.1, 0.0, 0.2, 0.1)), pytest.approx((0.6, 0.0, 0.7, 0.1))]


def test_a_constant_time_is_as_good_as_the_most_popular_one() -> None:
    early, late = make_toy_thing(), make_toy_thing(appears=3.0, vanishes=6.0)
    asked = [Asked(scene=make_toy_scene(thing), thing=thing, attribute="color") for thing in (early, early, late)]
    assert constant_when(asked) == 1.0, "3.00 s lies in both"
    apart = [Asked(scene=ASKED.scene, thing=make_toy_thing(vanishes=3.0), attribute="color"), asked[0], asked[2]]
    assert constant_when(apart) == pytest.approx(2 / 3)


def test_questions_take_turns() -> None:
    asked = ask([make_scene("validation", 0, i) for i in range(12)])
    assert {(q.scene.things.index(q.thing), q.attribute) for q in asked} == {
        (i, a) for i in range(3) for a in ("color", "shape")
    }
    assert all(q.answer in (q.thing.color, q.thing.shape) and q.answer not in q.row.question for q in asked)


def _clip(scene: Scene) -> Clip:
    times = torch.arange(SECONDS, dtype=torch.float64)
    frames = torch.from_numpy(draw(scene)[: len(times)])
    return Clip(frames=frames, times=times, start_s=0.0, duration=6.0, source="x", decoded_by="test")


def test_truth_of_a_claim_by_hand() -> None:
    red, blue = make_toy_thing(), make_toy_thing(color="blue", shape="ring", begin=(0.75, 0.75), end=(0.75, 0.75))
    scene = make_toy_scene(red, blue)
    clip = _clip(scene)
    box = in_pixels((0.0, 0.0, 0.5, 0.5))
    cases = (
        (2, "red circle", 1.0, 1.0),
        (2, "blue ring", 0.0, 0.0),
        (2, "green circle", 0.0, 0.0),
        (5, "red circle", 1.0, 0.0),
    )
    for frame, name, relevance, localization in cases:
        judged = judge(scene, clip, frame, box, name, red, "color")
        assert (judged.relevance, judged.localization) == (relevance, localization), (frame, name)
        assert judged.request.question == "What color is the circle?"
        assert judged.request.answer == "red"


def test_claims_for_training_are_of_all_kinds() -> None:
    rng = random.Random(0)
    judged = []
    for i in range(80):
        scene = make_scene("validation", 0, i)
        judged += claims_on(scene, _clip(scene), rng, 4)
    relevant = sum(j.relevance for j in judged) / len(judged)
    absent = sum(j.localization == 0 for j in judged) / len(judged)
    good = sum(j.localization >= 0.5 for j in judged) / len(judged)
    wrong_answer = sum(_wrong_in_the_answer_only(j) for j in judged) / len(judged)
    assert 0.25 < relevant < 0.6
    assert wrong_answer > 0.08, "otherwise a referee need not compare the answer"
    assert 0.2 < absent < 0.6
    assert 0.15 < good < 0.5


def _wrong_in_the_answer_only(judged: Judged) -> bool:
    words = set(judged.request.name.split())
    return judged.request.answer not in words and bool(words & set(re.findall(r"\w+", judged.request.question)))


def test_jitter_reaches_the_overlap_that_is_asked_for() -> None:
    rng = random.Random(0)
    box = (50.0, 60.0, 100.0, 110.0)
    for _ in range(300):
        wanted = rng.random()
        moved = jittered(box, wanted, rng)
        assert 0 <= moved[0] < moved[2] <= SIDE_PX
        assert 0 <= moved[1] < moved[3] <= SIDE_PX
        assert overlap(box, moved) == pytest.approx(wanted, abs=0.12)


def test_levels_whose_expectation_is_the_truth() -> None:
    scores = torch.tensor([0.0, 0.1, 0.25, 0.6, 1.0])
    weights = soft_levels(scores, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(5))
    torch.testing.assert_close((weights * torch.linspace(0, 1, 5)).sum(-1), scores)
    assert ((weights > 0).sum(-1) <= 2).all()


def test_auc_and_spearman_by_hand() -> None:
    score = torch.tensor([0.1, 0.4, 0.35, 0.8])
    assert area_under_curve(score, torch.tensor([False, False, True, True])) == 0.75
    assert area_under_curve(torch.zeros(4), torch.tensor([False, True, True, False])) == 0.5, "ties count half"
    assert spearman(score, score**3) == pytest.approx(1.0)
    assert spearman(score, -score) == pytest.approx(-1.0)
    assert spearman(torch.tensor([1.0, 2.0, 2.0, 3.0]), torch.tensor([1.0, 3.0, 2.0, 4.0])) == pytest.approx(0.9486833)
    with pytest.raises(ValueError, match="positive: expected both kinds, got 0 and 4"):
        area_under_curve(score, torch.zeros(4, dtype=torch.bool))


def test_figures_of_a_referee_that_knows_all() -> None:
    rng = random.Random(1)
    judged = []
    for i in range(40):
        scene = make_scene("validation", 1, i)
        judged += claims_on(scene, _clip(scene), rng, 4)

    class Oracle:
        def score(self, requests: Sequence[RefereeRequest]) -> RefereeScores:
            num = len(requests)
            return RefereeScores(
                relevance=torch.tensor([j.relevance for j in judged]),
                localization=torch.tensor([j.localization for j in judged]),
                level_mass=torch.full((num,), 0.97),
                valid=torch.ones(num, dtype=torch.bool),
                reasons=(None,) * num,
            )

    figures = measure_referee(Oracle(), judged)  # type: ignore[arg-type]
    assert (figures.auc, figures.relevance_accuracy) == (1.0, 1.0)
    assert figures.rank_correlation == pytest.approx(1.0)
    assert figures.level_mass == pytest.approx(0.97)
