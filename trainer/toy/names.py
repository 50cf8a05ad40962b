"""Names that are not right: another colour or shape, and junk that names nothing at all."""

from __future__ import annotations

import functools
import random
import re

from ser_fast.referee import prompt
from trainer.toy.tasks import QUESTIONS
from trainer.toy.world import COLORS, SHAPES, Thing

LATIN = (0x61, 0x7A)
SCRIPTS = (LATIN,) * 3 + ((0xE0, 0xFF), (0x3B1, 0x3C9), (0x430, 0x44F), (0x3041, 0x3096), (0x4E00, 0x9FA5), (0x1F300, 0x1F64F))
"""First and last code point of the letters that made-up words are written in; Latin ones thrice, as they are the commonest."""


def wrong_name(thing: Thing, attribute: str, rng: random.Random) -> str:
    """The name of a thing with another word for one attribute ("color" or "shape")."""
    if attribute == "color":
        return f"{rng.choice([color for color in COLORS if color != thing.color])} {thing.shape}"
    return f"{thing.color} {rng.choice([shape for shape in SHAPES if shape != thing.shape])}"


def junk_name(thing: Thing, rng: random.Random) -> str:
    """No name of this thing, nor of any other: nothing, words that say neither colour nor shape, the name with a made-up word
    for one of its own, or with another colour before it."""
    kind = rng.random()
    if kind < 0.1:
        return ""
    if kind < 0.6:
        words = (rng.choice(_prompt_words()) if rng.random() < 0.4 else _made_up(rng) for _ in range(rng.randint(1, 4)))
        return " ".join(words)
    if kind < 0.75:
        return f"{_made_up(rng)} {thing.shape}"
    if kind < 0.9:
        return f"{thing.color} {_made_up(rng)}"
    return f"{rng.choice([color for color in COLORS if color != thing.color])} {thing.name}"


def _made_up(rng: random.Random) -> str:
    first, last = rng.choice(SCRIPTS)
    return "".join(chr(rng.randint(first, last)) for _ in range(rng.randint(1, 8)))


@functools.cache
def _prompt_words() -> tuple[str, ...]:
    """Words that the models know and that say neither colour nor shape."""
    texts = (prompt.SYSTEM, prompt.ROOT, prompt.CLAIM, prompt.RELEVANCE, prompt.LOCALIZATION, *QUESTIONS.values())
    words = {word for text in texts for word in re.findall(r"[A-Za-z]+", re.sub(r"\{[a-z]+\}", " ", text))}
    return tuple(sorted(words - {*COLORS, *SHAPES}))
