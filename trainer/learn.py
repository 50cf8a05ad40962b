"""Scored groups -> the gradient of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ser_fast.ops import group_advantage
from ser_fast.types import RewardTable, Segments
from trainer.batch import make_batch
from trainer.loss import LossConfig, policy_loss
from trainer.policy import Policy
from trainer.rollout import Group


@dataclass(frozen=True, kw_only=True, slots=True)
class Lesson:
    """What a group has to teach."""

    group: Group
    chosen: tuple[int, ...]
    """The completions that take part."""
    advantage: tuple[float, ...]
    """Of each of them."""

    @property
    def num_tokens(self) -> int:
        """Of the completions that take part."""
        return sum(len(self.group.completions[i].ids) for i in self.chosen)


@dataclass(frozen=True, kw_only=True, slots=True)
class Learnt:
    """What a step's gradient was made of; None where there was nothing."""

    loss: float | None
    clipped: float | None
    kl: float | None
    """None without a reference."""
    num_lessons: int
    num_tokens: int


def lessons_of(groups: Sequence[Group], rewards: RewardTable) -> list[Lesson]:
    """The groups whose rewards differ, without the completions that are not valid. The others have no gradient."""
    segments = Segments.from_lengths(len(group.completions) for group in groups)
    advantage = group_advantage(rewards.total, segments, rewards.valid).tolist()
    valid = rewards.valid.tolist()
    lessons = []
    for g, group in enumerate(groups):
        rows = [row for row in segments.rows(g) if valid[row]]
        if any(advantage[row] != 0 for row in rows):
            chosen = tuple(row - segments.host[g] for row in rows)
            lessons.append(Lesson(group=group, chosen=chosen, advantage=tuple(advantage[row] for row in rows)))
    return lessons


def groups_not_valid(groups: Sequence[Group], rewards: RewardTable) -> int:
    """The groups of which no completion is valid."""
    segments = Segments.from_lengths(len(group.completions) for group in groups)
    return sum(not any(rewards.valid[row] for row in segments.rows(g)) for g in range(len(groups)))


def add_gradient(
    policy: Policy,
    lessons: Sequence[Lesson],
    config: LossConfig,
    *,
    temperature: float = 1.0,
    groups_at_once: int = 8,
    reference: Policy | None = None,
) -> Learnt:
    """Adds the gradient of the loss over all lessons to the policy's.

    Args:
        policy: learns.
        lessons: of a step; without any, nothing is added.
        config: of the loss.
        temperature: at which the completions were sampled: what is learnt is that distribution.
        groups_at_once: of a forward and backward. The gradient does not depend on it.
        reference: what the policy is held to, where config.kl is above 0.
    """
    num_tokens = sum(lesson.num_tokens for lesson in lessons)
    num_completions = sum(len(lesson.chosen) for lesson in lessons)
    if not lessons:
        return Learnt(loss=None, clipped=None, kl=None, num_lessons=0, num_tokens=0)
    sums = torch.zeros(3, dtype=torch.float64)
    for first in range(0, len(lessons), groups_at_once):
        part = lessons[first : first + groups_at_once]
        batch = make_batch([lesson.group.tree(lesson.chosen) for lesson in part], policy.prompts, device=policy.device)
        written = [lesson.group.completions[i] for lesson in part for i in lesson.chosen]
        with torch.no_grad():
            kept = reference.logprobs(batch, temperature=temperature) if reference is not None else None
        loss = policy_loss(
            policy.logprobs(batch, temperature=temperature),
            torch.tensor([p for completion in written for p in completion.logprobs], device=policy.device),
            torch.tensor([a for lesson in part for a in lesson.advantage], device=policy.device),
            batch.owners,
            config,
            reference=kept,
        )
        by = {"token": sum(lesson.num_tokens for lesson in part) / num_tokens, "sequence": len(written) / num_completions}
        share = by[config.mean]
        (share * loss.total).backward()  # type: ignore[no-untyped-call]
        sums += torch.tensor([share * loss.total.item(), by[config.ratio] * loss.clipped, by["token"] * (loss.kl or 0.0)])
    total, clipped, kl = sums.tolist()
    return Learnt(
        loss=total,
        clipped=clipped,
        kl=kl if reference is not None else None,
        num_lessons=len(lessons),
        num_tokens=num_tokens,
    )
