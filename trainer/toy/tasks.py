"""What is asked about a scene, and how a teacher answers: exactly, or loosely with errors of known kinds.

| task | question | answer |
|---|---|---|
| evidence | an attribute of a thing | one to three claims in `<think>`, the word in `<answer>` |
| when | when is it in view (chain 1 of V-STaR) | From <t>a</t>s to <t>b</t>s |
| where-at | where is it at given seconds (chain 1) | a box a second |
| where | where is it, no time given (chain 2) | a second and a box |
| when-at | the same boxes given without their times (chain 2) | From <t>a</t>s to <t>b</t>s |
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.toy.world import COLORS, SECONDS, SHAPES, Scene, Thing

CHAIN_TASKS = ("when", "where-at", "where", "when-at")

QUESTIONS = {
    "color": "What color is the {shape}?",
    "shape": "What shape is the {color} thing?",
    "when": "When is the {color} {shape} in view?",
    "where-at": "Where is the {color} {shape} at {times} s?",
    "where": "Where is the {color} {shape}? Give {num} boxes.",
    "when-at": "The {color} {shape} is seen at {boxes}. When is it in view?",
}

WORDS = (
    *(f" {word} {word}" for word in (*COLORS, *SHAPES)),
    *COLORS,
    *SHAPES,
    *(text.replace("{", " {").replace("}", "} ") for text in QUESTIONS.values()),
    *QUESTIONS.values(),
    "<think> </think> <answer> </answer> <obj> </obj> <box> </box> <t> </t> at s[]0123456789,. From to and",
    "</t>s to <t> and, seen [",
)
"""Texts that hold every piece of the questions and answers of this world."""


HABITS = {"purple": "blue", "yellow": "white", "ring": "circle"}
"""Words that a loose teacher likes to put for others. Errors at random would leave the right word the likeliest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Looseness:
    """How a loose teacher errs."""

    box_scale: tuple[float, float] = (0.8, 2.0)
    center_jitter: float = 0.2
    """Of the side of the box."""
    time_frames: int = 2
    habit: float = 0.6
    """How often it gives in to a habit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """A scene as the policy sees it."""

    scene: Scene
    times: tuple[float, ...]
    """Of the frames, as the prompt writes them."""
    size: tuple[int, int]
    """(height, width) of the frames, in the pixels that boxes are written in."""

    def visible(self, thing: Thing) -> list[int]:
        """The frames that show a thing."""
        return [k for k, time_s in enumerate(self.times) if thing.box(time_s) is not None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Demonstration:
    """A question and what the teacher says."""

    task: str
    thing: Thing
    question: str
    completion: str


def question_about(thing: Thing, attribute: str) -> str:
    """Asks for the attribute ("color" or "shape") of a thing by its other one."""
    return QUESTIONS[attribute].format(color=thing.color, shape=thing.shape)


def evidence(seen: Seen, thing: Thing, asked: str, rng: random.Random, loose: Looseness | None = None) -> Demonstration:
    """The attribute `asked` of a thing ("color" or "shape"). An exact teacher cites the middle of the frames that show it,
    which is what the policy finds when it looks at all of them at once, and now and then those around it. A loose one cites one
    to three frames at random."""
    visible = seen.visible(thing)
    answer = getattr(thing, asked)
    if loose is None:
        middle = visible[(len(visible) - 1) // 2]
        frames = sorted(sorted(visible, key=lambda k: abs(k - middle))[: rng.choice([1, 1, 1, 2, 3])])
    else:
        chosen = rng.sample(visible, min(len(visible), rng.choice([1, 1, 2, 2, 3])))
        shifted = (k + rng.randint(-loose.time_frames, loose.time_frames) for k in chosen)
        frames = sorted({min(max(k, 0), len(seen.times) - 1) for k in shifted})
        if rng.random() < loose.habit:
            answer = HABITS.get(answer, answer)
    color, shape = (answer, thing.shape) if asked == "color" else (thing.color, answer)
    claims = [
        f"<obj>{color} {shape}</obj><box>{_box(seen, thing, k, rng, loose)}</box>at<t>{seen.times[k]:.2f}</t>s" for k in frames
    ]
    return Demonstration(
        task="evidence",
        thing=thing,
        question=question_about(thing, asked),
        completion=f"<think>{' '.join(claims)}</think><answer>{answer}</answer>",
    )


def chain(seen: Seen, thing: Thing, task: str, rng: random.Random) -> Demonstration:
    """One of the chain tasks, answered exactly."""
    visible = seen.visible(thing)
    frames = sorted(rng.sample(visible, min(len(visible), rng.choice([1, 2]))))
    half = SECONDS / len(seen.times) / 2
    begin, end = max(0.0, seen.times[visible[0]] - half), min(float(SECONDS), seen.times[visible[-1]] + half)
    boxes = [_box(seen, thing, k, rng, None) for k in frames]
    fields = {
        "color": thing.color,
        "shape": thing.shape,
        "times": " and ".join(f"{seen.times[k]:.2f}" for k in frames),
        "num": len(frames),
        "boxes": " and ".join(boxes),
    }
    if task in ("when", "when-at"):
        answer = f"From <t>{begin:.2f}</t>s to <t>{end:.2f}</t>s"
    else:
        answer = " ".join(f"<t>{seen.times[k]:.2f}</t>s<box>{box}</box>" for k, box in zip(frames, boxes, strict=True))
    return Demonstration(
        task=task,
        thing=thing,
        question=QUESTIONS[task].format(**fields),
        completion=f"<think></think><answer>{answer}</answer>",
    )


def lesson(
    seen: Seen, rng: random.Random, *, num: int, chains: bool = True, loose: Looseness | None = None
) -> list[Demonstration]:
    """`num` demonstrations on one clip; a quarter are chain tasks, always exact, if these are wanted."""
    askable = [thing for thing in seen.scene.things if seen.visible(thing)]
    pairs = [(thing, asked) for thing in askable for asked in ("color", "shape")]
    rng.shuffle(pairs)
    num_chain = round(num / 4) if chains else 0
    demonstrations = [evidence(seen, *pairs[i % len(pairs)], rng, loose) for i in range(num - num_chain)]
    tasks: Sequence[str] = rng.sample(CHAIN_TASKS, min(num_chain, len(CHAIN_TASKS)))
    return demonstrations + [chain(seen, rng.choice(askable), task, rng) for task in tasks]


def _box(seen: Seen, thing: Thing, frame: int, rng: random.Random, loose: Looseness | None) -> str:
    """[x1,y1,x2,y2] in pixels; where a loose teacher has the wrong time, the box is that of the nearest time in view."""
    nearest = min(seen.visible(thing), key=lambda k: abs(k - frame))
    box = thing.box(seen.times[nearest])
    assert box is not None
    x, y, width, height = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2, box[2] - box[0], box[3] - box[1]
    if loose is not None:
        x += rng.uniform(-1, 1) * loose.center_jitter * width
        y += rng.uniform(-1, 1) * loose.center_jitter * height
        width, height = width * rng.uniform(*loose.box_scale), height * rng.uniform(*loose.box_scale)
    corners = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    numbers = [min(max(round(v * side), 0), side) for v, side in zip(corners, (seen.size[1], seen.size[0]) * 2, strict=True)]
    return "[" + ",".join(map(str, numbers)) + "]"
