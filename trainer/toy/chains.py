"""The chain prompts of V-STaR on held-out clips: when and then where, where and then when. Reported beside the figures of
evidence, and not judged.

Each question of a chain gives the truth of the one before.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ser_fast.types import Box, Clip
from trainer.policy import Policy
from trainer.toy.boxes import in_pixels, true_iou
from trainer.toy.evaluate import MAX_NEW_TOKENS
from trainer.toy.tasks import CHAIN_TASKS, Seen, chain
from trainer.toy.world import SECONDS, Scene, Thing

TIME = r"<t>(\d+(?:\.\d+)?)</t>s"
INTERVAL = re.compile(rf"From {TIME} to {TIME}")
PLACE = re.compile(rf"{TIME}<box>\[(\d+),(\d+),(\d+),(\d+)\]</box>")


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainFigures:
    """Means over the clips; an answer that cannot be read counts 0."""

    when: float
    """Chain 1: IoU of the interval with the true one."""
    where_at: float
    """Chain 1: IoU with the true box at each given time."""
    where: float
    """Chain 2: IoU of each box with the true one at the time given with it, 0 where the thing is absent."""
    when_at: float
    """Chain 2: IoU of the interval with the true one."""

    def to_json(self) -> dict[str, float]:
        """Rounded to four digits."""
        return {f"chain {name}": round(value, 4) for name, value in asdict(self).items()}


def measure_chains(policy: Policy, clips: Sequence[Clip], scenes: Sequence[Scene], *, seed: int) -> ChainFigures:
    """Greedy answers to the four prompts, one thing a clip."""
    prompts = [policy.prompts.clip(clip) for clip in clips]
    views = [
        Seen(scene=scene, times=prompt.frame_times, size=prompt.size) for scene, prompt in zip(scenes, prompts, strict=True)
    ]
    sums = dict.fromkeys(CHAIN_TASKS, 0.0)
    for task in CHAIN_TASKS:
        rng = random.Random(f"{seed}/{task}")
        lessons = [
            chain(seen, rng.choice([thing for thing in seen.scene.things if seen.visible(thing)]), task, rng) for seen in views
        ]
        asked = [(prompt, policy.prompts.question(lesson.question)) for prompt, lesson in zip(prompts, lessons, strict=True)]
        completions = policy.generate(asked, max_new_tokens=MAX_NEW_TOKENS)
        for seen, lesson, text in zip(views, lessons, (completion.text for completion in completions), strict=True):
            if task in ("when", "when-at"):
                sums[task] += _interval_iou(text, lesson.thing)
            else:
                times = [time_s for time_s, _ in read_places(lesson.completion)] if task == "where-at" else None
                sums[task] += _place_iou(read_places(text), times, lesson.thing, seen.size)
    return ChainFigures(**{task.replace("-", "_"): total / len(scenes) for task, total in sums.items()})


def read_places(text: str) -> list[tuple[float, Box]]:
    """Seconds and box of each place in an answer, in the policy's pixels."""
    return [(float(t), (float(a), float(b), float(c), float(d))) for t, a, b, c, d in PLACE.findall(text)]


def _interval_iou(text: str, thing: Thing) -> float:
    found = INTERVAL.search(text)
    if found is None:
        return 0.0
    begin, end = float(found[1]), float(found[2])
    first, last = thing.appears, min(thing.vanishes, float(SECONDS))
    common = max(0.0, min(end, last) - max(begin, first))
    return common / ((end - begin) + (last - first) - common) if end > begin else 0.0


def _place_iou(
    places: Sequence[tuple[float, Box]], times: Sequence[float] | None, thing: Thing, size: tuple[int, int]
) -> float:
    """Mean over the times that were asked for, or else over the places given."""
    if times is not None:
        given = dict(places)
        places = [(time_s, given.get(time_s, (0.0, 0.0, 0.0, 0.0))) for time_s in times]
    height, width = size
    ious = [
        true_iou(thing, time_s, in_pixels((x1 / width, y1 / height, x2 / width, y2 / height)))
        for time_s, (x1, y1, x2, y2) in places
    ]
    return sum(ious) / len(ious) if ious else 0.0
