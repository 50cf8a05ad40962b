"""Supervised batches for the toy policy: clips of the train split with a teacher's demonstrations on each."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Sequence
from pathlib import Path

import torch

from ser_fast.types import Clip
from ser_fast.video import load_clip
from trainer.batch import Branch, ClipTree
from trainer.order import Order
from trainer.policy import Policy
from trainer.toy.tasks import Looseness, Seen, lesson
from trainer.toy.world import SIDE_PX, Scene

FPS, MAX_FRAMES = 1.0, 6
"""Of the frames that the policy sees."""


def seen_clip(folder: Path, scene: Scene, side: int | None = None) -> Clip:
    """The frames that a policy sees of a scene's video, read from its file; `side` makes them smaller to keep many."""
    return load_clip(folder / scene.file, fps=FPS, max_frames=MAX_FRAMES, size=None if side is None else (side, side))


class Lessons:
    """What is taught at a step depends on the seed and the step only."""

    def __init__(
        self,
        policy: Policy,
        folder: Path,
        scenes: Sequence[Scene],
        *,
        seed: int,
        num_clips: int = 8,
        num_branches: int = 6,
        num_frames: Sequence[int] = (MAX_FRAMES,),
        loose: Looseness | None = None,
    ) -> None:
        """Args:
        policy: gives prompts and the size of frames.
        folder: holds the videos.
        scenes: of the train split.
        seed: of the order of clips and of the teacher.
        num_clips: of a batch.
        num_branches: demonstrations on one clip.
        num_frames: of a clip that are shown, chosen at random; steps take turns. Chain tasks need all of them.
        loose: how the teacher errs; exact if not given.
        """
        self._policy, self._folder, self._scenes, self._seed, self._loose = policy, folder, scenes, seed, loose
        self._num_branches, self._num_frames = num_branches, num_frames
        self._clip = functools.cache(self._load)
        self._order = Order(len(scenes), num_clips, seed)
        self._completion = functools.lru_cache(200_000)(policy.completion_ids)

    def loss_at(self, step: int) -> torch.Tensor:
        """Mean negative log-probability of the completion tokens of a batch."""
        rng = random.Random(f"{self._seed}/{step}")
        num_frames = self._num_frames[step % len(self._num_frames)]
        return self._policy.loss([self._tree(i, num_frames, rng) for i in self._order.batch(step)])

    def _tree(self, i: int, num_frames: int, rng: random.Random) -> ClipTree:
        scene, clip = self._scenes[i], self._clip(i)
        if num_frames < len(clip.times):
            clip = _some_frames(scene, clip, num_frames, rng)
        prompt = self._policy.prompts.clip(clip)
        seen = Seen(scene=scene, times=prompt.frame_times, size=prompt.size)
        return ClipTree(
            clip=prompt,
            branches=tuple(
                Branch(question=self._policy.prompts.question(d.question), completions=(self._completion(d.completion),))
                for d in lesson(seen, rng, num=self._num_branches, chains=num_frames == MAX_FRAMES, loose=self._loose)
            ),
        )

    def _load(self, i: int) -> Clip:
        side, _ = self._policy.spec.fit(SIDE_PX, SIDE_PX)
        return seen_clip(self._folder, self._scenes[i], side)


def _some_frames(scene: Scene, clip: Clip, num: int, rng: random.Random) -> Clip:
    """A clip of `num` of the frames that show something."""
    times = [round(time_s, 2) for time_s in clip.times.tolist()]
    shown = [k for k, time_s in enumerate(times) if any(thing.box(time_s) is not None for thing in scene.things)]
    kept = sorted(rng.sample(shown, min(num, len(shown))))
    return dataclasses.replace(clip, frames=clip.frames[kept], times=clip.times[kept])
