"""Requests for referees, and a referee without a model."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch

from ser_fast.types import Box, Clip, RefereeRequest, RefereeScores


def make_clip(num_frames: int = 4, *, height: int = 96, width: int = 130, fps: float = 1.0, source: str = "clip") -> Clip:
    """A clip of noise."""
    generator = torch.Generator().manual_seed(height * width)
    return Clip(
        frames=torch.randint(256, (num_frames, height, width, 3), dtype=torch.uint8, generator=generator),
        times=torch.arange(num_frames, dtype=torch.float64) / fps,
        start_s=0.0,
        duration=num_frames / fps,
        source=source,
        decoded_by="test",
    )


def make_requests(clip: Clip, num: int, *, frames: Sequence[int] = (0, 1), seed: int = 0) -> list[RefereeRequest]:
    """Claims of one to three boxes and names of uneven length, spread over frames of a clip."""
    rng = random.Random(seed)
    height, width = clip.frame_hw

    def box() -> Box:
        x, y = rng.uniform(0, width - 40), rng.uniform(0, height - 40)
        return x, y, x + rng.uniform(10, 40), y + rng.uniform(10, 40)

    return [
        RefereeRequest(
            clip=clip,
            frame_idx=frames[i % len(frames)],
            boxes=tuple(box() for _ in range(1 + i % 3)),
            name=" ".join(["thing"] * (1 + i % 4)) + str(i),
            time_s=i / 3,
            question="what is it?",
            answer="a cat",
        )
        for i in range(num)
    ]


class FakeReferee:
    """Scores by a function of the request; remembers what it was asked."""

    def __init__(self, score: Callable[[RefereeRequest], tuple[float, float]] = lambda _: (1.0, 1.0)) -> None:
        self._score = score
        self.requests: list[RefereeRequest] = []

    def score(self, requests: Sequence[RefereeRequest]) -> RefereeScores:
        self.requests += requests
        scores = torch.tensor([self._score(request) for request in requests]).reshape(-1, 2)
        valid = scores.isfinite().all(1)
        return RefereeScores(
            relevance=scores[:, 0],
            localization=scores[:, 1],
            level_mass=torch.ones(len(requests)),
            valid=valid,
            reasons=tuple(None if ok else "made to fail" for ok in valid.tolist()),
        )
