"""The answer, format and combination rules."""

from __future__ import annotations

import math
import random

import pytest
import torch

from ser_fast.claims import parse_claims
from ser_fast.errors import InputError
from ser_fast.rewards import (
    EvidenceConfig,
    RewardConfig,
    answer_reward,
    combine,
    format_reward,
    get_reward,
    rouge_mean,
)
from ser_fast.rewards.presets import PRESETS
from ser_fast.types import CoordSpace, Question, Task


def _question(task: Task, answer: str) -> Question:
    return Question(id="q", question="?", answer=answer, task=task, video="v.mp4")


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        *[(text, True) for text in ("B", "B.", "(B)", "[B]", " B \n")],
        *[(text, False) for text in ("A", "b", "B. dog", "(B).", "B)", "BB", "The answer is B", "", "((B))", "B]")],
        (None, False),
    ],
)
def test_letters_exactly(answer: str | None, right: bool) -> None:
    for task in (Task.MCQ, Task.TEMPORAL_MCQ):
        assert answer_reward([answer], [_question(task, "B")]).item() == float(right)
    if answer is not None:
        wrapped = f"From <t>1</t>s to <t>2</t>s\nCorrect Option: {answer}"
        assert answer_reward([wrapped], [_question(Task.TEMPORAL_MCQ, "B")]).item() == float(right)
        assert answer_reward([wrapped], [_question(Task.MCQ, "B")]).item() == 0.0


def test_a_letter_task_needs_a_letter_to_compare_with() -> None:
    with pytest.raises(InputError, match="answer of question 'q': expected a letter, got 'a dog'"):
        answer_reward(["B"], [_question(Task.MCQ, "a dog")])


@pytest.mark.parametrize("task", [Task.TEMPORAL, Task.IMAGE_GROUNDING])
def test_tasks_without_an_answer_reward_are_named(task: Task) -> None:
    with pytest.raises(InputError, match=f"task of question 'q': '{task}' has no answer reward yet"):
        answer_reward(["x"], [_question(task, "x")])


def test_rouge_by_hand() -> None:
    assert rouge_mean("the cat sat", "the cat sat") == 1.0
    assert rouge_mean("dog", "cat") == 0.0
    assert rouge_mean("snow", "Snow.") == pytest.approx(2 / 3), "a single word has no pairs"
    # unigrams 2 of 2 and 3: F1 4/5; bigrams 0; common subsequence 2 words: 4/5
    assert rouge_mean("the sat", "the cat sat") == pytest.approx((0.8 + 0 + 0.8) / 3)
    assert rouge_mean("sat the", "the cat sat") == pytest.approx((0.8 + 0 + 0.4) / 3)
    assert rouge_mean("", "") == rouge_mean("...", "cat") == 0.0


def test_rouge_knows_other_scripts() -> None:
    assert rouge_mean("一只猫", "一只猫") == 1.0
    assert 0 < rouge_mean("一只狗", "一只猫") < 1
    assert rouge_mean("Größe zwei", "größe zwei") == rouge_mean("STRASSE lang", "straße lang") == 1.0
    assert rouge_mean("दान", "दिन") == rouge_mean("की", "का") == rouge_mean("ที่", "ท้") == 0.0, "marks tell words apart"
    assert rouge_mean("le caf\u00e9 noir", "le cafe\u0301 noir") == 1.0, "composed or not"
    assert rouge_mean("𠀀𠀁", "𠀀 𠀁") == 1.0


def test_rouge_equals_the_package_on_ascii() -> None:
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)
    rng = random.Random(0)
    words = ["the", "cat", "sat", "on", "a", "mat", "A", "Cat's", "3", "x-ray", "--", "e.g."]
    for _ in range(300):
        answer, reference = (" ".join(rng.choices(words, k=rng.randrange(12))) for _ in range(2))
        expected = sum(score.fmeasure for score in scorer.score(reference, answer).values()) / 3
        assert rouge_mean(answer, reference) == pytest.approx(expected), (answer, reference)


def test_rouge_of_long_answers_is_quick() -> None:
    rng = random.Random(0)
    answer, reference = (" ".join(rng.choices(["a", "b", "c", "d"], k=20_000)) for _ in range(2))
    assert 0.5 < rouge_mean(answer, reference) < 1


CLAIM = "<obj>a</obj><box>[1,2,300,400]</box>at<t>1</t>s"
FORMATS = {
    f"<think>{CLAIM}</think><answer>b</answer>": 1.0,
    "<think>no claim</think><answer>b</answer>": 0.5,
    f"<think>{CLAIM.replace('300', 'NaN')}</think><answer>b</answer>": 0.5,
    "<think></obj><obj></box><box></t><t></think><answer>b</answer>": 0.5,  # counted tags are no evidence
    f"<think>{CLAIM}<obj></think><answer>b</answer>": 0.0,
    f"<think>{CLAIM}</think>b": 0.0,
    f"<think>{CLAIM}<answer>b</answer>": 0.0,
    f"<think>{CLAIM}</think><answer>b": 0.0,
    f"<think>{CLAIM}</think><answer>b</answer></answer>": 0.0,
    "": 0.0,
}


def test_format_levels() -> None:
    claims, report = parse_claims(list(FORMATS), coord_space=CoordSpace(kind="norm1000"), frame_hw=(900, 900), duration_s=9)
    assert format_reward(report, claims).tolist() == list(FORMATS.values())
    lenient = format_reward(report, claims, require_evidence=False).tolist()
    assert lenient == [math.ceil(level) for level in FORMATS.values()]


def test_combination_is_a_weighted_sum() -> None:
    parts = {"a": torch.tensor([1.0, 0.5]), "b": torch.tensor([0.2, 0.0])}
    table = combine(parts, {"a": 2.0, "b": 0.5})
    torch.testing.assert_close(table.total, torch.tensor([2.1, 1.0]))
    assert table.valid.all()
    gated = combine(parts, {"a": 1.0, "b": 1.0}, gate={"a": "b"})
    torch.testing.assert_close(gated.total, torch.tensor([1.2, 0.0]))


def test_what_is_missing_makes_the_response_not_valid() -> None:
    parts = {"a": torch.tensor([1.0, 1.0]), "b": torch.tensor([math.nan, 1.0])}
    table = combine(parts, {"a": 1.0, "b": 1.0})
    assert table.valid.tolist() == [False, True]
    assert table.total[0].isnan()
    assert combine(parts, {"a": 1.0, "b": 0.0}).valid.all(), "a part without weight is not missed"
    assert not combine(parts, {"a": 1.0}, gate={"a": "b"}).valid[0], "nor is its gate known"
    with pytest.raises(ValueError, match="weights, gate: expected names among a, b, got 'c'"):
        combine(parts, {"c": 1.0})


def test_configs_check_themselves() -> None:
    for make, message in (
        (lambda: EvidenceConfig(penalty_mode="exact"), "penalty_mode: expected one of snap, points, interval, got 'exact'"),  # type: ignore[arg-type]
        (lambda: EvidenceConfig(combine="max"), "combine: expected one of product, mean, gate, got 'max'"),  # type: ignore[arg-type]
        (lambda: EvidenceConfig(cap=0), "cap: expected a whole number >= 1, got 0"),
        (lambda: EvidenceConfig(sigma=0.0), "sigma: expected a number > 0, got 0.0"),
        (lambda: RewardConfig(weights={"answer": math.nan}), "weights: expected finite numbers for answer, format, evidence"),
        (lambda: RewardConfig(weights={"speed": 1.0}), "weights: expected finite numbers for answer, format, evidence"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_the_defaults_are_those_of_the_reconstruction() -> None:
    """Written down here once more, so that changing one is a decision."""
    assert get_reward("ser") == RewardConfig(
        weights={"answer": 1.0, "format": 1.0, "evidence": 1.0},
        evidence=EvidenceConfig(
            combine="product",
            combine_weight=0.5,
            penalty_form="scale",
            penalty_weight=0.5,
            cap=8,
            count_cost=0.1,
            penalty_mode="snap",
            sigma=1.0,
            penalty_unit="seconds",
        ),
        require_evidence=True,
        gate_evidence=False,
    )


def test_presets_by_name() -> None:
    for name, preset in PRESETS.items():
        assert get_reward(name) == preset()
    with pytest.raises(InputError, match="reward: expected a RewardConfig or one of ser, answer, got 'sor'"):
        get_reward("sor")
