"""Questions -> completions of the policy, in groups: what a step of reinforcement is made of."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from ser_fast.claims import parse_claims
from ser_fast.types import ClaimBatch, Clip, ParseReport, Question, Rollout
from trainer.batch import Branch, ClipTree
from trainer.decode import Completion, Prompt
from trainer.policy import Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """One question, and what the policy answered to it."""

    question: Question
    clip: Clip
    prompt: Prompt
    completions: tuple[Completion, ...]
    rollouts: tuple[Rollout, ...]

    def tree(self, chosen: Sequence[int]) -> ClipTree:
        """Some of the completions behind the prompt that they share."""
        clip, question = self.prompt
        return ClipTree(
            clip=clip, branches=(Branch(question=question, completions=tuple(self.completions[i].ids for i in chosen)),)
        )


def roll_out(
    policy: Policy,
    questions: Sequence[Question],
    clips: Sequence[Clip],
    *,
    num: int,
    max_new_tokens: int,
    temperature: float,
    seed: int = 0,
    batch_size: int = 64,
) -> list[Group]:
    """`num` completions of each question on its clip; arguments as `Policy.generate`. A rollout is called after its question
    and numbered; the question's own id names the group, with ~1 and so on where it is asked again."""
    prompts = [
        (policy.prompts.clip(clip), policy.prompts.question(question.question))
        for clip, question in zip(clips, questions, strict=True)
    ]
    completions = policy.generate(
        prompts, num=num, max_new_tokens=max_new_tokens, temperature=temperature, seed=seed, batch_size=batch_size
    )
    groups = []
    names, asked = {question.id for question in questions}, set[str]()
    for g, (question, clip, prompt) in enumerate(zip(questions, clips, prompts, strict=True)):
        written = tuple(completions[g * num : (g + 1) * num])
        name = question.id
        if name in asked:
            name = next(again for i in itertools.count(1) if (again := f"{question.id}~{i}") not in names)
        names.add(name)
        asked.add(name)
        rollouts = tuple(
            Rollout(
                question=dataclasses.replace(question, id=f"{name}#{i}"),
                completion=completion.text,
                coord_space=policy.prompts.coord_space(prompt[0].size),
                group=name,
                frame_times=tuple(clip.times.tolist()),
                truncated=completion.truncated,
            )
            for i, completion in enumerate(written)
        )
        groups.append(Group(question=question, clip=clip, prompt=prompt, completions=written, rollouts=rollouts))
    return groups


def read_claims(groups: Sequence[Group]) -> tuple[ClaimBatch, ParseReport]:
    """The claims of all rollouts, boxes in pixels of the clips."""
    rows = [(rollout, group.clip) for group in groups for rollout in group.rollouts]
    return parse_claims(
        [rollout.completion for rollout, _ in rows],
        coord_space=[rollout.coord_space for rollout, _ in rows],
        frame_hw=[clip.frame_hw for _, clip in rows],
        duration_s=[clip.duration for _, clip in rows],
    )
