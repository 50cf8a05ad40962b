"""What, when and where of a policy's claims, against the labels of question lines. No reward reads these labels."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ser_fast.ops import box_iou
from ser_fast.types import Box, Question, hull
from trainer.rollout import Group, read_claims


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Means over N questions, each in [0, 1] but LGM; None where no question has the labels."""

    num: int
    what: float
    """Exact word."""
    when: float | None
    """Share of a response's claims whose time lies in the true interval, its end excluded; 0 without claims."""
    where: float | None
    """Mean over a response's claims of the IoU with the true box at that time, 0 where it is absent; 0 without claims."""
    am: float | None
    """Mean of the three."""
    lgm: float | None
    """-mean ln(1 - x) of the three, each capped at 1 - 1 / (2 N)."""
    cap: float
    claims: float
    """A response."""
    without_claims: float
    truncated: float

    def to_json(self) -> dict[str, Any]:
        """Rounded to four digits."""
        return {name: None if value is None else round(value, 4) for name, value in asdict(self).items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Marks:
    """Of one answer; None without the labels. The figures are means of them."""

    what: float
    when: float | None
    where: float | None
    claims: float
    truncated: float


def measure(groups: Iterable[Group]) -> Figures:
    """The figures of answered questions, of which each group holds one; of several rollouts the first counts. Questions are
    held against their labels: `interval`, and `boxes` at some times, between which things move straight on. Of a response's
    claims those count that can be read."""
    return figures_of([mark(group) for group in groups])


def figures_of(marks: Sequence[Marks]) -> Figures:
    """Their means."""
    three = [_known_mean([getattr(m, name) for m in marks]) for name in ("what", "when", "where")]
    known = [value for value in three if value is not None]
    cap = 1 - 1 / (2 * max(1, len(marks)))
    return Figures(
        num=len(marks),
        what=three[0] or 0.0,
        when=three[1],
        where=three[2],
        am=mean(known) if len(known) == 3 else None,
        lgm=mean([-math.log(1 - min(value, cap)) for value in known]) if len(known) == 3 else None,
        cap=cap,
        claims=mean([m.claims for m in marks]),
        without_claims=mean([float(not m.claims) for m in marks]),
        truncated=mean([m.truncated for m in marks]),
    )


def mark(group: Group) -> Marks:
    """The marks of a group's first rollout."""
    question, rollout = group.question, group.rollouts[0]
    claims, report = read_claims([dataclasses.replace(group, rollouts=(rollout,))])
    times = [round(time_s, 4) for time_s in claims.time_s.tolist()]
    hulls = [hull(claims.claim_boxes(c)) for c in range(claims.num_claims)]
    when = where = None
    if question.interval is not None:
        begin, end = question.interval
        when = mean([float(begin <= time_s < end) for time_s in times])
    if question.boxes:
        where = mean([label_iou(question, t, box, group.clip.frame_hw) for t, box in zip(times, hulls, strict=True)])
    return Marks(
        what=float(report.answers[0] == question.answer),
        when=when,
        where=where,
        claims=float(claims.num_claims),
        truncated=float(rollout.truncated),
    )


def true_boxes(question: Question, time_s: float) -> list[Box]:
    """Where the labelled things are at a time, in fractions of the frame: between two labels, and beyond the first and the
    last of them within the interval, on the straight line through the two nearest. Labels of one name are of one thing; of
    several at one time, the first is of the first thing of that name, and so on."""
    if question.interval is not None and not question.interval[0] <= time_s < question.interval[1]:
        return []
    tracks: dict[tuple[str | None, int], list[Mapping[str, Any]]] = {}
    at_once = Counter[tuple[str | None, float]]()
    for label in question.boxes:
        key = label.get("name"), float(label["time_s"])
        tracks.setdefault((key[0], at_once[key]), []).append(label)
        at_once[key] += 1
    boxes = []
    for labels in tracks.values():
        track = sorted(labels, key=lambda label: float(label["time_s"]))
        if question.interval is not None or track[0]["time_s"] <= time_s <= track[-1]["time_s"]:
            boxes.append(_at(track, time_s))
    return boxes


def _at(track: Sequence[Mapping[str, Any]], time_s: float) -> Box:
    if len(track) == 1:
        x1, y1, x2, y2 = track[0]["box"]
        return x1, y1, x2, y2
    after = next((i for i, label in enumerate(track) if label["time_s"] >= time_s), len(track) - 1)
    first, last = track[max(after, 1) - 1], track[max(after, 1)]
    share = (time_s - first["time_s"]) / (last["time_s"] - first["time_s"])
    x1, y1, x2, y2 = ((1 - share) * a + share * b for a, b in zip(first["box"], last["box"], strict=True))
    return x1, y1, x2, y2


def label_iou(question: Question, time_s: float, box: Box, frame_hw: tuple[int, int]) -> float:
    """The best IoU of a box, in pixels of the frame, with a labelled thing at a time; 0 where there is none."""
    truth = true_boxes(question, time_s)
    if not truth:
        return 0.0
    height, width = frame_hw
    sides = torch.tensor([width, height, width, height])
    return float(box_iou(torch.tensor([box]), torch.tensor(truth) * sides).max())


def _known_mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def mean(values: Sequence[float]) -> float:
    """0 for none."""
    return sum(values) / len(values) if values else 0.0
