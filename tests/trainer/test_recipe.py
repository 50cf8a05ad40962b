"""The recipe of the toy models, a step or two of each stage on a dozen clips."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ser_fast.errors import InputError
from ser_fast.referee import VLMReferee
from trainer.policy import Policy
from trainer.toy import recipe
from trainer.toy.build import main
from trainer.toy.files import write_split

STOPPED = """
import runpy, subprocess, sys
from trainer.toy import recipe

class Popen(subprocess.Popen):
    def __init__(self, command):
        super().__init__([sys.executable, "-c", "import time; time.sleep(600)"])
        print(self.pid, flush=True)

recipe.NUM_TRAIN = recipe.NUM_HELD_OUT = 1
subprocess.Popen = Popen
sys.argv = ["build", "--work", sys.argv[1]]
runpy.run_module("trainer.toy.build", run_name="__main__")
"""
"""The build with a child that only sleeps; prints its number."""


def _short(stage: recipe.Stage) -> recipe.Stage:
    lessons = {name: min(value, 2) if isinstance(value, int) else value for name, value in stage.lessons.items()}
    return dataclasses.replace(stage, lessons=lessons, steps=dataclasses.replace(stage.steps, num_steps=2))


def test_all_stages_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy_stages = tuple(map(_short, recipe.POLICY_STAGES))
    monkeypatch.setattr(recipe, "POLICY_STAGES", policy_stages)
    monkeypatch.setattr(recipe, "SEEING", policy_stages[0])
    monkeypatch.setattr(recipe, "REFEREE_STAGES", tuple(map(_short, recipe.REFEREE_STAGES)))
    monkeypatch.setattr(recipe, "SIGHT", _short(recipe.SIGHT))
    scenes = write_split(tmp_path / "train", split="train", seed=0, num_clips=12)
    told: list[tuple[str, int]] = []

    def on_step(stage: str, step: int, num_steps: int, loss: float) -> None:
        assert num_steps == 2
        assert loss == pytest.approx(loss), "a number"
        told.append((stage, step))

    with pytest.raises(InputError, match="the referee goes on from a stage of the policy, few-frames, which is not there yet"):
        recipe.make_referee(tmp_path, scenes, on_step=on_step)
    policy = recipe.make_policy(tmp_path, scenes, on_step=on_step)
    assert recipe.can_make_referee(tmp_path)
    referee = recipe.make_referee(tmp_path, scenes, on_step=on_step)
    stages = ("sight", "policy few-frames", "policy exact", "policy loose", "referee words", "referee claims")
    assert told == [(stage, step) for stage in stages for step in (0, 1)]
    Policy.load(policy)
    VLMReferee(referee)
    told.clear()
    recipe.make_policy(tmp_path, scenes, on_step=on_step)
    assert told == [], "what is done is not done again"
    changed = dataclasses.replace(recipe.REFEREE_STAGES[1], lessons={"num_questions": 1, "num_claims": 1})
    monkeypatch.setattr(recipe, "REFEREE_STAGES", (recipe.REFEREE_STAGES[0], changed))
    with pytest.raises(
        InputError, match=r"referee-claims: a run with stage .*'num_questions': 2.*, expected .*'num_questions': 1"
    ):
        recipe.make_referee(tmp_path, scenes, on_step=on_step)
    assert told == [], "a stage does not go on under another recipe"


def test_a_stopped_build_leaves_no_child(tmp_path: Path) -> None:
    build = subprocess.Popen([sys.executable, "-c", STOPPED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert build.stdout is not None
    build.stdout.readline()  # of the videos
    child = int(build.stdout.readline())
    build.terminate()
    assert build.wait(60) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_a_model_alone_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recipe, "NUM_TRAIN", 2)
    monkeypatch.setattr(recipe, "NUM_HELD_OUT", 2)
    assert main(["--work", str(tmp_path), "--only", "referee"]) == 2
    assert "few-frames, which is not there yet" in capsys.readouterr().err
