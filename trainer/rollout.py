"""Questions -> completions of the policy, in groups: what a step of reinforcement is made of."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ser_fast.types import Clip, Question, Rollout
from ser_fast.video import load_clip, load_image
from trainer.batch import Branch, ClipTree
from trainer.decode import Completion, Prompt
from trainer.policy import Policy


class Frames:
    """The frames that a policy sees of the media of questions; the last `keep` clips stay decoded."""

    def __init__(self, videos: str | os.PathLike[str], *, fps: float, max_frames: int, keep: int = 256) -> None:
        self._videos, self._fps, self._max_frames = Path(videos), fps, max_frames
        self._load = functools.lru_cache(keep)(self._decode)

    def of(self, question: Question) -> Clip:
        """Raises DecodeError."""
        return self._load(question.media, question.image is not None, question.start, question.end)

    def _decode(self, media: str, is_image: bool, start: float | None, end: float | None) -> Clip:
        path = self._videos / media
        if is_image:
            return load_image(path)
        return load_clip(path, fps=self._fps, max_frames=self._max_frames, start=start, end=end)


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
    frames: Frames,
    *,
    num: int,
    max_new_tokens: int,
    temperature: float,
    seed: int = 0,
    batch_size: int = 64,
) -> list[Group]:
    """`num` completions of each question; arguments as `Policy.generate`. A rollout is called after its question and numbered;
    the question's own id names the group."""
    clips = [frames.of(question) for question in questions]
    prompts = [
        (policy.prompts.clip(clip), policy.prompts.question(question.question))
        for clip, question in zip(clips, questions, strict=True)
    ]
    completions = policy.generate(
        prompts, num=num, max_new_tokens=max_new_tokens, temperature=temperature, seed=seed, batch_size=batch_size
    )
    groups = []
    for g, (question, clip, prompt) in enumerate(zip(questions, clips, prompts, strict=True)):
        written = tuple(completions[g * num : (g + 1) * num])
        rollouts = tuple(
            Rollout(
                question=dataclasses.replace(question, id=f"{question.id}#{i}"),
                completion=completion.text,
                coord_space=policy.prompts.coord_space(prompt[0].size),
                group=question.id,
                frame_times=tuple(clip.times.tolist()),
                truncated=completion.truncated,
            )
            for i, completion in enumerate(written)
        )
        groups.append(Group(question=question, clip=clip, prompt=prompt, completions=written, rollouts=rollouts))
    return groups
