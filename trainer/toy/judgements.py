"""Claims about scenes with their true relevance and localization: what the toy referee learns from, and is measured on."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ser_fast.referee import VLMReferee
from ser_fast.types import Box, Clip, RefereeRequest
from trainer.toy.boxes import anywhere, in_pixels, jittered, true_iou
from trainer.toy.lessons import seen_clip
from trainer.toy.names import junk_name, wrong_name
from trainer.toy.tasks import question_about
from trainer.toy.world import Scene, Thing


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A claim put to a referee, and what is true of it."""

    request: RefereeRequest
    relevance: float
    """1 if it names the thing that is asked about, else 0."""
    localization: float
    """IoU of its box with the true box, at that frame, of the thing that it names; 0 where there is none."""


def judge(scene: Scene, clip: Clip, frame: int, box: Box, name: str, asked: Thing, attribute: str) -> Judged:
    """What is true of a claim; the box is in pixels of the frame."""
    named = next((thing for thing in scene.things if thing.name == name), None)
    time_s = float(clip.times[frame])
    return Judged(
        request=RefereeRequest(
            clip=clip,
            frame_idx=frame,
            boxes=(box,),
            name=name,
            time_s=time_s,
            question=question_about(asked, attribute),
            answer=getattr(asked, attribute),
        ),
        relevance=float(named is asked),
        localization=true_iou(named, time_s, box) if named is not None else 0.0,
    )


def claims_on(scene: Scene, clip: Clip, rng: random.Random, num: int, *, wrong_words: float = 0.25) -> list[Judged]:
    """Claims about one question on one frame: right ones, shifted and scaled ones, of another thing, of a time without it; a
    share of them, `wrong_words`, gets the colour or the shape wrong, more often the one that is the answer, and a tenth names
    nothing."""
    asked, attribute = rng.choice(scene.things), rng.choice(("color", "shape"))
    frame = rng.randrange(len(clip.times))
    shown = [thing for thing in scene.things if thing.box(float(clip.times[frame])) is not None]
    return [_claim(scene, clip, frame, shown, asked, attribute, wrong_words, rng) for _ in range(num)]


def _claim(
    scene: Scene,
    clip: Clip,
    frame: int,
    shown: list[Thing],
    asked: Thing,
    attribute: str,
    wrong_words: float,
    rng: random.Random,
) -> Judged:
    kind = rng.random()
    target = rng.choice(shown) if shown and (asked not in shown or rng.random() < 0.4) else asked
    box = target.box(float(clip.times[frame]))
    base = in_pixels(box) if box is not None else anywhere(rng)
    if kind < wrong_words:
        other = "shape" if attribute == "color" else "color"
        name = wrong_name(target, attribute if rng.random() < 0.75 else other, rng)
        place = jittered(base, rng.uniform(0.4, 1.0), rng)
    elif kind < wrong_words + 0.1:
        name, place = junk_name(target, rng), jittered(base, rng.uniform(0.4, 1.0), rng)
    elif kind < wrong_words + 0.15:  # some thing, anywhere
        name, place = rng.choice(scene.things).name, anywhere(rng)
    elif kind < wrong_words + 0.2:  # the asked thing, in the place of another or nowhere
        name, place = asked.name, jittered(base, rng.uniform(0.4, 1.0), rng)
    else:  # the thing that is there, placed well or badly
        name, place = target.name, jittered(base, rng.random(), rng)
    return judge(scene, clip, frame, place, name, asked, attribute)


class Judgements:
    """Supervised batches for the toy referee, with the prompt and the packing of `VLMReferee`. What is asked at a step depends
    on the seed and the step only."""

    def __init__(
        self,
        referee: VLMReferee,
        folder: Path,
        scenes: Sequence[Scene],
        *,
        seed: int,
        num_questions: int,
        num_claims: int,
        wrong_words: float = 0.25,
        blind: bool = False,
    ) -> None:
        """Args:
        referee: is taught.
        folder: holds the videos.
        scenes: of the train split.
        seed: of everything that is random.
        num_questions: of a batch, each on a frame. To compare words is learnt from many questions, not from many claims.
        num_claims: on each frame.
        wrong_words: share of the claims with a wrong colour or shape in their name.
        blind: teaches relevance only, with the smallest images: what can be told from the words.
        """
        self._referee, self._scenes, self._seed = referee, scenes, seed
        self._num_questions, self._num_claims, self._num_axes = num_questions, num_claims, 1 if blind else 2
        self._wrong_words = wrong_words
        self._clip: Callable[[int], Clip] = functools.cache(lambda i: seen_clip(folder, scenes[i]))
        self._prompts = referee.prompts
        if blind:
            token_px = (referee.spec.patch_size * referee.spec.merge_size) ** 2
            config = dataclasses.replace(referee.config, max_frame_pixels=token_px, max_crop_pixels=token_px)
            self._prompts = dataclasses.replace(referee.prompts, config=config)

    def loss_at(self, step: int) -> torch.Tensor:
        """Mean cross-entropy of the axes against levels whose expectation is the truth."""
        rng = random.Random(f"{self._seed}/{step}")
        judged: list[Judged] = []
        for _ in range(self._num_questions):
            i = rng.randrange(len(self._scenes))
            judged += claims_on(self._scenes[i], self._clip(i), rng, self._num_claims, wrong_words=self._wrong_words)
        trees = self._prompts.trees([j.request for j in judged])
        order = [i for tree in trees for i in tree.requests]
        truth = torch.tensor([[judged[i].relevance, judged[i].localization] for i in order], device=self._referee.device)
        logprob = self._referee.level_logprob(trees)
        loss = -(soft_levels(truth, logprob.shape[-1]) * logprob).sum(-1)
        return loss[:, : self._num_axes].mean()


def soft_levels(score: torch.Tensor, num_levels: int) -> torch.Tensor:
    """[...] scores in [0, 1] -> [..., L] weights on the two levels around each, so that their expectation is the score."""
    place = score * (num_levels - 1)
    return (1 - (place[..., None] - torch.arange(num_levels, device=score.device)).abs()).clamp(min=0)
