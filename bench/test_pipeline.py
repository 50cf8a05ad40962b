"""The reward step: score_rollouts with a referee that answers at once, and the referee itself, packed and one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from ser_fast.pipeline import score_rollouts
from ser_fast.referee import VLMReferee, prompt
from ser_fast.testing import byte_tokenizer, moving_square, write_clip, write_random_vlm
from ser_fast.types import Clip, CoordSpace, Question, RefereeRequest, RefereeScores, Rollout, Sampling, Task
from ser_fast.video import MediaFolder

GROUP_SIZE, CLAIMS_A_RESPONSE, NUM_FRAMES = 8, 4, 4


class InstantReferee:
    """Believes everything at once: what is left is the cost of the pipeline."""

    def score(self, requests: Sequence[RefereeRequest]) -> RefereeScores:
        ones = torch.ones(len(requests))
        valid = torch.ones(len(requests), dtype=torch.bool)
        return RefereeScores(relevance=ones, localization=ones, level_mass=ones, valid=valid, reasons=(None,) * len(requests))


def _rollouts() -> list[Rollout]:
    """One prompt, a group of eight, four claims each, on four frames."""
    rng = random.Random(0)
    claims = [
        f"<obj>red square</obj><box>[{x},{y},{x + 200},{y + 200}]</box>at<t>{rng.randrange(NUM_FRAMES)}.0</t>s"
        for x, y in ((rng.randrange(800), rng.randrange(800)) for _ in range(GROUP_SIZE * CLAIMS_A_RESPONSE))
    ]
    question = Question(id="q", question="What moves?", answer="a red square", task=Task.FREE_FORM, video="clip.mp4")
    return [
        Rollout(
            question=question,
            group="q",
            completion=f"<think>{' '.join(claims[i::GROUP_SIZE])}</think><answer>a red square</answer>",
            coord_space=CoordSpace(kind="norm1000"),
            sampling=Sampling(fps=1.0),
        )
        for i in range(GROUP_SIZE)
    ]


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("videos")
    write_clip(root / "clip.mp4", moving_square(4 * 30, height=360, width=640)[0])
    return root


def test_score_rollouts_from_file(videos: Path, benchmark: BenchmarkFixture) -> None:
    """Opening, indexing and decoding the video included."""
    rollouts = _rollouts()

    def run() -> torch.Tensor:
        return score_rollouts(rollouts, clips=MediaFolder(videos), referee=InstantReferee()).table.total

    assert torch.allclose(run(), torch.full((GROUP_SIZE,), 3.0))
    benchmark(run)


def test_score_rollouts_decoded(videos: Path, benchmark: BenchmarkFixture) -> None:
    """As in training: the policy's frames are there already."""
    rollouts = _rollouts()
    clip, _ = MediaFolder(videos).load(rollouts[0].question, [0.0, 1.0, 2.0, 3.0])
    clips = {"clip.mp4": clip}

    def run() -> torch.Tensor:
        return score_rollouts(rollouts, clips=clips, referee=InstantReferee()).table.total

    assert torch.allclose(run(), torch.full((GROUP_SIZE,), 3.0))
    benchmark(run)


@pytest.mark.parametrize("way", ["packed", "one_by_one"])
def test_referee(way: str, tmp_path: Path, benchmark: BenchmarkFixture) -> None:
    """32 claims on four frames of 448 x 448 by a small random model; the same scores either way."""
    texts = [prompt.SYSTEM, prompt.ROOT, prompt.CLAIM, prompt.RELEVANCE, prompt.LOCALIZATION]
    tokenizer = byte_tokenizer(corpus=texts)  # about a token a word, as real ones have
    size = {"hidden_size": 256, "num_layers": 6, "vision_size": 128, "vision_layers": 4}
    referee = VLMReferee(write_random_vlm(tmp_path / "model", tokenizer=tokenizer, **size))  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    clip = Clip(
        frames=torch.randint(256, (NUM_FRAMES, 448, 448, 3), dtype=torch.uint8, generator=generator),
        times=torch.arange(NUM_FRAMES, dtype=torch.float64),
        start_s=0.0,
        duration=float(NUM_FRAMES),
        source="noise",
        decoded_by="bench",
    )
    rng = random.Random(0)
    corners = [(rng.uniform(0, 248), rng.uniform(0, 248)) for _ in range(GROUP_SIZE * CLAIMS_A_RESPONSE)]
    requests = [
        RefereeRequest(
            clip=clip,
            frame_idx=i % NUM_FRAMES,
            boxes=((x, y, x + 160, y + 160),),
            name="a red square on the left",
            time_s=float(i % NUM_FRAMES),
            question="What moves?",
            answer="a red square",
        )
        for i, (x, y) in enumerate(corners)
    ]
    packed, alone = referee.score(requests), referee.score_unpacked(requests)
    torch.testing.assert_close(packed.relevance, alone.relevance, atol=1e-5, rtol=0)
    torch.testing.assert_close(packed.localization, alone.localization, atol=1e-5, rtol=0)
    tokens = [tree.num_tokens for tree in referee.prompts.trees(requests)]
    benchmark.extra_info["tokens"] = sum(tokens)
    benchmark.pedantic(referee.score if way == "packed" else referee.score_unpacked, args=(requests,), rounds=3)
