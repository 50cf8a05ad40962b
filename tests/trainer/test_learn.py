"""The gradient of a step against one completion at a time, and who takes part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from ser_fast.types import Question, RewardTable, Task
from tests.conftest import FAMILIES
from tests.support.policy import textbook_logprobs
from tests.support.referee import make_clip
from trainer.batch import make_batch
from trainer.learn import Lesson, add_gradient, groups_not_valid, lessons_of
from trainer.loss import LossConfig, policy_loss
from trainer.policy import Policy
from trainer.rollout import Group

QUESTIONS = ("What color is the ring?", "Where?", "\u72ac?")


def _groups(policy: Policy, num: int = 4, temperature: float = 1.0) -> list[Group]:
    """Three questions on clips of uneven length and size, with `num` completions each."""
    groups = []
    for i, text in enumerate(QUESTIONS):
        clip = make_clip(1 + i, height=84 + 28 * i, width=112)
        prompt = (policy.prompts.clip(clip), policy.prompts.question(text))
        question = Question(id=str(i), question=text, answer="red", task=Task.FREE_FORM, video=f"{i}.mp4")
        completions = policy.generate([prompt], num=num, max_new_tokens=4 + 3 * i, temperature=temperature, seed=i)
        groups.append(Group(question=question, clip=clip, prompt=prompt, completions=tuple(completions), rollouts=()))
    return groups


def _table(rewards: Sequence[float]) -> RewardTable:
    total = torch.tensor(rewards)
    return RewardTable(total=total, parts={}, valid=~total.isnan())


REWARDS = (1.0, 0.0, 2.0, 0.5, 1.0, 1.0, 1.0, 1.0, 0.0, float("nan"), 3.0, 1.0)
"""Of three groups of four; the second has no variance, one completion of the third is not valid."""


def _gradients(policy: Policy) -> list[torch.Tensor]:
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in policy.model.parameters()]
    policy.model.zero_grad(set_to_none=True)
    return gradients


def _one_by_one(policy: Policy, lessons: Sequence[Lesson], config: LossConfig, reference: Policy) -> float:
    """The textbook: each completion behind its own prompt; then the loss over all."""
    logprobs, kept, sampled, owners = [], [], [], []
    written = [(lesson.group, lesson.group.completions[i]) for lesson in lessons for i in lesson.chosen]
    for owner, (group, completion) in enumerate(written):
        logprobs.append(textbook_logprobs(policy, group.prompt, completion.ids))
        kept.append(textbook_logprobs(reference, group.prompt, completion.ids).detach())
        sampled += completion.logprobs
        owners += [owner] * len(completion.ids)
    advantage = torch.tensor([a for lesson in lessons for a in lesson.advantage])
    loss = policy_loss(
        torch.cat(logprobs),
        torch.tensor(sampled),
        advantage,
        torch.tensor(owners),
        config,
        reference=torch.cat(kept),
    )
    loss.total.backward()  # type: ignore[no-untyped-call]
    return loss.total.item()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("ratio", "mean"), [("token", "token"), ("sequence", "sequence")])
def test_packed_equals_one_by_one(family: str, ratio: str, mean: str, random_vlm: dict[str, Path]) -> None:
    """Loss, and every gradient to 1e-5 of its largest entry."""
    policy, reference = Policy.load(random_vlm[family]), Policy.load(random_vlm[family])
    with torch.no_grad():
        reference.model.lm_head.weight *= 1.1
    config = LossConfig(ratio=ratio, mean=mean, kl=0.05)  # type: ignore[arg-type]
    lessons = lessons_of(_groups(policy), _table(REWARDS))
    learnt = add_gradient(policy, lessons, config, reference=reference)
    packed = _gradients(policy)
    expected = _one_by_one(policy, lessons, config, reference)
    plain = _gradients(policy)
    assert learnt.loss == pytest.approx(expected, abs=1e-6)
    assert learnt.kl is not None
    assert learnt.kl > 0
    assert any(g.any() for g in packed)
    floor = 1e-3 * max(float(want.abs().max()) for want in plain)  # the bias of keys has no gradient but rounding
    for got, want in zip(packed, plain, strict=True):
        assert float((got - want).abs().max()) <= 1e-5 * max(floor, float(want.abs().max()))
    apart = add_gradient(policy, lessons, config, reference=reference, groups_at_once=1)
    assert apart.loss == pytest.approx(learnt.loss, abs=1e-6)
    assert (apart.clipped, apart.kl) == pytest.approx((learnt.clipped, learnt.kl), abs=1e-6)
    for got, want in zip(_gradients(policy), packed, strict=True):
        assert float((got - want).abs().max()) <= 1e-5 * max(floor, float(want.abs().max()))


def test_what_was_sampled_at_a_temperature_is_learnt_at_it(policy: Policy) -> None:
    """All ratios are 1: nothing is clipped, and the loss is minus the mean advantage."""
    lessons = lessons_of(_groups(policy, temperature=1.7), _table(REWARDS))
    tokens = [
        (len(lesson.group.completions[i].ids), a)
        for lesson in lessons
        for i, a in zip(lesson.chosen, lesson.advantage, strict=True)
    ]
    expected = -sum(num * a for num, a in tokens) / sum(num for num, _ in tokens)
    learnt = add_gradient(policy, lessons, LossConfig(clip_low=1e-4, clip_high=1e-4), temperature=1.7)
    assert learnt.clipped == 0
    assert learnt.loss == pytest.approx(expected, abs=1e-5)
    learnt = add_gradient(policy, lessons, LossConfig(clip_low=1e-4, clip_high=1e-4))
    assert learnt.clipped is not None
    assert learnt.clipped > 0.9


@pytest.mark.parametrize("mean", ["token", "sequence"])
@pytest.mark.parametrize("ratio", ["token", "sequence"])
def test_what_is_told_does_not_depend_on_how_many_groups_go_at_once(ratio: str, mean: str, policy: Policy) -> None:
    lessons = lessons_of(_groups(policy), _table(REWARDS))
    config = LossConfig(ratio=ratio, mean=mean, clip_low=0.02, clip_high=0.02)  # type: ignore[arg-type]
    with torch.no_grad():
        policy.model.lm_head.weight *= 1.2
    together, apart = (add_gradient(policy, lessons, config, groups_at_once=num) for num in (8, 1))
    assert together.clipped is not None
    assert 0 < together.clipped < 1
    assert (apart.loss, apart.clipped) == pytest.approx((together.loss, together.clipped), abs=1e-6)


def test_who_takes_part(policy: Policy) -> None:
    groups = _groups(policy)
    lessons = lessons_of(groups, _table(REWARDS))
    assert [lesson.group.question.id for lesson in lessons] == ["0", "2"]
    assert [lesson.chosen for lesson in lessons] == [(0, 1, 2, 3), (0, 2, 3)]
    for lesson in lessons:
        assert sum(lesson.advantage) == pytest.approx(0, abs=1e-5)
    assert lessons_of(groups, _table([float("nan")] * 12)) == []
    learnt = add_gradient(policy, [], LossConfig())
    assert (learnt.loss, learnt.clipped, learnt.kl, learnt.num_lessons, learnt.num_tokens) == (None, None, None, 0, 0)
    assert groups_not_valid(groups, _table(REWARDS)) == 0
    assert groups_not_valid(groups, _table([1.0, 0.0, *[float("nan")] * 10])) == 2
    assert not any(g.any() for g in _gradients(policy))


def test_better_completions_become_likelier(policy: Policy) -> None:
    groups = _groups(policy)
    lessons = lessons_of(groups, _table(REWARDS))
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.05)

    def gap() -> float:
        """Log-probability of the best completion of the first group less that of its worst."""
        batch = make_batch([groups[0].tree((2, 1))], policy.prompts)
        logprob = policy.logprobs(batch)
        return (logprob[batch.owners == 0].sum() - logprob[batch.owners == 1].sum()).item()

    before = gap()
    add_gradient(policy, lessons, LossConfig())
    optimizer.step()
    assert gap() > before + 1e-4
