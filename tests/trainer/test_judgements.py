"""Batches for the toy referee."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from ser_fast.referee import RefereeConfig, VLMReferee
from trainer.toy.files import write_split
from trainer.toy.judgements import Judgements, claims_on, soft_levels
from trainer.toy.lessons import seen_clip
from trainer.toy.world import Scene


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Scene]]:
    folder = tmp_path_factory.mktemp("clips")
    return folder, write_split(folder, split="train", seed=0, num_clips=3)


def _judged(folder: Path, scenes: list[Scene], step: int, num_questions: int, num_claims: int) -> list:
    rng = random.Random(f"7/{step}")
    judged = []
    for _ in range(num_questions):
        scene = scenes[rng.randrange(len(scenes))]
        judged += claims_on(scene, seen_clip(folder, scene), rng, num_claims)
    return judged


def test_the_loss_is_that_of_claims_put_one_by_one(tiny_folder: Path, clips: tuple[Path, list[Scene]]) -> None:
    folder, scenes = clips
    referee = VLMReferee(tiny_folder)
    loss = Judgements(referee, folder, scenes, seed=7, num_questions=3, num_claims=2).loss_at(4)
    alone = []
    for judged in _judged(folder, scenes, 4, 3, 2):
        logprob = referee.level_logprob(referee.prompts.trees([judged.request]))
        alone.append(-(soft_levels(torch.tensor([judged.relevance, judged.localization]), 5) * logprob).sum(-1).mean())
    torch.testing.assert_close(loss, torch.stack(alone).mean(), atol=1e-5, rtol=0)


def test_blind_lessons_are_about_relevance_in_the_smallest_images(tiny_folder: Path, clips: tuple[Path, list[Scene]]) -> None:
    folder, scenes = clips
    referee = VLMReferee(tiny_folder)
    loss = Judgements(referee, folder, scenes, seed=7, num_questions=3, num_claims=2, blind=True).loss_at(4)
    small = VLMReferee(tiny_folder, config=RefereeConfig(max_frame_pixels=28 * 28, max_crop_pixels=28 * 28))
    alone = []
    for judged in _judged(folder, scenes, 4, 3, 2):
        (tree,) = small.prompts.trees([judged.request])
        assert [len(views) for views in tree.views] == [1, 1, 0, 0]
        frame, crop = (small.spec.num_tokens(*views[0].size) for views in tree.views[:2])
        assert frame == 1
        assert crop <= 3, "a thin crop is a few tokens long"
        logprob = small.level_logprob([tree])[0, 0]
        alone.append(-(soft_levels(torch.tensor(judged.relevance), 5) * logprob).sum())
    torch.testing.assert_close(loss, torch.stack(alone).mean(), atol=1e-5, rtol=0)


def test_a_step_is_a_function_of_its_number(tiny_folder: Path, clips: tuple[Path, list[Scene]]) -> None:
    folder, scenes = clips
    judgements = Judgements(VLMReferee(tiny_folder), folder, scenes, seed=7, num_questions=2, num_claims=1)
    assert judgements.loss_at(3).item() == judgements.loss_at(3).item() != judgements.loss_at(4).item()
