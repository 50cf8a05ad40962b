"""Supervised fine-tuning on completions: question lines with a `completion`, or the SFT file of Open-o3-Video."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ser_fast.errors import DataError
from ser_fast.jsonl import question_from_json, read_json_lines
from ser_fast.types import CoordSpace, Footage, Question
from trainer.batch import Branch, ClipTree
from trainer.frames import Frames
from trainer.order import Order
from trainer.policy import Policy

_BOX = re.compile(r"<box>[^<]*</box>")
_NUMBERS = re.compile(r"\[([^\[\]]*)\]")
MAX_NUMBER = 1e6
"""Larger ones are no coordinates."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """A question and the completion to learn."""

    question: Question
    completion: str
    coord_space: CoordSpace
    """Of the boxes in the completion."""


def read_examples(path: str | os.PathLike[str]) -> list[Example]:
    """Reads a file of examples.

    JSON lines: the question schema with `completion` and `coord_space`. A JSON list (a file that begins with "["): the SFT
    schema of Open-o3-Video, whose boxes are fractions of the frame for videos and pixels for images.

    Raises:
        DataError: no such file, no examples, or one that has not the schema; names file, line or entry, and field.
    """
    path = Path(path)
    try:
        begin = path.open(encoding="utf-8-sig").read(1)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {error}") from error
    if begin != "[":
        return read_json_lines(path, _example)
    try:
        rows = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON: {error}") from error
    examples = []
    for i, row in enumerate(rows):
        try:
            examples.append(_open_o3_example(i, row))
        except ValueError as error:
            raise DataError(f"{path}: entry {i}: {error}") from error
    if not examples:
        raise DataError(f"{path}: no examples")
    return examples


def _example(row: Mapping[str, Any]) -> Example:
    completion = row.get("completion")
    if not isinstance(completion, str) or not completion:
        raise ValueError(f"completion: expected a text, got {completion!r}")
    if "coord_space" not in row:
        raise ValueError("coord_space: missing")
    return Example(
        question=question_from_json(row), completion=completion, coord_space=CoordSpace.from_json(row["coord_space"])
    )


def _open_o3_example(number: int, row: Any) -> Example:
    """One entry of the file; the media lies at the path that the entry names."""
    if not isinstance(row, dict):
        raise ValueError(f"expected an object, got {type(row).__name__}")
    texts = {}
    for key in ("question", "answer", "reasoning_process"):
        if not isinstance(row.get(key), str):
            raise ValueError(f"{key}: expected a text, got {row.get(key)!r}")
        texts[key] = row[key]
    video, image = row.get("video_path"), row.get("image_path")
    size = row.get("image_size")
    if image and not (isinstance(size, list) and len(size) == 2):
        raise ValueError(f"image_size: expected [width, height], got {size!r}")
    question = question_from_json(
        {
            "schema": 1,
            "id": str(row.get("id", number)),
            "question": texts["question"],
            "answer": texts["answer"],
            "task": "free-form",
            **({"image": image} if image else {"video": video}),
        }
    )
    space = {"kind": "pixels", "width": size[0], "height": size[1]} if image and size else {"kind": "norm1"}
    completion = f"<think>{texts['reasoning_process']}</think><answer>{texts['answer']}</answer>"
    return Example(question=question, completion=completion, coord_space=CoordSpace.from_json(space))


def convert_boxes(text: str, source: CoordSpace, target: CoordSpace) -> str:
    """The text with the numbers of each `<box>` in another coordinate space: whole ones, or four digits for norm1.

    A `<box>` may hold one box or a list of them; one in which a bracket does not hold four coordinates stays as it is.
    """
    (from_width, from_height), (to_width, to_height) = source.extent(), target.extent()
    scales = (to_width / from_width, to_height / from_height) * 2

    def rewritten(match: re.Match[str]) -> str:
        boxes = [_coordinates(inner) for inner in _NUMBERS.findall(match[0])]
        if None in boxes:
            return match[0]
        scaled = iter([n * scale for n, scale in zip(box, scales, strict=True)] for box in boxes if box is not None)
        return _NUMBERS.sub(lambda _: f"[{','.join(map(written, next(scaled)))}]", match[0])

    def written(number: float) -> str:
        return f"{number:.4g}" if target.kind == "norm1" else str(round(number))

    return _BOX.sub(rewritten, text)


def _coordinates(text: str) -> list[float] | None:
    """Four numbers between commas; None for anything else."""
    try:
        numbers = [float(n) for n in text.split(",")]
    except ValueError:
        return None
    return numbers if len(numbers) == 4 and all(abs(n) <= MAX_NUMBER for n in numbers) else None


class Examples:
    """Supervised batches of examples: clips whole, with all their questions. What comes at a step depends on the seed and the
    step only."""

    def __init__(
        self,
        policy: Policy,
        examples: Sequence[Example],
        videos: str | os.PathLike[str],
        *,
        fps: float,
        max_frames: int,
        num_clips: int,
        seed: int,
    ) -> None:
        """Args:
        policy: gives prompts and the size of frames.
        examples: at least one.
        videos: folder that their media lie below.
        fps, max_frames: of the frames that the policy sees.
        num_clips: of a batch.
        seed: of the order of clips.
        """
        self._policy = policy
        self._frames = Frames(videos, fps=fps, max_frames=max_frames, keep_bytes=0)
        by_footage: dict[Footage, list[Example]] = {}
        for example in examples:
            by_footage.setdefault(example.question.footage, []).append(example)
        self._groups = list(by_footage.values())
        self._order = Order(len(self._groups), num_clips, seed)

    def loss_at(self, step: int) -> torch.Tensor:
        """Mean negative log-probability of the completion tokens of a batch."""
        trees = [self._tree(self._groups[i]) for i in self._order.batch(step)]
        return self._policy.loss(trees)

    def show(self, step: int) -> str:
        """The first prompt of a step and its completion, as text."""
        tree = self._tree(self._groups[self._order.batch(step)[0]])
        branch = tree.branches[0]
        return self._policy.show(tree.clip, branch.question + branch.completions[0])

    def _tree(self, group: list[Example]) -> ClipTree:
        prompt = self._policy.prompts.clip(self._frames.of(group[0].question))
        space = self._policy.prompts.coord_space(prompt.size)
        return ClipTree(
            clip=prompt,
            branches=tuple(
                Branch(
                    question=self._policy.prompts.question(example.question.question),
                    completions=(self._policy.completion_ids(convert_boxes(example.completion, example.coord_space, space)),),
                )
                for example in group
            ),
        )
