"""Completions from files: both schemas, boxes in the model's own numbers, errors that say where, and a run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ser_fast.errors import DataError, InputError
from ser_fast.testing import moving_square, write_clip
from ser_fast.types import CoordSpace
from trainer.cli import main
from trainer.policy import Policy
from trainer.prompt import PromptConfig, PromptOptions
from trainer.sft import Examples, convert_boxes, read_examples

ROW = {
    "schema": 1,
    "id": "a",
    "video": "square.mp4",
    "question": "What moves?",
    "answer": "a square",
    "task": "free-form",
    "coord_space": {"kind": "norm1000"},
    "completion": "<think><obj>red square</obj><box>[0, 250, 500, 1000]</box>at<t>1.00</t>s</think><answer>a square</answer>",
}
OPEN_O3 = {
    "task": "General video QA Free-form",
    "question": "What moves?",
    "answer": "a square",
    "video_path": "square.mp4",
    "reasoning_process": "<obj>red square</obj><box>[0.0, 0.25, 0.5, 1.0]</box>at<t>1.00</t>s moves.",
    "key_frames": [],
    "key_items": {},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    frames, _ = moving_square(30)
    write_clip(tmp_path / "square.mp4", frames, fps=10)
    (tmp_path / "lines.jsonl").write_text(json.dumps(ROW) + "\n" + json.dumps(ROW | {"id": "b"}) + "\n")
    (tmp_path / "o3.json").write_text(json.dumps([OPEN_O3]))
    return tmp_path


def test_both_schemas_say_the_same(folder: Path) -> None:
    (line, _), (entry,) = read_examples(folder / "lines.jsonl"), read_examples(folder / "o3.json")
    space = CoordSpace(kind="pixels", height=84, width=84)
    assert entry.question.media == line.question.media == "square.mp4"
    expected = "<box>[0,21,42,84]</box>"
    assert expected in convert_boxes(line.completion, line.coord_space, space)
    assert expected in convert_boxes(entry.completion, entry.coord_space, space)
    assert entry.completion.endswith("moves.</think><answer>a square</answer>")


def test_images_of_open_o3_are_in_pixels(tmp_path: Path) -> None:
    row = {key: value for key, value in OPEN_O3.items() if key != "video_path"}
    row |= {"image_path": "x.jpg", "image_size": [200, 100], "reasoning_process": "<box>[20, 10, 200, 100]</box>"}
    (tmp_path / "o3.json").write_text(json.dumps([row]))
    (entry,) = read_examples(tmp_path / "o3.json")
    assert entry.question.image == "x.jpg"
    assert "<box>[100,100,1000,1000]</box>" in convert_boxes(entry.completion, entry.coord_space, CoordSpace(kind="norm1000"))


@pytest.mark.parametrize(
    "text",
    [
        "<box>[1, 2, 3]</box>",
        "<box>[a, 2, 3, 4]</box>",
        "<box>[nan, 1, 2, 3]</box>",
        "<box>[1e308, 1, 2, 3]</box>",
        "<box>[[1, 2, 3, 4], [5]]</box>",
        "<box></box>",
        "[1, 2, 3, 4]",
    ],
)
def test_what_is_no_box_stays(text: str) -> None:
    assert convert_boxes(text, CoordSpace(kind="norm1"), CoordSpace(kind="norm1000")) == text


def test_a_list_of_boxes_is_converted_box_by_box() -> None:
    """Open-o3-Video writes it where several things have one name."""
    text = "<box>[[0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1]]</box>"
    assert (
        convert_boxes(text, CoordSpace(kind="norm1"), CoordSpace(kind="norm1000"))
        == "<box>[[100,200,300,400], [0,0,1000,1000]]</box>"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps({k: v for k, v in ROW.items() if k != "completion"}), r"x:1: completion: expected a text, got None"),
        (json.dumps({k: v for k, v in ROW.items() if k != "coord_space"}), r"x:1: coord_space: missing"),
        ("", "x: no lines"),
        ("{", "x:1: not JSON"),
        ("[", "x: not JSON"),
        ("[]", "x: no examples"),
        ("[3]", "x: entry 0: expected an object, got int"),
        (json.dumps([OPEN_O3 | {"answer": None}]), "x: entry 0: answer: expected a text, got None"),
        (json.dumps([OPEN_O3 | {"video_path": None}]), "x: entry 0: video, image: expected exactly one of the two"),
    ],
)
def test_bad_files_are_named(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        read_examples(path)
    with pytest.raises(DataError, match="missing: "):
        read_examples(tmp_path / "missing")


def test_a_batch_holds_the_examples_of_a_clip_as_branches(folder: Path, policy: Policy) -> None:
    batches = Examples(policy, read_examples(folder / "lines.jsonl"), folder, fps=1.0, max_frames=3, num_clips=1, seed=0)
    text = batches.show(0)
    assert text.count("<image>") == 3
    assert "Frame 1 at 0.00 s: <|vision_start|><image><|vision_end|>" in text
    assert "The video is 3.00 s long.\nWhat moves?<|im_end|>\n<|im_start|>assistant\n<think><obj>red square</obj>" in text
    assert text.endswith("</answer><|im_end|>")
    assert batches.loss_at(0).item() == batches.loss_at(0).item()


def test_each_window_of_a_video_has_its_own_frames(folder: Path, policy: Policy) -> None:
    windows = [ROW | {"start": 0.0, "end": 1.0}, ROW | {"id": "b", "start": 2.0, "end": 2.9}]
    (folder / "windows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in windows))
    examples = read_examples(folder / "windows.jsonl")
    batches = Examples(policy, examples, folder, fps=1.0, max_frames=3, num_clips=1, seed=0)
    shown = {batches.show(step).partition("is 3.00 s long")[0] for step in range(2)}
    assert {text.count("at 2.00 s: ") for text in shown} == {0, 1}
    assert {text.count("at 0.00 s: ") for text in shown} == {0, 1}


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"video": "nope.mp4"}, {}, r"nope\.mp4: open: .*"),
        ({"video": "lines.jsonl"}, {}, r"lines\.jsonl: open: .*"),
        ({"image": "nope.png", "video": None}, {}, r"nope\.png: .*"),
        ({"start": 50.0}, {}, r"square\.mp4: start, end: expected a window that begins in \[0, 2\.900\] s, got 50\.0, None"),
        ({}, {"fps": 0}, r"fps: expected a number > 0, got 0\.0"),
        ({}, {"fps": "nan"}, r"fps: expected a number > 0, got nan"),
        ({}, {"max-frames": 0}, r"max_frames: expected a whole number > 0, got 0"),
        ({}, {"num-clips": -1}, r"num_clips: expected a whole number > 0, got -1"),
        ({}, {"steps.num-steps": 0}, r"num_steps: expected a whole number > 0, got 0"),
        ({}, {"steps.muon-learning-rate": -1}, r"muon_learning_rate: expected a number >= 0, got -1\.0"),
        ({}, {"steps.final-share": "nan"}, r"final_share: expected a number in \[0, 1\.0\], got nan"),
        ({}, {"steps.weight-decay": -1}, r"weight_decay: expected a number >= 0, got -1\.0"),
        ({}, {"prompt.frame": "{number[0]}{image}"}, r"prompt\.frame: expected no fields but .*"),
        (
            {},
            {"steps.learning-rate": 1e30, "steps.num-warmup-steps": 0},
            r"learning_rate: the gradient is not finite any more .*",
        ),
        ({}, {"prompt.frame": "x"}, r"prompt\.frame: expected \{image\} once, got 'x'"),
        ({}, {"prompt.frame": "{image}{image}"}, r"prompt\.frame: expected \{image\} once, .*"),
        ({}, {"prompt.frame": "{k}{image}"}, r"prompt\.frame: expected no fields but \{number\}, \{time\}, \{image\}, .*"),
        ({}, {"prompt.system": "in {json"}, r"prompt\.system: expected no fields but \{unit\}, \{example\}, got 'in \{json'"),
        ({}, {"prompt.time-format": "q"}, r"prompt\.time_format: expected the format of a number such as \.2f, got 'q'"),
        ({}, {"prompt.max-frame-pixels": 0}, r"prompt\.max_frame_pixels: expected a number > 0, got 0"),
    ],
)
def test_what_cannot_be_used_ends_in_one_line(
    change: dict[str, Any],
    options: dict[str, Any],
    message: str,
    folder: Path,
    tiny_folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = {key: value for key, value in (ROW | change).items() if value is not None}
    (folder / "lines.jsonl").write_text(json.dumps(row) + "\n")
    assert main(_arguments(folder, tiny_folder, **options)) == 2
    assert re.fullmatch(rf"ser-train: (.*/)?{message}\n", capsys.readouterr().err)


def test_any_text_can_be_taught(folder: Path, policy: Policy) -> None:
    (folder / "lines.jsonl").write_text(json.dumps(ROW | {"completion": "\ud800 <box>[1e308,0,0,0]</box> \x00"}) + "\n")
    batches = Examples(policy, read_examples(folder / "lines.jsonl"), folder, fps=1.0, max_frames=3, num_clips=1, seed=0)
    assert "\ufffd <box>[1e308,0,0,0]</box>" in batches.show(0)
    assert batches.loss_at(0).isfinite()


def test_a_run_is_not_mixed_with_another(folder: Path, tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(_arguments(folder, tiny_folder)) == 0
    for changes, message in (
        ({"prompt.frame": "{image}"}, "run: a run with prompt "),
        ({"steps.muon-learning-rate": 1e-3}, "run: a run with steps "),
        ({"model": folder / "run" / "model"}, "model: expected another folder than "),
    ):
        assert main(_arguments(folder, tiny_folder, **changes)) == 2
        assert message in capsys.readouterr().err
    assert Policy.load(folder / "run" / "model").prompts.config == PromptConfig()


def test_the_prompt_travels_with_the_model(folder: Path, tiny_folder: Path) -> None:
    assert main(_arguments(folder, tiny_folder, **{"prompt.frame": "{time}: {image} ", "steps.num-steps": 1})) == 0
    taught = Policy.load(folder / "run" / "model")
    assert taught.prompts.config == PromptConfig(frame="{time}: {image} ")
    changed = Policy.load(folder / "run" / "model", prompt=PromptOptions(length=""))
    assert changed.prompts.config == PromptConfig(frame="{time}: {image} ", length="")
    (folder / "run" / "model" / "policy_prompt.json").write_text('{"frame": 3}')
    with pytest.raises(
        InputError, match=r"policy_prompt\.json: expected an object with some of system, .*, got \{'frame': 3\}"
    ):
        Policy.load(folder / "run" / "model")


def _arguments(folder: Path, policy: Path, **changes: Any) -> list[str]:
    options = {
        "model": policy,
        "data": folder / "lines.jsonl",
        "videos": folder,
        "run": folder / "run",
        "fps": 1.0,
        "max-frames": 3,
        "num-clips": 1,
        "steps.num-steps": 3,
        "steps.learning-rate": 1e-3,
    } | changes
    return ["sft", *(text for key, value in options.items() for text in (f"--{key}", str(value)))]


def test_the_command_trains_and_writes_a_folder_that_loads(
    folder: Path, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(_arguments(folder, tiny_folder)) == 0
    out = capsys.readouterr().out
    assert "boxes are written in pixels of the frame as you see it" in out
    assert out.rstrip().endswith(str(folder / "run" / "model"))
    Policy.load(folder / "run" / "model")
    assert len((folder / "run" / "metrics.jsonl").read_text().splitlines()) == 3


def test_the_command_shows_the_prompt(folder: Path, tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*_arguments(folder, tiny_folder), "--show-prompt"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("boxes are written in pixels of the frame as you see it\n<|im_start|>system\nYou answer questions")
    assert "Frame 2 at 1.00 s: " in out
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "nowhere"}, "ser-train: nowhere: no such folder\n"),
        ({"data": "missing.jsonl"}, "ser-train: missing.jsonl: "),
        ({"run": "/dev/null/run"}, "ser-train: /dev/null/run: Not a directory\n"),
    ],
)
def test_bad_input_ends_with_one_line(
    changes: dict[str, Any], message: str, folder: Path, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(_arguments(folder, tiny_folder, **changes)) == 2
    err = capsys.readouterr().err
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_help_is_of_use(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["sft", "--help"], ["sft-toy", "--help"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 0
    out = capsys.readouterr().out
    assert "sft-toy" in out
    assert "--max-frames" in out


def test_the_toy_prompt_is_shown_without_making_its_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sft-toy", "--show-prompt"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("<image>") == 6
    assert "0.00 s: <|vision_start|>" in shown
    assert "What " in shown
    assert list(tmp_path.iterdir()) == []
