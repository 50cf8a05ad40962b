"""The recipe of the toy models, a step or two of each stage on a dozen clips."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ser_fast.errors import InputError
from ser_fast.referee import VLMReferee
from trainer.policy import Policy
from trainer.toy import recipe
from trainer.toy.build import main
from trainer.toy.files import write_split


def _short(stage: recipe.Stage) -> recipe.Stage:
    lessons = {name: min(value, 2) if isinstance(value, int) else value for name, value in stage.lessons.items()}
    return dataclasses.replace(stage, lessons=lessons, steps=_few(stage.steps))


def _few(steps: recipe.SupervisedConfig) -> recipe.SupervisedConfig:
    return dataclasses.replace(steps, num_steps=2)


def test_all_stages_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy_stages = tuple(map(_short, recipe.POLICY_STAGES))
    monkeypatch.setattr(recipe, "POLICY_STAGES", policy_stages)
    monkeypatch.setattr(recipe, "SEEING", policy_stages[0])
    monkeypatch.setattr(recipe, "REFEREE_STAGES", tuple(map(_short, recipe.REFEREE_STAGES)))
    monkeypatch.setattr(recipe, "SIGHT_STEPS", _few(recipe.SIGHT_STEPS))
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


def test_a_model_alone_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recipe, "NUM_TRAIN", 2)
    monkeypatch.setattr(recipe, "NUM_HELD_OUT", 2)
    assert main(["--work", str(tmp_path), "--only", "referee"]) == 2
    assert "few-frames, which is not there yet" in capsys.readouterr().err
