"""Ops at the sizes users have them. Each case checks its result against the reference before it is timed.

make bench            or: pytest bench/test_ops.py --benchmark-autosave
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from ser_fast.ops import (
    PatchSpec,
    box_iou,
    crop_patchify,
    crop_resize,
    evidence_reward,
    group_advantage,
    interval_iou,
    temporal_penalty,
    token_logprob,
)
from ser_fast.types import Segments

NUM_RESPONSES = 2048
FRAME_HW = (720, 1280)
NUM_BOXES = 64


def _crops() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """64 boxes of a 1280 x 720 frame, sides log-uniform from 24 to 700 pixels."""
    rng = random.Random(0)
    height, width = FRAME_HW
    boxes = []
    for _ in range(NUM_BOXES):
        h, w = (round(24 * (700 / 24) ** rng.random()) for _ in range(2))
        x, y = rng.randint(0, width - w), rng.randint(0, height - h)
        boxes.append([x, y, x + w, y + h])
    frames = torch.randint(256, (1, height, width, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return frames, torch.zeros(NUM_BOXES, dtype=torch.int64), torch.tensor(boxes)


def _ragged(width: int) -> tuple[torch.Tensor, torch.Tensor, tuple[Segments, Segments]]:
    """0 to 8 claims against 0 to 8 truths in each of 2,048 responses."""
    rng = random.Random(0)
    segments = tuple(Segments.from_lengths(rng.randint(0, 8) for _ in range(NUM_RESPONSES)) for _ in range(2))
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.rand(s.num_rows, 2, width // 2, generator=generator).sort(dim=1).values.flatten(1) for s in segments)
    return a, b, (segments[0], segments[1])


def _claims() -> tuple[torch.Tensor, Segments]:
    segments = Segments.from_lengths(random.Random(0).randint(0, 8) for _ in range(NUM_RESPONSES))
    return torch.rand(3, segments.num_rows, generator=torch.Generator().manual_seed(0)), segments


def _crop_patchify() -> Callable[..., torch.Tensor]:
    frames, frame_idx, boxes = _crops()
    spec = PatchSpec()
    sizes = [spec.fit(y2 - y1, x2 - x1, max_pixels=448 * 448) for x1, y1, x2, y2 in boxes.tolist()]
    rows = sum(math.prod(spec.grid(*size)) for size in sizes)
    out = torch.empty(rows, spec.row_size)
    return lambda **k: crop_patchify(frames, frame_idx, boxes, sizes=sizes, spec=spec, out=out, **k)[0]


def _crop_resize() -> Callable[..., torch.Tensor]:
    arguments = _crops()
    return lambda **k: crop_resize(*arguments, out_hw=(224, 224), **k)


def _box_iou() -> Callable[..., torch.Tensor]:
    a, b, segments = _ragged(4)
    return lambda **k: box_iou(a, b, segments=segments, **k)


def _interval_iou() -> Callable[..., torch.Tensor]:
    a, b, segments = _ragged(2)
    return lambda **k: interval_iou(a, b, segments=segments, **k)  # type: ignore[return-value]


def _interval_iou_of_unions() -> Callable[..., torch.Tensor]:
    a, b, segments = _ragged(2)
    return lambda **k: torch.stack(interval_iou(a, b, segments=segments, union=True, **k))  # type: ignore[arg-type]


def _temporal_penalty() -> Callable[..., torch.Tensor]:
    scores, segments = _claims()
    frames = torch.linspace(0, 60, 16, dtype=torch.float64).repeat(NUM_RESPONSES), Segments.from_lengths([16] * NUM_RESPONSES)
    options = {"segments": segments, "duration": torch.full((NUM_RESPONSES,), 60.0), "frame_times": frames}
    return lambda **k: temporal_penalty(scores[0] * 60, mode="snap", **options, **k)  # type: ignore[arg-type]


def _evidence_reward() -> Callable[..., torch.Tensor]:
    scores, segments = _claims()
    valid = torch.ones(segments.num_rows, dtype=torch.bool)
    return lambda **k: evidence_reward(*scores, valid, segments, **k).reward


def _group_advantage() -> Callable[..., torch.Tensor]:
    rewards = torch.rand(NUM_RESPONSES, generator=torch.Generator().manual_seed(0))
    segments = Segments.from_lengths([8] * (NUM_RESPONSES // 8))
    return lambda **k: group_advantage(rewards, segments, **k)


def _token_logprob() -> Callable[..., torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(256, 256, generator=generator), torch.randn(32_768, 256, generator=generator) / 16
    target = torch.randint(32_768, (256,), generator=generator)
    return lambda **k: torch.stack(token_logprob(hidden, weight, target, **k))


WORKLOADS = {
    "crop_patchify": _crop_patchify,
    "crop_resize": _crop_resize,
    "box_iou": _box_iou,
    "interval_iou": _interval_iou,
    "interval_iou_of_unions": _interval_iou_of_unions,
    "temporal_penalty": _temporal_penalty,
    "evidence_reward": _evidence_reward,
    "group_advantage": _group_advantage,
    "token_logprob": _token_logprob,
}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_op(workload: str, benchmark: BenchmarkFixture) -> None:
    run = WORKLOADS[workload]()
    expected = run(backend="reference").clone()
    assert torch.equal(run(), expected)
    benchmark.extra_info["threads"] = torch.get_num_threads()
    benchmark(run)
