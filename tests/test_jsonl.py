"""Question and rollout lines: what is read, and what is refused by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ser_fast.errors import DataError
from ser_fast.jsonl import question_from_json, read_questions, read_rollouts, rollout_from_json, rollout_to_json, write_text
from ser_fast.types import CoordSpace, Sampling, Task

QUESTION = {"schema": 1, "id": "q", "video": "v.mp4", "question": "?", "answer": "A", "task": "mcq"}
ROLLOUT = QUESTION | {"group": "g", "completion": "c", "coord_space": {"kind": "norm1"}, "frame_times": [0, 1.5]}


def test_all_fields_of_a_question() -> None:
    labels = {
        "options": ["a", "b"],
        "start": 1,
        "end": 2.5,
        "key_times": [1.5],
        "interval": [1, 2],
        "boxes": [{"time_s": 1.5, "box": [0, 0, 0.5, 1], "name": "cat"}],
    }
    question = question_from_json(QUESTION | labels | {"other": "ignored"})
    assert (question.id, question.media, question.task) == ("q", "v.mp4", Task.MCQ)
    assert (question.options, question.start, question.end) == (("a", "b"), 1.0, 2.5)
    noted = {"boxes": [{"time_s": 1.5, "box": [0, 0, 0.5, 1], "name": "cat", "score": float("nan")}]}
    assert question_from_json(QUESTION | labels | noted).boxes == question.boxes, "what others note is not carried on"
    assert (question.key_times, question.interval, question.boxes) == ((1.5,), (1.0, 2.0), tuple(labels["boxes"]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"truncated": True, "options": ["a"], "start": 0.5, "end": 2.0, "key_times": [1.0], "interval": [1.0, 2.0]},
        {"boxes": [{"time_s": 1.5, "box": [0, 0, 0.5, 1], "name": "cat"}], "coord_space": {"kind": "norm1000"}},
        {"frame_times": None, "sampling": {"fps": 2.0, "max_frames": 4, "end": 3.0}},
        {"video": None, "image": "x.png", "coord_space": {"kind": "pixels", "height": 8, "width": 4}},
    ],
)
def test_a_rollout_is_written_as_it_is_read(changes: dict[str, Any]) -> None:
    rollout = rollout_from_json(ROLLOUT | changes)
    written = rollout_to_json(rollout)
    assert rollout_from_json(json.loads(json.dumps(written))) == rollout
    assert written == {key: value for key, value in (ROLLOUT | changes).items() if value is not None}


def test_all_fields_of_a_rollout() -> None:
    rollout = rollout_from_json(ROLLOUT | {"truncated": True})
    assert (rollout.group, rollout.completion, rollout.truncated) == ("g", "c", True)
    assert (rollout.coord_space, rollout.frame_times) == (CoordSpace(kind="norm1"), (0.0, 1.5))
    row = {k: v for k, v in ROLLOUT.items() if k != "frame_times"} | {
        "sampling": {"fps": 2, "max_frames": 16, "start": 1, "end": 4}
    }
    assert rollout_from_json(row).sampling == Sampling(fps=2.0, max_frames=16, start=1.0, end=4.0)
    image = {k: v for k, v in ROLLOUT.items() if k not in ("video", "frame_times")} | {"image": "i.png"}
    assert rollout_from_json(image).question.media == "i.png"


NAN, HUGE = float("nan"), 10**400

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"schema": 2}, "schema: expected 1, got 2"),
    ({"schema": True}, "schema: expected 1, got True"),
    ({"id": 7}, "id: expected a text, got 7"),
    ({"image": "i.png"}, "video, image: expected exactly one of the two"),
    ({"video": 3}, "video: expected a text, got 3"),
    (
        {"task": "qa"},
        "task: expected one of free-form, mcq, temporal, temporal-mcq, spatio-temporal, image-grounding, got 'qa'",
    ),
    ({"task": ["mcq"]}, "task: expected a text"),
    ({"options": "ab"}, "options: expected a list of texts, got 'ab'"),
    ({"options": 0}, "options: expected a list of texts, got 0"),
    ({"boxes": False}, "boxes: expected a list of objects, got False"),
    ({"start": "1"}, "start: expected a number, got '1'"),
    ({"start": 3, "end": 2}, "start, end: expected 0 <= start < end, got 3.0, 2.0"),
    ({"start": -1}, "start, end: expected 0 <= start < end, got -1.0, None"),
    ({"key_times": 3}, "key_times: expected a list of numbers, got 3"),
    ({"key_times": [NAN]}, "key_times: expected a list of numbers"),
    ({"interval": [1]}, "interval: expected a list of 2 numbers"),
    ({"boxes": [{"box": [0, 0, 1, 1]}]}, "boxes: expected objects with a number time_s and a box"),
    ({"boxes": [{"time_s": 1, "box": [0, 0, 1]}]}, "box: expected a list of 4 numbers"),
    ({"coord_space": "norm1"}, "coord_space: expected an object with a 'kind', got 'norm1'"),
    ({"coord_space": {"kind": "norm"}}, "coord_space.kind: expected 'pixels', 'norm1' or 'norm1000', got 'norm'"),
    ({"coord_space": {"kind": ["pixels"]}}, "coord_space.kind: expected"),
    ({"coord_space": {"kind": "pixels", "height": 9}}, "coord_space.width: expected a whole number > 0 for 'pixels', got None"),
    ({"coord_space": {"kind": "pixels", "height": HUGE, "width": 9}}, "coord_space.height: expected a whole number > 0"),
    ({"coord_space": {"kind": "pixels", "height": True, "width": 9}}, "coord_space.height: expected a whole number"),
    ({"coord_space": {"kind": "norm1", "height": 9}}, "coord_space.height: expected none for 'norm1', got 9"),
    ({"coord_space": {"kind": "norm1", "size": 9}}, "coord_space: expected the keys kind, height, width, got"),
    ({"frame_times": []}, "frame_times: expected at least one number"),
    ({"frame_times": [-1]}, "frame_times: expected at least one number, all >= 0"),
    ({"frame_times": [HUGE]}, "frame_times: expected a list of numbers"),
    ({"sampling": {"fps": 1}}, "frame_times, sampling: expected exactly one of the two"),
    ({"frame_times": None, "sampling": {"fps": 0}}, "fps: expected a number above 0, 1000 at most, got 0"),
    ({"frame_times": None, "sampling": {"fps": 1e9}}, "fps: expected a number above 0, 1000 at most"),
    (
        {"frame_times": None, "sampling": {"fps": 1, "max_frames": 10**9}},
        "max_frames: expected a whole number from 1 to 100000",
    ),
    ({"frame_times": None, "sampling": {"fps": True}}, "fps: expected a number, got True"),
    (
        {"frame_times": None, "sampling": {"fps": 1, "max_frames": 0}},
        "max_frames: expected a whole number from 1 to 100000, got 0",
    ),
    ({"frame_times": None, "sampling": {"fps": 1, "frames": 4}}, "sampling: expected the keys fps, max_frames, start, end"),
    ({"frame_times": None, "sampling": 2}, "sampling: expected an object"),
    ({"truncated": 1}, "truncated: expected true or false, got 1"),
    ({"completion": None}, "completion: expected a text, got None"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=range(len(WRONG)))
def test_wrong_fields_are_named_with_file_and_line(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(f"{json.dumps(ROLLOUT)}\n\n{json.dumps(ROLLOUT | change)}\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_rollouts(path)
    assert str(caught.value).startswith(f"{path}:3: {message}")


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5000, '{"a": ' * 50_000])
def test_monstrous_json_is_refused_like_any_other(text: str, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"r.jsonl:1: "):
        read_questions(path)


def test_line_separators_inside_texts_are_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    row = QUESTION | {"question": "one\u2028two\x0bthree\x85"}
    path.write_text(json.dumps(row, ensure_ascii=False) + "\r\n", encoding="utf-8", newline="")
    assert read_questions(path)[0].question == row["question"]


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps(QUESTION), encoding="utf-8-sig")
    assert read_questions(path)[0].id == "q"


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new \ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path], "nothing is left of the attempt"
    write_text(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
