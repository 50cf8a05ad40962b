"""Progress as lines: the first step, now and then, the last; with what is left."""

from __future__ import annotations

import pytest

from trainer import progress
from trainer.progress import Progress


def test_lines_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(0, 10_000, 6))
    monkeypatch.setattr(progress.time, "perf_counter", lambda: float(next(seconds)))
    with Progress(bars=False) as tell:
        for step in range(5, 31):
            tell("grpo", step, 31, reward=step / 10, relevance=None)
        tell("next", 0, 1, 0.25)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "grpo: step 6 of 31, reward 0.500, begun"
    assert lines[1] == "grpo: step 10 of 31, reward 0.900, 2 min left", "24 s later, six a step"
    assert lines[-2] == "grpo: step 31 of 31, reward 3.000, 0 min left"
    assert lines[-1] == "next: step 1 of 1, loss 0.250, begun"
    assert len(lines) == 9
