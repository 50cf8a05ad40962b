"""Scenes: shapes of a colour that come into view, move on a straight line and go again. All from a seed; no media here."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from ser_fast.types import Box

COLORS = {
    "red": (225, 45, 40),
    "green": (40, 170, 60),
    "blue": (50, 80, 225),
    "yellow": (235, 215, 50),
    "purple": (165, 60, 200),
    "white": (240, 240, 240),
}
SHAPES = ("circle", "square", "triangle", "cross", "ring")
SIDES = {"small": (0.24, 0.32), "large": (0.36, 0.46)}
"""Sides of the bounding box, as shares of the frame."""
MAX_MOVE = 0.35
"""From where a thing appears to where it vanishes, along either side of the frame and as a share of it."""

SIDE_PX = 168
"""Height and width of a frame."""
SECONDS = 6
EDGE_S = 1.6
"""Things are in view at the begin or the end of a clip as if they could appear so long before or vanish so long after it: else
the middle of a clip would be right for most of them."""
NUM_THINGS = 3
SPLITS = ("train", "validation", "held-out")
RATES = ((10, 1), (8, 1), (15, 1), (25, 2), (15000, 1001))
"""Frames a second, as fractions."""
FORMATS = (("mp4", "libx264", 0.0), ("mp4", "libx264", 0.0), ("mkv", "libx264", 0.4), ("webm", "libvpx-vp9", 0.0))
"""Container, codec, and seconds by which the first frame's time stamp is off 0."""

MAX_OVERLAP = 0.02
"""Things in view together touch at most this much (share of the smaller box)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Thing:
    """A shape on its way. Lengths are shares of the frame, times seconds."""

    color: str
    shape: str
    size: str
    side: float
    appears: float
    vanishes: float
    begin: tuple[float, float]
    """Its centre when it appears."""
    end: tuple[float, float]

    @property
    def name(self) -> str:
        """What a claim about it says."""
        return f"{self.color} {self.shape}"

    def box(self, time_s: float) -> Box | None:
        """Its bounding box x1, y1, x2, y2 at a time; None while it is out of view."""
        if not self.appears <= time_s < self.vanishes:
            return None
        share = (time_s - self.appears) / (self.vanishes - self.appears)
        x, y = ((1 - share) * a + share * b for a, b in zip(self.begin, self.end, strict=True))
        half = self.side / 2
        return x - half, y - half, x + half, y + half


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """One clip: what is in it and how its file is written."""

    id: str
    things: tuple[Thing, ...]
    """No two share a colour or a shape."""
    rate: tuple[int, int]
    container: str
    codec: str
    offset_s: float
    background_seed: int

    @property
    def file(self) -> str:
        """Name of its video."""
        return f"{self.id}.{self.container}"

    @property
    def frame_times(self) -> list[float]:
        """Seconds of its frames, the first at 0."""
        top, bottom = self.rate
        return [i * bottom / top for i in range(SECONDS * top // bottom)]

    def to_json(self) -> dict[str, Any]:
        """All that is true of it: things, their intervals, and the box of each in every frame that shows it."""
        times = self.frame_times
        return {
            "id": self.id,
            "video": self.file,
            "things": [
                {
                    "name": thing.name,
                    "color": thing.color,
                    "shape": thing.shape,
                    "size": thing.size,
                    "interval": [thing.appears, thing.vanishes],
                    "boxes": [
                        {"time_s": round(t, 4), "box": [round(v, 4) for v in box]} for t in times if (box := thing.box(t))
                    ],
                }
                for thing in self.things
            ],
        }


def make_scene(split: str, seed: int, index: int) -> Scene:
    """Scene `index` of a split. The same arguments give the same scene; other splits, seeds or indices give others."""
    if split not in SPLITS:
        raise ValueError(f"split: expected one of {', '.join(SPLITS)}, got {split!r}")
    rng = random.Random(f"{split}/{seed}/{index}")
    container, codec, offset_s = rng.choice(FORMATS)
    return Scene(
        id=f"{split}-{seed}-{index:05d}",
        things=_things(rng),
        rate=rng.choice(RATES),
        container=container,
        codec=codec,
        offset_s=offset_s,
        background_seed=rng.randrange(1 << 30),
    )


def _things(rng: random.Random) -> tuple[Thing, ...]:
    """Things that never lie on one another, the first of them askable at several whole seconds."""
    things: list[Thing] = []
    colors, shapes = rng.sample(list(COLORS), NUM_THINGS), rng.sample(SHAPES, NUM_THINGS)
    while len(things) < NUM_THINGS:
        thing = _thing(rng, colors[len(things)], shapes[len(things)])
        if all(_apart(thing, other) for other in things):
            things.append(thing)
        elif rng.random() < 0.02:
            things.clear()
    return tuple(things)


def _thing(rng: random.Random, color: str, shape: str) -> Thing:
    size = rng.choice(list(SIDES))
    side = round(rng.uniform(*SIDES[size]), 4)
    length = rng.uniform(2.1, 3.0)
    appears = min(max(rng.uniform(-EDGE_S, SECONDS - length + EDGE_S), 0.0), SECONDS - length)
    low, high = side / 2, 1 - side / 2
    begin = rng.uniform(low, high), rng.uniform(low, high)
    end = (min(max(at + rng.uniform(-MAX_MOVE, MAX_MOVE), low), high) for at in begin)
    return Thing(
        color=color,
        shape=shape,
        size=size,
        side=side,
        appears=round(appears, 2),
        vanishes=round(appears + length, 2),
        begin=tuple(round(v, 5) for v in begin),  # type: ignore[arg-type]
        end=tuple(round(v, 5) for v in end),  # type: ignore[arg-type]
    )


def _apart(a: Thing, b: Thing) -> bool:
    first, last = max(a.appears, b.appears), min(a.vanishes, b.vanishes)
    if first >= last:
        return True
    for time_s in np.linspace(first, last - 1e-6, 13):
        p, q = a.box(float(time_s)), b.box(float(time_s))
        if p is None or q is None:
            continue
        width, height = min(p[2], q[2]) - max(p[0], q[0]), min(p[3], q[3]) - max(p[1], q[1])
        if width > 0 and height > 0 and width * height > MAX_OVERLAP * min(a.side, b.side) ** 2:
            return False
    return True


def draw(scene: Scene) -> np.ndarray:
    """uint8[F, SIDE_PX, SIDE_PX, 3]: the frames of a scene, on a still background."""
    y, x = np.mgrid[0:SIDE_PX, 0:SIDE_PX] + 0.5
    frames = np.repeat(_background(scene.background_seed, x, y)[None], len(scene.frame_times), axis=0)
    for image, time_s in zip(frames, scene.frame_times, strict=True):
        for thing in scene.things:
            if (box := thing.box(time_s)) is not None:
                image[_inside(thing.shape, box, x, y)] = COLORS[thing.color]
    return frames


def _background(seed: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Warm light from the right, cold light from below, soft noise: as in real rooms, a spot shows where in the frame it is."""
    rng = np.random.default_rng(seed)
    light = np.stack([40 + 80 * x / SIDE_PX, np.full_like(x, 75.0), 40 + 80 * y / SIDE_PX], axis=-1)
    coarse = np.kron(rng.integers(-12, 13, (SIDE_PX // 12, SIDE_PX // 12, 1)), np.ones((12, 12, 1)))
    return (light + coarse + rng.normal(0, 4, light.shape)).clip(0, 255).astype(np.uint8)


def _inside(shape: str, box: Box, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """bool[H, W]: the pixels whose centre lies in the shape; u and v run from -1 to 1 across its box."""
    x1, y1, x2, y2 = (v * SIDE_PX for v in box)
    u, v = (2 * x - x1 - x2) / (x2 - x1), (2 * y - y1 - y2) / (y2 - y1)
    inside = (np.abs(u) <= 1) & (np.abs(v) <= 1)
    masks = {
        "circle": u**2 + v**2 <= 1,
        "square": inside,
        "triangle": inside & (np.abs(u) <= (v + 1) / 2),
        "cross": inside & ((np.abs(u) <= 0.36) | (np.abs(v) <= 0.36)),
        "ring": (u**2 + v**2 <= 1) & (u**2 + v**2 >= 0.3),
    }
    return masks[shape]
