"""What, when and where of a policy's claims on held-out clips, against the simulator's truth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ser_fast.claims import parse_claims
from ser_fast.types import Box, ClaimBatch, Clip, ParseReport
from trainer.policy import Policy
from trainer.toy.boxes import true_iou
from trainer.toy.tasks import question_about
from trainer.toy.world import SIDE_PX, Scene, Thing

MAX_NEW_TOKENS = 112


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One held-out question."""

    scene: Scene
    thing: Thing
    attribute: str
    """"color" or "shape"."""

    @property
    def question(self) -> str:
        """As it is put to the policy."""
        return question_about(self.thing, self.attribute)

    @property
    def answer(self) -> str:
        """The one right word."""
        return str(getattr(self.thing, self.attribute))


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Means over N questions, each in [0, 1] but LGM."""

    num: int
    what: float
    """Exact word."""
    when: float
    """Share of a response's claims whose time lies in the true interval of the asked thing; 0 without claims."""
    where: float
    """Mean over a response's claims of the IoU with the true box at that time, 0 where it is absent; 0 without claims."""
    am: float
    """Mean of the three."""
    lgm: float
    """-mean ln(1 - x) of the three, each capped at 1 - 1 / (2 N)."""
    cap: float
    claims: float
    """A response."""
    without_claims: float
    truncated: float

    def to_json(self) -> dict[str, Any]:
        """Rounded to four digits."""
        return {name: round(value, 4) for name, value in asdict(self).items()}


def ask(scenes: Sequence[Scene]) -> list[Asked]:
    """One question a scene: its things and attributes take turns."""
    return [
        Asked(scene=scene, thing=scene.things[i % len(scene.things)], attribute=("color", "shape")[i // len(scene.things) % 2])
        for i, scene in enumerate(scenes)
    ]


def complete(
    policy: Policy, clips: Sequence[Clip], questions: Sequence[str], *, temperature: float = 0.0, seed: int = 0
) -> list[str]:
    """Free-running completions, each of a question on its clip; greedy unless there is a temperature."""
    prompts = [
        (policy.prompts.clip(clip), policy.prompts.question(question)) for clip, question in zip(clips, questions, strict=True)
    ]
    completions = policy.generate(prompts, max_new_tokens=MAX_NEW_TOKENS, temperature=temperature, seed=seed)
    return [completion.text for completion in completions]


def read_claims(policy: Policy, completions: Sequence[str], durations: Sequence[float]) -> tuple[ClaimBatch, ParseReport]:
    """The claims of completions, boxes in pixels of the world's frames."""
    size = policy.spec.fit(SIDE_PX, SIDE_PX, max_pixels=policy.prompts.config.max_frame_pixels)
    return parse_claims(
        completions, coord_space=policy.prompts.coord_space(size), frame_hw=(SIDE_PX, SIDE_PX), duration_s=list(durations)
    )


def measure(policy: Policy, asked: Sequence[Asked], completions: Sequence[str], durations: Sequence[float]) -> Figures:
    """The figures of completions."""
    claims, report = read_claims(policy, completions, durations)
    what = [float(a == question.answer) for a, question in zip(report.answers, asked, strict=True)]
    when, where, counts = [], [], []
    for r, question in enumerate(asked):
        rows = claims.responses.rows(r)
        times = [float(claims.time_s[c]) for c in rows]
        when.append(_mean([float(question.thing.box(time_s) is not None) for time_s in times]))
        hulls = [_hull(claims.claim_boxes(c)) for c in rows]
        where.append(_mean([true_iou(question.thing, time_s, hull) for time_s, hull in zip(times, hulls, strict=True)]))
        counts.append(len(rows))
    means = (_mean(what), _mean(when), _mean(where))
    cap = 1 - 1 / (2 * len(asked))
    return Figures(
        num=len(asked),
        what=means[0],
        when=means[1],
        where=means[2],
        am=_mean(means),
        lgm=_mean([-math.log(1 - min(mean, cap)) for mean in means]),
        cap=cap,
        claims=_mean(counts),
        without_claims=_mean([float(n == 0) for n in counts]),
        truncated=_mean([float("</answer>" not in text) for text in completions]),
    )


def _hull(boxes: Sequence[Box]) -> Box:
    return min(b[0] for b in boxes), min(b[1] for b in boxes), max(b[2] for b in boxes), max(b[3] for b in boxes)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
