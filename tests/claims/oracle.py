"""docs/grammar.md once more, slowly: what the fast parser must find in a text. Read the two side by side."""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass, field

from ser_fast.faults import PolicyFault

Box = tuple[float, float, float, float]

WHITE_SPACE = " \t\n\v\f\r"
MAX_DEPTH = 4
MAX_BOXES = 4
MAX_NAME_LENGTH = 64
MIN_PIXELS = 4.0

_TAG = re.compile(r"</?(?:obj|box|t|think|answer)>")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE | re.ASCII)
_BOX_PART = re.compile(rf"[\[\],]|[^\[\],{WHITE_SPACE}]+")
_NEVER_SWALLOWED = ("<obj>", "<think>", "</think>", "<answer>", "</answer>")


@dataclass(slots=True)
class Tag:
    """A tag and where it stands; the empty one stands at the end of the text."""

    text: str
    begin: int
    end: int


@dataclass(slots=True)
class Attempt:
    """An attempt at a claim, read from its first tag on as far as it comes."""

    begin: int
    end: int
    """Behind the last part read."""
    next_tag: int
    """Number of the first tag that is not part of the attempt."""
    name: str = ""
    boxes: list[Box] = field(default_factory=list)
    """In the numbers of the text."""
    time_s: float = 0.0
    reason: PolicyFault | None = None
    """The first thing wrong with it."""

    def fail(self, reason: PolicyFault) -> None:
        """Notes a reason; the first one stays."""
        if self.reason is None:
            self.reason = reason


@dataclass(slots=True)
class OracleClaim:
    """An accepted claim; the boxes in pixels of the frame, clipped to it."""

    name: str
    time_s: float
    boxes: list[Box]


@dataclass(slots=True)
class OracleResponse:
    """What is to be found in one text."""

    claims: list[OracleClaim]
    rejected: list[tuple[str, int, int]]
    """Reason, first character, the one behind the last."""
    has_think: bool
    balanced: bool
    answer: str | None


class _MalformedError(Exception):
    """A number or a bracket is not written as one."""


def parse(text: str, *, scale: tuple[float, float], frame_hw: tuple[int, int], duration_s: float) -> OracleResponse:
    """Parses one text.

    Args:
        text: the completion.
        scale: pixels of the frame by which the numbers of a box are multiplied, across and down.
        frame_hw: (height, width) of the frame.
        duration_s: end of the clip.
    """
    tags = [Tag(m.group(), m.start(), m.end()) for m in _TAG.finditer(text)]
    think = _first_block(tags, "think")
    answer = _first_block(tags, "answer")
    claims, rejected = [], []
    for attempt in _attempts(text, tags):
        reason = _misplaced(attempt.begin, tags, think) or attempt.reason or _impossible(attempt, scale, frame_hw, duration_s)
        if reason is not None:
            rejected.append((str(reason), attempt.begin, attempt.end))
        else:
            boxes = [_clipped(_in_pixels(box, scale), frame_hw) for box in attempt.boxes]
            claims.append(OracleClaim(_cleaned(attempt.name), attempt.time_s, boxes))
    return OracleResponse(
        claims=claims,
        rejected=rejected,
        has_think=think is not None,
        balanced=_balanced(tags, think),
        answer=None if answer is None else text[answer[0].end : answer[1].begin].strip(),
    )


# --- Where claims count ---------------------------------------------------------------------------------------------------


def _first_block(tags: list[Tag], kind: str) -> tuple[Tag, Tag] | None:
    """The first opening tag and the first closing tag behind it."""
    opening = None
    for tag in tags:
        if opening is None and tag.text == f"<{kind}>":
            opening = tag
        elif opening is not None and tag.text == f"</{kind}>":
            return opening, tag
    return None


def _misplaced(begin: int, tags: list[Tag], think: tuple[Tag, Tag] | None) -> PolicyFault | None:
    """Why a claim that begins there does not count."""
    before = [tag.text for tag in tags if tag.begin < begin]
    answer_tags = [text for text in before if text in ("<answer>", "</answer>")]
    if answer_tags and answer_tags[-1] == "<answer>":
        return PolicyFault.IN_ANSWER
    if "<think>" not in before or (think is not None and begin > think[1].begin):
        return PolicyFault.OUTSIDE_THINK
    return PolicyFault.THINK_UNCLOSED if think is None else None


def _balanced(tags: list[Tag], think: tuple[Tag, Tag] | None) -> bool:
    """As many tags of each kind open as close."""
    everywhere = [tag.text for tag in tags]
    inside = [tag.text for tag in tags if think is not None and think[0].begin < tag.begin < think[1].begin]
    return all(everywhere.count(f"<{kind}>") == everywhere.count(f"</{kind}>") for kind in ("think", "answer")) and all(
        inside.count(f"<{kind}>") == inside.count(f"</{kind}>") for kind in ("obj", "box", "t")
    )


# --- Attempts -------------------------------------------------------------------------------------------------------------


def _attempts(text: str, tags: list[Tag]) -> list[Attempt]:
    """All attempts at claims, wherever they stand."""
    tags = [*tags, Tag("", len(text), len(text))]
    attempts = []
    i = 0
    while tags[i].text:
        if tags[i].text not in ("<obj>", "<box>"):
            i += 1
            continue
        attempt = Attempt(begin=tags[i].begin, end=tags[i].begin, next_tag=i)
        if not _read_parts(text, tags, attempt):
            _swallow_remains(tags, attempt)
        attempts.append(attempt)
        i = attempt.next_tag
    return attempts


def _read_parts(text: str, tags: list[Tag], attempt: Attempt) -> bool:
    """Takes the parts of a claim as far as they come; False if the attempt breaks off."""
    if tags[attempt.next_tag].text == "<obj>":
        name = _read_element(text, tags, attempt)
        if name is None:
            return False
        attempt.name = name
        if not name:
            attempt.fail(PolicyFault.MISSING_NAME)
        if not _follows(text, tags, attempt, "", "<box>"):
            attempt.fail(PolicyFault.MISSING_BOX)
            return False
    else:
        attempt.fail(PolicyFault.MISSING_NAME)

    while True:
        inner = _read_element(text, tags, attempt)
        if inner is None:
            return False
        _take_boxes(inner, attempt)
        if not _follows(text, tags, attempt, "", "<box>"):
            break

    if not _follows(text, tags, attempt, "at", "<t>"):
        attempt.fail(PolicyFault.MISSING_TIME)
        return False
    inner = _read_element(text, tags, attempt)
    if inner is None:
        return False
    _take_time(inner, attempt)

    while attempt.end < len(text) and text[attempt.end] in WHITE_SPACE:
        attempt.end += 1
    if text[attempt.end : attempt.end + 1] != "s":
        attempt.fail(PolicyFault.MISSING_UNIT)
        return False
    attempt.end += 1
    return True


def _read_element(text: str, tags: list[Tag], attempt: Attempt) -> str | None:
    """Reads an opening tag, what it holds and the closing tag; None if the next tag is not the closing one."""
    opening, closing = tags[attempt.next_tag : attempt.next_tag + 2]
    attempt.next_tag += 1
    if closing.text != opening.text.replace("<", "</"):
        attempt.fail(PolicyFault.NESTED_TAG)
        attempt.end = closing.begin
        return None
    attempt.next_tag += 1
    attempt.end = closing.end
    return text[opening.end : closing.begin].strip(WHITE_SPACE)


def _follows(text: str, tags: list[Tag], attempt: Attempt, word: str, tag: str) -> bool:
    """Whether the word, the tag and nothing else stand next."""
    following = tags[attempt.next_tag]
    return following.text == tag and text[attempt.end : following.begin].strip(WHITE_SPACE) == word


def _swallow_remains(tags: list[Tag], attempt: Attempt) -> None:
    """Takes the tags behind an attempt that broke off."""
    while (tag := tags[attempt.next_tag]).text and tag.text not in _NEVER_SWALLOWED:
        attempt.end = tag.end
        attempt.next_tag += 1


def _take_boxes(inner: str, attempt: Attempt) -> None:
    """Reads what stands in a box tag."""
    parts = [*_BOX_PART.findall(inner), ""]
    try:
        boxes = _read_bracket(parts, depth=1)
        if parts != [""]:
            raise _MalformedError
    except _MalformedError:
        attempt.fail(PolicyFault.MALFORMED_BOX)
        return
    attempt.boxes += boxes
    if not all(math.isfinite(number) for box in boxes for number in box):
        attempt.fail(PolicyFault.NON_FINITE)
    if len(attempt.boxes) > MAX_BOXES:
        attempt.fail(PolicyFault.TOO_MANY_BOXES)


def _read_bracket(parts: list[str], depth: int) -> list[Box]:
    """Takes a bracket off the front: four numbers, or further brackets."""
    if depth > MAX_DEPTH or parts.pop(0) != "[":
        raise _MalformedError
    boxes: list[Box] = []
    if parts[0] == "[":
        boxes += _read_bracket(parts, depth + 1)
        while parts[0] == ",":
            parts.pop(0)
            boxes += _read_bracket(parts, depth + 1)
    else:
        x1 = _number(parts.pop(0))
        rest = []
        for _ in range(3):
            if parts[0] != ",":
                raise _MalformedError
            parts.pop(0)
            rest.append(_number(parts.pop(0)))
        boxes.append((x1, *rest))
    if parts.pop(0) != "]":
        raise _MalformedError
    return boxes


def _take_time(inner: str, attempt: Attempt) -> None:
    """Reads what stands in a time tag."""
    try:
        attempt.time_s = _number(inner)
    except _MalformedError:
        attempt.fail(PolicyFault.MALFORMED_TIME)
        return
    if not math.isfinite(attempt.time_s):
        attempt.fail(PolicyFault.NON_FINITE)


def _number(word: str) -> float:
    """An integer or decimal, or one of the words for what is no number."""
    if _NUMBER.fullmatch(word) is None and _NO_NUMBER.fullmatch(word) is None:
        raise _MalformedError
    return float(word)


# --- What the numbers must be ---------------------------------------------------------------------------------------------


def _impossible(
    attempt: Attempt, scale: tuple[float, float], frame_hw: tuple[int, int], duration_s: float
) -> PolicyFault | None:
    """What is wrong with a claim that is written as it should be."""
    name = _cleaned(attempt.name)
    if not name:
        return PolicyFault.MISSING_NAME
    if len(name) > MAX_NAME_LENGTH:
        return PolicyFault.LONG_NAME
    boxes = [_in_pixels(box, scale) for box in attempt.boxes]
    if any(x2 < x1 or y2 < y1 for x1, y1, x2, y2 in boxes):
        return PolicyFault.INVERTED_BOX
    if any(x2 == x1 or y2 == y1 for x1, y1, x2, y2 in boxes):
        return PolicyFault.EMPTY_BOX
    height, width = frame_hw
    # A box that touches the frame from outside has nothing in common with it.
    if any(x2 <= 0 or y2 <= 0 or x1 >= width or y1 >= height for x1, y1, x2, y2 in boxes):
        return PolicyFault.OUT_OF_FRAME
    lefts, tops, rights, bottoms = zip(*(_clipped(box, frame_hw) for box in boxes), strict=True)
    if max(rights) - min(lefts) < MIN_PIXELS or max(bottoms) - min(tops) < MIN_PIXELS:
        return PolicyFault.TOO_SMALL
    if not 0.0 <= attempt.time_s <= duration_s:
        return PolicyFault.OUT_OF_CLIP
    return None


def _cleaned(name: str) -> str:
    """A name with control characters as spaces, half surrogate pairs replaced, and nothing white around it."""
    kept = {"Cc": " ", "Cs": "\ufffd"}
    return "".join(kept.get(unicodedata.category(character), character) for character in name).strip()


def _in_pixels(box: Box, scale: tuple[float, float]) -> Box:
    """A box in pixels of the frame."""
    x1, y1, x2, y2 = box
    return x1 * scale[0], y1 * scale[1], x2 * scale[0], y2 * scale[1]


def _clipped(box: Box, frame_hw: tuple[int, int]) -> Box:
    """A box in pixels, cut to the frame that it overlaps."""
    x1, y1, x2, y2 = box
    height, width = frame_hw
    return max(x1, 0.0), max(y1, 0.0), min(x2, float(width)), min(y2, float(height))
