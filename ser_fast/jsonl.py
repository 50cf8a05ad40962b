"""Question and rollout files: JSON lines, one schema for all commands. Imports neither torch nor numpy."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from ser_fast.errors import DataError
from ser_fast.numbers import is_finite_number, is_whole_number
from ser_fast.types import CoordSpace, Question, Rollout, Sampling, Task

SCHEMA = 1

MAX_FPS, MAX_FRAMES = 1000, 100_000
"""More cannot be meant by a sampling rule."""

Row = TypeVar("Row")


def read_rollouts(path: str | os.PathLike[str]) -> list[Rollout]:
    """Reads a rollout file.

    Raises:
        DataError: no such file, no lines, or a line that is not a rollout; the message names file, line and field.
    """
    return read_json_lines(path, rollout_from_json)


def read_questions(path: str | os.PathLike[str]) -> list[Question]:
    """Reads a question file; errors as `read_rollouts`."""
    return read_json_lines(path, question_from_json)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file whole or not at all: readers see the old content or the new, never a part.

    Links are followed and modes kept. What is no regular file (a pipe, a device) is written to as it stands.
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        target.write_text(text, encoding="utf-8")
        return
    part = target.with_name(f".{uuid.uuid4().hex[:12]}.part")
    try:
        part.write_text(text, encoding="utf-8")
        if target.exists():
            part.chmod(target.stat().st_mode)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def write_json_lines(path: str | os.PathLike[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """One object a line; as `write_text`."""
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def question_from_json(row: Mapping[str, Any]) -> Question:
    """One question object -> `Question`. Keys that the schema does not name are ignored.

    Raises:
        ValueError: a field is missing or has the wrong form; the message names it.
    """
    if row.get("schema") != SCHEMA or isinstance(row["schema"], bool):
        raise ValueError(f"schema: expected {SCHEMA}, got {row.get('schema')!r}")
    media = {key: _optional_text(row, key) for key in ("video", "image")}
    if (media["video"] is None) == (media["image"] is None):
        raise ValueError("video, image: expected exactly one of the two")
    task = _text(row, "task")
    if task not in set(Task):
        raise ValueError(f"task: expected one of {', '.join(Task)}, got {task!r}")
    interval = _numbers(row, "interval", length=2)
    start, end = (_optional_number(row, key) for key in ("start", "end"))
    _check_window(start, end)
    return Question(
        id=_text(row, "id"),
        question=_text(row, "question"),
        answer=_text(row, "answer"),
        task=Task(task),
        options=_texts(row, "options"),
        start=start,
        end=end,
        key_times=_numbers(row, "key_times") or (),
        interval=(interval[0], interval[1]) if interval else None,
        boxes=_boxes(row),
        **media,
    )


def rollout_from_json(row: Mapping[str, Any]) -> Rollout:
    """One rollout object -> `Rollout`; errors as `question_from_json`."""
    question = question_from_json(row)
    if "coord_space" not in row:
        raise ValueError("coord_space: missing")
    truncated = row.get("truncated", False)
    if not isinstance(truncated, bool):
        raise ValueError(f"truncated: expected true or false, got {truncated!r}")
    frame_times, sampling = _numbers(row, "frame_times"), row.get("sampling")
    if question.video is not None and (frame_times is None) == (sampling is None):
        raise ValueError("frame_times, sampling: expected exactly one of the two for a video")
    return Rollout(
        question=question,
        group=_text(row, "group"),
        completion=_text(row, "completion"),
        coord_space=CoordSpace.from_json(row["coord_space"]),
        frame_times=frame_times,
        sampling=None if sampling is None else _sampling(sampling),
        truncated=truncated,
    )


def rollout_to_json(rollout: Rollout) -> dict[str, Any]:
    """A rollout as the object that `rollout_from_json` reads; fields that are not given are left out."""
    question, sampling = rollout.question, rollout.sampling
    row: dict[str, Any] = {
        "schema": SCHEMA,
        "id": question.id,
        "video": question.video,
        "image": question.image,
        "question": question.question,
        "answer": question.answer,
        "task": str(question.task),
        "options": list(question.options) or None,
        "start": question.start,
        "end": question.end,
        "key_times": list(question.key_times) or None,
        "interval": None if question.interval is None else list(question.interval),
        "boxes": [dict(box) for box in question.boxes] or None,
        "group": rollout.group,
        "completion": rollout.completion,
        "coord_space": rollout.coord_space.to_json(),
        "frame_times": None if rollout.frame_times is None else list(rollout.frame_times),
        "sampling": None if sampling is None else {k: v for k, v in asdict(sampling).items() if v is not None},
        "truncated": rollout.truncated or None,
    }
    return {key: value for key, value in row.items() if value is not None}


def read_json_lines(path: str | os.PathLike[str], parse: Callable[[Mapping[str, Any]], Row]) -> list[Row]:
    """Reads a file of JSON objects, one a line; empty lines are skipped.

    Args:
        path: the file.
        parse: makes a row of an object; its ValueErrors get file and line put before them.

    Raises:
        DataError: no such file, no lines, or a line that is not what it should be.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{os.fspath(path)}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{os.fspath(path)}: not UTF-8 text: {error.reason} at byte {error.start}") from error
    rows: list[Row] = []
    # Not str.splitlines: a JSON string may hold U+2028 and its like as they are.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"expected a JSON object, got {type(row).__name__}")
            rows.append(parse(row))
        except json.JSONDecodeError as error:
            raise DataError(f"{os.fspath(path)}:{number}: not JSON: {error.msg} (column {error.colno})") from error
        except (ValueError, RecursionError) as error:
            raise DataError(f"{os.fspath(path)}:{number}: {error}") from error
    if not rows:
        raise DataError(f"{os.fspath(path)}: no lines")
    return rows


def _sampling(value: object) -> Sampling:
    if not isinstance(value, Mapping):
        raise ValueError(f"sampling: expected an object with fps and max_frames, got {value!r}")
    unknown = set(value) - {"fps", "max_frames", "start", "end"}
    if unknown:
        raise ValueError(f"sampling: expected the keys fps, max_frames, start, end, got {sorted(map(str, value))}")
    fps, max_frames = _optional_number(value, "fps"), value.get("max_frames")
    if fps is None or not 0 < fps <= MAX_FPS:
        raise ValueError(f"fps: expected a number above 0, {MAX_FPS} at most, got {value.get('fps')!r}")
    if max_frames is not None and not (is_whole_number(max_frames) and 1 <= max_frames <= MAX_FRAMES):
        raise ValueError(f"max_frames: expected a whole number from 1 to {MAX_FRAMES}, got {max_frames!r}")
    start, end = (_optional_number(value, key) for key in ("start", "end"))
    _check_window(start, end)
    return Sampling(fps=fps, max_frames=max_frames, start=start, end=end)


def _check_window(start: float | None, end: float | None) -> None:
    if (start is not None and start < 0) or (end is not None and end <= (start or 0.0)):
        raise ValueError(f"start, end: expected 0 <= start < end, got {start}, {end}")


def _field(row: Mapping[str, Any], key: str) -> Any:
    if key not in row:
        raise ValueError(f"{key}: missing")
    return row[key]


def _text(row: Mapping[str, Any], key: str) -> str:
    value = _field(row, key)
    if not isinstance(value, str):
        raise ValueError(f"{key}: expected a text, got {value!r}")
    return value


def _optional_text(row: Mapping[str, Any], key: str) -> str | None:
    return None if row.get(key) is None else _text(row, key)


def _texts(row: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = row.get(key)
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{key}: expected a list of texts, got {value!r}")
    return tuple(value)


def _optional_number(row: Mapping[str, Any], key: str) -> float | None:
    value = row.get(key)
    if value is None:
        return None
    if not is_finite_number(value):
        raise ValueError(f"{key}: expected a number, got {value!r}")
    return float(value)


def _numbers(row: Mapping[str, Any], key: str, *, length: int | None = None) -> tuple[float, ...] | None:
    value = row.get(key)
    if value is None:
        return None
    if (
        not isinstance(value, (list, tuple))
        or not all(is_finite_number(item) for item in value)
        or (length is not None and len(value) != length)
    ):
        expected = "numbers" if length is None else f"{length} numbers"
        raise ValueError(f"{key}: expected a list of {expected}, got {value!r}")
    return tuple(float(item) for item in value)


def _boxes(row: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    value = row.get("boxes")
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"boxes: expected a list of objects, got {value!r}")
    for item in value:
        if not isinstance(item, Mapping) or not is_finite_number(item.get("time_s")):
            raise ValueError(f"boxes: expected objects with a number time_s and a box, got {item!r}")
        _numbers(item, "box", length=4)
        if item.get("box") is None or not isinstance(item.get("name", ""), str):
            raise ValueError(f"boxes: expected objects with a number time_s, a box and perhaps a name, got {item!r}")
    return tuple({key: item[key] for key in ("time_s", "box", "name") if key in item} for item in value)
