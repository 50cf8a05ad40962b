"""Reinforcement end to end on a few clips of the toy world: what a run writes, how it goes on, and what it never reads."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ser_fast.assets import TOY_REFEREE
from ser_fast.errors import InputError
from ser_fast.jsonl import read_questions, read_rollouts
from ser_fast.types import Question, RefereeRequest, RefereeScores
from tests.conftest import FAMILIES, ROOT
from trainer import loop
from trainer.cli import main
from trainer.loop import train
from trainer.loss import LossConfig
from trainer.policy import Policy
from trainer.presets import Grpo
from trainer.prompt import PromptOptions
from trainer.run import open_run
from trainer.toy import POLICY
from trainer.toy.files import write_split


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six clips with three things each."""
    folder = tmp_path_factory.mktemp("world")
    write_split(folder, split="validation", seed=5, num_clips=6)
    return folder


def _config(world: Path, run: Path, **changes: Any) -> Grpo:
    settings: dict[str, Any] = {
        "model": str(POLICY),
        "data": world / "questions.jsonl",
        "videos": world,
        "referee": "toy",
        "run": run,
        "num_steps": 2,
        "num_prompts": 3,
        "group_size": 4,
        "prompts_at_once": 2,
        "max_new_tokens": 112,
        "learning_rate": 1e-4,
        "fps": 1.0,
        "max_frames": 6,
        "evaluate_every": 2,
        "save_every": 2,
    }
    return Grpo(**(settings | changes))


def _rows(run: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    """Without what differs from run to run."""
    rows = [json.loads(line) for line in (run / name).read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def test_a_run_writes_what_it_should(world: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = train(_config(world, run, held_out=world / "questions.jsonl"))
    Policy.load(model)
    rows = _rows(run)
    assert [row["step"] for row in rows] == [0, 1]
    for row in rows:
        assert 0 <= row["reward"] <= 3
        assert 0 < row["claims"] <= 3
        assert row["gradient_norm"] > 0
        assert row["level_mass"] > 0.9
    assert [row["step"] for row in _rows(run, "evaluations.jsonl")] == [0, 2]
    assert all(0 <= row["where"] <= 1 and row["num"] == 36 for row in _rows(run, "evaluations.jsonl"))
    page = (run / "report" / "index.html").read_text()
    assert page.count('<div class="response') == 12
    assert "<svg" in page
    assert "On 36 held-out questions" in page
    first, last = _rows(run, "evaluations.jsonl")
    for name in ("what", "when", "where", "am", "lgm"):
        cells = f"<td>{name}</td><td>{first[name]:.3f}</td><td>{last[name]:.3f}</td><td>{last[name] - first[name]:+.3f}</td>"
        assert cells in page
    assert list((run / "tensorboard").iterdir())
    rollouts = read_rollouts(run / "rollouts" / "step_1.jsonl")
    assert len(rollouts) == 12
    assert len({rollout.group for rollout in rollouts}) == 3
    assert len((run / "scored" / "step_1.jsonl").read_text().splitlines()) == 12


def test_a_step_can_be_scored_again(world: Path, tmp_path: Path) -> None:
    """`ser-fast score` and `render` on what a step wrote."""
    from ser_fast.cli import main as ser_fast

    run = tmp_path / "run"
    train(_config(world, run, num_steps=1))
    again = tmp_path / "again.jsonl"
    arguments = ["--rollouts", str(run / "rollouts" / "step_0.jsonl"), "--videos", str(world), "--referee", "toy"]
    assert ser_fast(["score", *arguments, "--no-timings", "--out", str(again)]) == 0
    first = [json.loads(line) for line in (run / "scored" / "step_0.jsonl").read_text().splitlines()]
    second = [json.loads(line) for line in again.read_text().splitlines()]
    assert len({line["id"] for line in first}) == len(first)
    for a, b in zip(first, second, strict=True):
        assert a["id"] == b["id"]
        assert a["total"] == pytest.approx(b["total"], abs=1e-4)
    assert ser_fast(["render", *arguments[:4], "--scored", str(again), "--out", str(tmp_path / "page")]) == 0
    assert (tmp_path / "page" / "index.html").read_text().count('<div class="response') == len(first)


def test_no_label_is_read(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN for every true box and time: the same losses, bit by bit."""
    train(_config(world, tmp_path / "a"))
    nan = float("nan")

    def blinded(path: str | os.PathLike[str]) -> list[Question]:
        return [
            dataclasses.replace(question, interval=(nan, nan), boxes=({"time_s": nan, "box": [nan] * 4},), key_times=(nan,))
            for question in read_questions(path)
        ]

    monkeypatch.setattr(loop, "read_questions", blinded)
    monkeypatch.setattr(loop, "write_rollouts", lambda *_: None)  # JSON has no NaN
    monkeypatch.setattr(loop, "write_report", lambda *_: None)
    train(_config(world, tmp_path / "b"))
    assert _rows(tmp_path / "a") == _rows(tmp_path / "b")


@pytest.mark.parametrize("family", FAMILIES)
def test_any_family_takes_two_steps(family: str, world: Path, random_vlm: dict[str, Path], tmp_path: Path) -> None:
    config = _config(
        world,
        tmp_path / "run",
        model=str(random_vlm[family]),
        referee=str(random_vlm[family]),
        max_new_tokens=8,
        max_frames=2,
        loss=LossConfig(ratio="sequence", kl=0.1),
        prompt=PromptOptions(frame="{time} s: {image}\n"),
    )
    Policy.load(train(config))
    assert len(_rows(tmp_path / "run")) == 2


def test_a_policy_that_cites_nothing_is_sent_back(world: Path, tiny_folder: Path, tmp_path: Path) -> None:
    config = _config(world, tmp_path / "run", model=str(tiny_folder), num_steps=6, max_new_tokens=4)
    with pytest.raises(InputError, match=r"model: 0\.0% of the completions .* begin with the supervised stage"):
        train(config)
    assert len(_rows(tmp_path / "run")) == 4


SCRIPT = """
import pickle, sys, time
import torch
from trainer.loop import train

if len(sys.argv) > 2:  # a write of a checkpoint that takes its time
    save = torch.save
    def slowly(states, path):
        save(states, path)
        print("writing", flush=True)
        time.sleep(2)
    torch.save = slowly
train(pickle.loads(bytes.fromhex(sys.argv[1])))
"""


def _start(config: Grpo, *more: str) -> subprocess.Popen[str]:
    import pickle

    command = [sys.executable, "-c", SCRIPT, pickle.dumps(config).hex(), *more]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})


def _wait_for(run: Path, num_rows: int) -> None:
    while not (run / "metrics.jsonl").exists() or len((run / "metrics.jsonl").read_text().splitlines()) < num_rows:
        time.sleep(0.02)


def test_a_killed_run_goes_on_the_same(world: Path, tmp_path: Path) -> None:
    """SIGKILL at three random steps and once while a checkpoint is written."""
    held_out = tmp_path / "held-out.jsonl"
    held_out.write_text("".join((world / "questions.jsonl").read_text().splitlines(keepends=True)[::9]))
    changes: dict[str, Any] = {"num_steps": 7, "num_prompts": 2, "group_size": 3, "save_every": 2, "max_new_tokens": 60}
    changes |= {"held_out": held_out, "evaluate_every": 3}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert _start(_config(world, whole, **changes)).wait() == 0
    rng = random.Random(os.environ.get("PYTEST_SEED", "3"))
    config = _config(world, killed, **changes)
    for rows in sorted(rng.sample(range(1, 6), 3)):
        part = _start(config)
        _wait_for(killed, rows)
        part.send_signal(signal.SIGKILL)
        part.wait()
    part = _start(config, "slow")
    assert part.stdout is not None
    while "writing" not in part.stdout.readline():
        pass
    part.send_signal(signal.SIGKILL)
    part.wait()
    assert _start(config).wait() == 0
    assert _rows(killed) == _rows(whole)
    assert _rows(killed, "evaluations.jsonl") == _rows(whole, "evaluations.jsonl")
    assert [row["step"] for row in _rows(killed, "evaluations.jsonl")] == [0, 3, 6, 7]
    for name in (*(f"rollouts/step_{step}.jsonl" for step in range(7)), "scored/held_out.jsonl"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()
    weights = "model/model.safetensors"
    assert (killed / weights).read_bytes() == (whole / weights).read_bytes()


def test_sigterm_saves_and_ends_well(world: Path, tmp_path: Path) -> None:
    config = _config(world, tmp_path / "run", num_steps=500, num_prompts=1, group_size=2, save_every=1000, max_new_tokens=60)
    part = _start(config)
    _wait_for(tmp_path / "run", 1)
    part.send_signal(signal.SIGTERM)
    assert part.wait() == 0
    (saved,) = (tmp_path / "run").glob("checkpoint-*")
    assert int(saved.name.rpartition("-")[2]) == len(_rows(tmp_path / "run"))


def test_bad_input_ends_with_one_line(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("x")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    good: dict[str, Any] = {
        "model": POLICY,
        "data": world / "questions.jsonl",
        "videos": world,
        "referee": TOY_REFEREE,
        "run": tmp_path / "run",
        "num-steps": 1,
    }
    cases = (
        ({"model": "nowhere"}, "ser-train: nowhere: no such folder"),
        ({"referee": "nowhere"}, "ser-train: nowhere: no such folder"),
        ({"data": empty}, f"ser-train: {empty}: no lines"),
        ({"run": foreign}, f"ser-train: {foreign}: not empty, and not the folder of a run"),
        ({"run": "/dev/null/run"}, "ser-train: /dev/null/run"),
        ({"device": "cuda:99"}, "ser-train: device: expected one that is there, got 'cuda:99'"),
        ({"model": "no\nwhere"}, "ser-train: no where: no such folder"),
        ({"videos": "nowhere"}, "ser-train: root: expected a folder, got 'nowhere'"),
        ({"reward": "gold"}, "ser-train: reward: expected a RewardConfig or one of ser, answer, got 'gold'"),
    )
    for changes, message in cases:
        arguments = [text for key, value in (good | changes).items() for text in (f"--{key}", str(value))]
        assert main(["grpo", *arguments]) == 2, message
        err = capsys.readouterr().err
        assert err.startswith(message)
        assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()
    for arguments, message in (
        (["gold"], "Unrecognized options: gold"),
        (["toy", "--num-steps", "many"], "--num-steps: invalid literal for int() with base 10: 'many'"),
        (["toy", "--num-stpes", "3"], "Unrecognized options: --num-stpes, 3"),
        (
            ["toy", "--loss.kl", "-1"],
            "clip_low, clip_high, kl: expected 0 <= clip_low < 1 and numbers >= 0, got 0.2, 0.2, -1.0",
        ),
        (["toy", "--temperature", "0"], "temperature: expected a number >= 0.01, got 0.0"),
        (["toy", "--seed", "1000000000000000"], "seed: expected a whole number in [0, 1000000000), got 1000000000000000"),
        (["toy", "--group-size", "1"], "group_size: expected at least 2, to compare within a group, got 1"),
        (["toy", "--num-warmup-steps", "-5"], "num_warmup_steps: expected a number >= 0, got -5"),
        (["toy", "--group-size", "0"], "group_size: expected a whole number > 0, got 0"),
        ([], "Expected one of {toy, grpo, sft, sft-toy}."),
    ):
        assert main(arguments) == 2
        assert capsys.readouterr().err.startswith(f"ser-train: {message}")


def test_a_video_that_cannot_be_read_is_counted_and_left_out(world: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (world / "questions.jsonl").read_text().splitlines()]
    names = sorted({line["video"] for line in lines})
    lines = [line for line in lines if line["id"].endswith("color")][:9]
    data = tmp_path / "questions.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in names:
        (broken / name).write_bytes((world / name).read_bytes() if name == names[0] else b"not a video")
    train(_config(world, tmp_path / "run", data=data, videos=broken, num_prompts=len(lines), num_steps=1))
    (row,) = _rows(tmp_path / "run")
    assert row["unreadable"] == sum(line["video"] != names[0] for line in lines) == 6
    assert row["not_valid"] == 0
    assert len(read_rollouts(tmp_path / "run" / "rollouts" / "step_0.jsonl")) == 4 * (len(lines) - row["unreadable"])
    (broken / names[0]).write_bytes(b"not a video either")
    with pytest.raises(InputError, match=r"^nothing could be scored since step 0: .*mp4: open: "):
        train(_config(world, tmp_path / "none", videos=broken, num_steps=1))


def test_a_window_beyond_the_video_is_counted_and_left_out(world: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (world / "questions.jsonl").read_text().splitlines()[:2]]
    lines[0] |= {"start": 50.0, "end": 60.0, "interval": None, "boxes": None}
    data = tmp_path / "questions.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    train(_config(world, tmp_path / "run", data=data, num_prompts=2, num_steps=1))
    (row,) = _rows(tmp_path / "run")
    assert row["unreadable"] == 1
    assert len(read_rollouts(tmp_path / "run" / "rollouts" / "step_0.jsonl")) == 4


def test_a_learning_rate_beyond_all_measure_is_named(world: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a smaller learning_rate may help|a smaller one may help"):
        train(_config(world, tmp_path / "run", learning_rate=1e30, num_steps=3))


def test_videos_of_held_out_questions_do_not_matter_without_them(world: Path, tmp_path: Path) -> None:
    train(_config(world, tmp_path / "run", held_out_videos=tmp_path / "nowhere", num_steps=1))
    assert "No such file" not in (tmp_path / "run" / "report" / "index.html").read_text()


def test_an_interrupt_ends_with_one_line(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(config: Grpo) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "train", interrupted)
    settings = {"model": POLICY, "data": world / "questions.jsonl", "videos": world, "referee": "toy", "run": tmp_path / "run"}
    assert main(["grpo", *(text for key, value in settings.items() for text in (f"--{key}", str(value)))]) == 130
    assert capsys.readouterr().err == "ser-train: interrupted\n"


def test_a_step_without_a_readable_video_is_passed_over(world: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (world / "questions.jsonl").read_text().splitlines()]
    one = next(line for line in lines if line["video"] == lines[0]["video"])
    other = next(line for line in lines if line["video"] != lines[0]["video"])
    data, videos = tmp_path / "questions.jsonl", tmp_path / "videos"
    data.write_text(json.dumps(one) + "\n" + json.dumps(other) + "\n")
    videos.mkdir()
    (videos / one["video"]).write_bytes((world / one["video"]).read_bytes())
    (videos / other["video"]).write_bytes(b"not a video")
    train(_config(world, tmp_path / "run", data=data, videos=videos, num_prompts=1, num_steps=4))
    rows = _rows(tmp_path / "run")
    assert sorted(row["unreadable"] for row in rows) == [0, 0, 1, 1]
    for row in rows:
        assert (row["reward"] is None) == (row["loss"] is None) == (row["not_valid"] is None) == bool(row["unreadable"])


class Failing:
    """A referee that is not there."""

    def score(self, requests: Sequence[RefereeRequest]) -> RefereeScores:
        num = len(requests)
        nan = torch.full((num,), torch.nan)
        return RefereeScores(
            relevance=nan,
            localization=nan,
            level_mass=nan,
            valid=torch.zeros(num, dtype=torch.bool),
            reasons=("referee: gone",) * num,
        )


def test_a_run_without_a_referee_does_not_end_as_if_it_had_learnt(world: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^nothing could be scored since step 0: .*referee: gone"):
        train(_config(world, tmp_path / "run", num_steps=9), referee=Failing())
    rows = _rows(tmp_path / "run")
    assert len(rows) == 4
    for row in rows:
        assert row["not_scored"] == 1
        assert row["relevance"] is None
        assert 0.5 < row["not_valid"] <= row["with_claims"]


def test_one_process_works_on_a_run(world: Path, tmp_path: Path) -> None:
    config = _config(world, tmp_path / "run", num_steps=1)
    with open_run(config), pytest.raises(InputError, match=r"run: another process works on this run"):
        train(config)
    with pytest.raises(InputError, match=r"run: another process works on this run"), open_run(config):
        train(dataclasses.replace(config, fresh=True))
    train(config)


def test_a_run_can_start_over(world: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(_config(world, run, num_steps=1))
    (run / "note").write_text("of the old run")
    train(_config(world, run, num_steps=1, group_size=3, fresh=True))
    assert not (run / "note").exists()
    assert len((run / "rollouts" / "step_0.jsonl").read_text().splitlines()) == 9
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("years of work")
    (foreign / "config.json").write_text("{}")  # as in any model folder
    with pytest.raises(InputError, match=r"foreign: not empty, and not the folder of a run"):
        train(_config(world, foreign, fresh=True))
    assert (foreign / "thesis.tex").exists()
    (foreign / "run.json").write_text('{"scripts": {}}')
    with pytest.raises(InputError, match=r"run\.json: not what a run writes"):
        train(_config(world, foreign, fresh=True))
    for name, value in (("model", run / "model"), ("videos", run), ("data", run / "questions.jsonl")):
        if name == "data":
            value.write_bytes((world / "questions.jsonl").read_bytes())
        with pytest.raises(InputError, match=rf"{name}: expected (another folder than|it outside of)"):
            train(
                _config(world, run, num_steps=1, group_size=3, fresh=True, **{name: str(value) if name == "model" else value})
            )
    (tmp_path / "link").symlink_to(run)
    with pytest.raises(InputError, match=r"link: a link, and a fresh start removes no links"):
        train(_config(world, tmp_path / "link", fresh=True))
    assert (run / "model" / "config.json").exists()


def test_a_run_can_be_looked_at_before_it_begins(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"model": "toy", "data": world / "questions.jsonl", "videos": world, "referee": "toy", "run": tmp_path / "run"}
    arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    assert main(["grpo", *arguments, "--fps", "1", "--max-frames", "6", "--show-prompt"]) == 0
    prompt = capsys.readouterr().out
    assert prompt.startswith("boxes are written in pixels of the frame as you see it\n<|im_start|>system\nYou answer questions")
    assert prompt.count("<image>") == 6
    assert main(["grpo", *arguments, "--fps", "1", "--max-frames", "6", "--max-new-tokens", "100", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert '"group_size": 8' in said
    lengths = [int(n) for n in re.findall(r"tokens of a prompt: (\d+) on average, (\d+) at most", said)[0]]
    total = int(re.findall(r"tokens of a step, at most: (\d+)", said)[0])
    assert 54 < lengths[0] <= lengths[1]
    assert abs(total - 8 * lengths[0] - 8 * 8 * 100) <= 4
    assert not (tmp_path / "run").exists()


def test_another_run_is_not_mixed_in(world: Path, tmp_path: Path) -> None:
    train(_config(world, tmp_path / "run", num_steps=1))
    with pytest.raises(InputError, match=r"run: a run with group_size 4, expected 3"):
        train(_config(world, tmp_path / "run", group_size=3))
    train(_config(world, tmp_path / "run", num_steps=2))
    assert len(_rows(tmp_path / "run")) == 2
    with pytest.raises(InputError, match=r"num_steps: the run has come to step 2 already, expected as many, got 1"):
        train(_config(world, tmp_path / "run", num_steps=1))


def test_a_question_asked_twice_in_a_step_makes_two_groups(world: Path, tmp_path: Path) -> None:
    data = tmp_path / "questions.jsonl"
    data.write_text("".join((world / "questions.jsonl").read_text().splitlines(keepends=True)[:2]))
    first, second = (json.loads(line) for line in data.read_text().splitlines())
    data.write_text("".join(json.dumps(line) + "\n" for line in (first | {"id": "a"}, second | {"id": "a~1"})))
    train(_config(world, tmp_path / "run", data=data, num_prompts=4, num_steps=1))
    rollouts = read_rollouts(tmp_path / "run" / "rollouts" / "step_0.jsonl")
    assert len({rollout.id for rollout in rollouts}) == 16
    assert {rollout.group for rollout in rollouts} == {"a", "a~1", "a~2", "a~1~1"}
    data.write_text(data.read_text() * 2)
    for changes in ({"data": data}, {"held_out": data}):
        with pytest.raises(InputError, match=rf"{next(iter(changes))}: two questions have the id "):
            train(_config(world, tmp_path / "other", **changes))
    assert not (tmp_path / "other").exists()


def test_what_is_broken_in_a_run_is_named(world: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(_config(world, run, num_steps=1))
    (run / "checkpoint-best").mkdir()
    (run / "checkpoint-best" / "state.pt").write_bytes(b"another program's")
    train(_config(world, run, num_steps=1))
    state = run / "checkpoint-000001" / "state.pt"
    state.write_bytes(state.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"state\.pt: cannot be read"):
        train(_config(world, run, num_steps=1))
    for junk in (b"", b"hello world\n" * 50):
        state.write_bytes(junk)
        with pytest.raises(InputError, match=r"state\.pt: cannot be read: \w+Error"):
            train(_config(world, run, num_steps=1))
    for states, message in (
        ([1, 2], r"expected states by name, got list"),
        ({"step": 1}, r"not of this model and optimizer: KeyError: 'model'"),
        ({"model": {"w": torch.ones(2)}, "optimizer": {}}, r"not of this model and optimizer: RuntimeError"),
    ):
        torch.save(states, state)
        with pytest.raises(InputError, match=rf"state\.pt: {message}"):
            train(_config(world, run, num_steps=1))
    shutil.rmtree(state.parent)
    lines = (run / "metrics.jsonl").read_text()
    for junk_line, message in (("junk\n", "not JSON"), ("[1]\n", r"expected a JSON object, got '\[1\]'")):
        (run / "metrics.jsonl").write_text(lines + junk_line)
        with pytest.raises(InputError, match=rf"metrics\.jsonl:2: {message}"):
            train(_config(world, run, num_steps=1))
    (run / "run.json").write_text("{")
    with pytest.raises(InputError, match=r"run\.json: not what a run writes"):
        train(_config(world, run, num_steps=1))


def test_the_toy_world_writes_over_nothing_of_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.jsonl"
    mine.write_text("mine\n")
    for options in (
        ["--data", str(mine), "--videos", str(tmp_path)],
        ["--videos", str(tmp_path / "v"), "--data", str(tmp_path / "v" / "questions.jsonl"), "--held-out", str(mine)],
    ):
        assert main(["toy", "--num-clips", "1", "--num-held-out", "1", *options, "--show-prompt"]) == 2
        assert ": the toy world writes it, expected " in capsys.readouterr().err
    (tmp_path / "questions.jsonl").write_text("mine\n")
    with pytest.raises(InputError, match="holds other questions than those of the toy world"):
        write_split(tmp_path, split="train", seed=0, num_clips=1)
    assert (tmp_path / "questions.jsonl").read_text() == mine.read_text() == "mine\n"
