"""Boxes of the toy world in pixels of its frames: where things are, and places that are off by so much."""

from __future__ import annotations

import math
import random

from ser_fast.types import Box
from trainer.toy.world import SIDE_PX, Thing

MIN_SIDE_PX = 4.0


def in_pixels(box: Box) -> Box:
    """Shares of the frame -> pixels."""
    x1, y1, x2, y2 = (v * SIDE_PX for v in box)
    return x1, y1, x2, y2


def overlap(a: Box, b: Box) -> float:
    """IoU of two boxes, in plain arithmetic: the simulator's own yardstick."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    common = max(0.0, width) * max(0.0, height)
    total = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common
    return common / total if total > 0 else 0.0


def true_iou(thing: Thing, time_s: float, box: Box) -> float:
    """IoU of a box, in pixels of the frame, with the true box of a thing at a time; 0 where it is absent."""
    truth = thing.box(time_s)
    return 0.0 if truth is None else overlap(box, in_pixels(truth))


def jittered(box: Box, iou: float, rng: random.Random) -> Box:
    """The box shifted and scaled in a random direction until its IoU with what it was is about `iou`, inside the frame."""
    shift = [rng.gauss(0, 1) for _ in range(2)]
    scale = [rng.gauss(0, 0.7) for _ in range(2)]
    if rng.random() < 0.3:
        scale = [rng.gauss(0, 1)] * 2
        shift = [0.3 * v for v in shift]

    def moved(amount: float) -> Box:
        width, height = box[2] - box[0], box[3] - box[1]
        x = (box[0] + box[2]) / 2 + amount * shift[0] * width
        y = (box[1] + box[3]) / 2 + amount * shift[1] * height
        width, height = width * math.exp(amount * scale[0]), height * math.exp(amount * scale[1])
        return _inside((x - width / 2, y - height / 2, x + width / 2, y + height / 2))

    low, high = 0.0, 4.0
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if overlap(box, moved(middle)) > iou else (low, middle)
    return moved(high)


def anywhere(rng: random.Random) -> Box:
    """Some box in the frame."""
    width, height = (rng.uniform(0.1, 0.6) * SIDE_PX for _ in range(2))
    x, y = rng.uniform(0, SIDE_PX - width), rng.uniform(0, SIDE_PX - height)
    return _inside((x, y, x + width, y + height))


def _inside(box: Box) -> Box:
    """Cut at the frame, and at least MIN_SIDE_PX wide and high."""
    x1, y1 = (min(max(v, 0.0), SIDE_PX - MIN_SIDE_PX) for v in box[:2])
    x2, y2 = (max(min(v, float(SIDE_PX)), a + MIN_SIDE_PX) for v, a in zip(box[2:], (x1, y1), strict=True))
    return x1, y1, x2, y2
