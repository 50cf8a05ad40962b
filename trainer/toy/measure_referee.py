"""How well a referee knows the toy world: claims of a policy and jittered true boxes, on held-out clips."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ser_fast.referee import VLMReferee
from ser_fast.types import Clip, RefereeScores
from trainer.policy import Policy
from trainer.rollout import read_claims
from trainer.toy.boxes import in_pixels, jittered
from trainer.toy.evaluate import Asked, answer, ask
from trainer.toy.judgements import Judged, judge
from trainer.toy.lessons import seen_clip
from trainer.toy.names import junk_name, wrong_name
from trainer.toy.world import Scene

GOOD_IOU = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class RefereeFigures:
    """What a referee's scores say about claims whose truth is known."""

    num: int
    auc: float
    """Of localization, against IoU >= 0.5: the chance that a well placed claim scores higher than a badly placed one."""
    relevance_accuracy: float
    """Share of claims whose relevance is on the right side of 1/2."""
    rank_correlation: float
    """Spearman's, of localization with the IoU."""
    level_mass: float
    """The smallest."""

    def to_json(self) -> dict[str, Any]:
        """Rounded to four digits."""
        return {name: round(value, 4) for name, value in asdict(self).items()}


def policy_claims(policy: Policy, folder: Path, scenes: Sequence[Scene], num: int, *, seed: int) -> list[Judged]:
    """The first `num` claims of sampled completions, with what is true of them, in the nearest frame that the policy saw."""
    asked = ask(scenes)
    clip_of = functools.cache(functools.partial(seen_clip, folder))
    clips = [clip_of(question.scene) for question in asked]
    claims, _ = read_claims(answer(policy, asked, clips, temperature=1.0, seed=seed))
    judged = []
    for r, (question, clip) in enumerate(zip(asked, clips, strict=True)):
        for c in claims.responses.rows(r):
            frame = int((clip.times - float(claims.time_s[c])).abs().argmin())
            box = claims.claim_boxes(c)[0]
            judged.append(judge(question.scene, clip, frame, box, claims.name(c), question.thing, question.attribute))
    if len(judged) < num:
        raise ValueError(f"scenes: expected enough of them for {num} claims, the policy made {len(judged)}")
    return judged[:num]


def jittered_claims(folder: Path, scenes: Sequence[Scene], num: int, *, seed: int) -> list[Judged]:
    """`num` claims whose box has an IoU uniform in [0, 1] with a thing in view. Every other one has a wrong name: by turns
    that of another thing, which is there, the asked thing's with another colour or shape, and one that names nothing."""

    def draw(question: Asked, clip: Clip, so_far: int, rng: random.Random) -> list[Judged]:
        return _jittered(question, clip, (None, "thing", None, "word", None, "junk")[so_far % 6], rng)

    return _drawn(folder, scenes, num, draw, seed=seed)


def _drawn(
    folder: Path,
    scenes: Sequence[Scene],
    num: int,
    draw: Callable[[Asked, Clip, int, random.Random], list[Judged]],
    *,
    seed: int,
) -> list[Judged]:
    """`num` claims of `draw`, which is given a question at random, its clip, and how many claims there are so far."""
    rng = random.Random(seed)
    judged: list[Judged] = []
    asked = ask(scenes)
    clip_of = functools.cache(lambda i: seen_clip(folder, asked[i].scene))
    while len(judged) < num:
        i = rng.randrange(len(asked))
        judged += draw(asked[i], clip_of(i), len(judged), rng)
    return judged[:num]


def _jittered(question: Asked, clip: Clip, wrong: str | None, rng: random.Random) -> list[Judged]:
    """One claim about a thing in view, the asked one or another; none where there is no such thing."""
    things = [thing for thing in question.scene.things if (thing is question.thing) != (wrong == "thing")]
    views = [
        (thing, frame, box)
        for thing in things
        for frame, time_s in enumerate(clip.times.tolist())
        if (box := thing.box(time_s)) is not None
    ]
    if not views:
        return []
    thing, frame, box = rng.choice(views)
    place = jittered(in_pixels(box), rng.random(), rng)
    name = thing.name
    if wrong == "word":
        name = wrong_name(thing, rng.choice(("color", "shape")), rng)
    elif wrong == "junk":
        name = junk_name(thing, rng)
    return [judge(question.scene, clip, frame, place, name, question.thing, question.attribute)]


def swapped_claims(folder: Path, scenes: Sequence[Scene], num: int, *, seed: int) -> list[Judged]:
    """`num` claims in pairs of one name in one frame: on a good box of the thing that it names, and on a good box of another
    thing in view. Names are of the asked thing and of others by turns. Only who compares the name with the box can tell."""

    def draw(question: Asked, clip: Clip, so_far: int, rng: random.Random) -> list[Judged]:
        return _swapped(question, clip, so_far % 4 == 0, rng)

    return _drawn(folder, scenes, num, draw, seed=seed)


def _swapped(question: Asked, clip: Clip, of_asked: bool, rng: random.Random) -> list[Judged]:
    """One pair, about the asked thing or another; none where no frame shows two things."""
    shown = [
        (frame, {thing.name: box for thing in question.scene.things if (box := thing.box(time_s)) is not None})
        for frame, time_s in enumerate(clip.times.tolist())
    ]
    pairs = [
        (frame, name, other, boxes)
        for frame, boxes in shown
        for name in boxes
        for other in boxes
        if name != other and (name == question.thing.name) == of_asked
    ]
    if not pairs:
        return []
    frame, name, other, boxes = rng.choice(pairs)
    places = [jittered(in_pixels(boxes[key]), rng.uniform(GOOD_IOU, 1.0), rng) for key in (name, other)]
    return [judge(question.scene, clip, frame, place, name, question.thing, question.attribute) for place in places]


def measure_referee(referee: VLMReferee, judged: Sequence[Judged]) -> RefereeFigures:
    """The figures of a referee on claims."""
    return figures_of(referee.score([j.request for j in judged]), judged)


def figures_of(scores: RefereeScores, judged: Sequence[Judged], chosen: slice = slice(None)) -> RefereeFigures:
    """The figures of scores of claims, or of some of them."""
    judged, localization, relevance = judged[chosen], scores.localization[chosen], scores.relevance[chosen]
    iou = torch.tensor([j.localization for j in judged])
    relevant = torch.tensor([j.relevance for j in judged]) > 0.5
    return RefereeFigures(
        num=len(judged),
        auc=area_under_curve(localization, iou >= GOOD_IOU),
        relevance_accuracy=float(((relevance > 0.5) == relevant).float().mean()),
        rank_correlation=spearman(localization, iou),
        level_mass=float(scores.level_mass[chosen].min()),
    )


def area_under_curve(score: torch.Tensor, positive: torch.Tensor) -> float:
    """Chance that a positive scores higher than a negative; ties count half."""
    num_positive, num_negative = int(positive.sum()), int((~positive).sum())
    if not num_positive or not num_negative:
        raise ValueError(f"positive: expected both kinds, got {num_positive} and {num_negative}")
    ranks = _ranks(score)[positive].sum()
    return float((ranks - num_positive * (num_positive + 1) / 2) / (num_positive * num_negative))


def spearman(a: torch.Tensor, b: torch.Tensor) -> float:
    """Correlation of the ranks; ties share theirs."""
    return float(torch.corrcoef(torch.stack([_ranks(a), _ranks(b)]))[0, 1])


def _ranks(values: torch.Tensor) -> torch.Tensor:
    """float64 ranks from 1; equal values share their mean rank."""
    _, group, count = torch.unique(values.double(), return_inverse=True, return_counts=True)
    last = count.cumsum(0)
    return (last - (count - 1) / 2.0).double()[group]
