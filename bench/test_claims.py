"""Parsing: strings in, claim tables out."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ser_fast.claims import parse_claims
from ser_fast.types import CoordSpace

CLAIM = "<obj>a woman in a light coat</obj><box>[362,116,466,338]</box>at<t>9.0</t>s"
PROSE = "walks to the table, looks at the people around her, reaches for the cup and puts it down again "
COMPLETIONS = {
    "no_claims": f"<think>{PROSE * 5}</think><answer>B</answer>",
    "claims_per_step": f"<think>{(CLAIM + ' ' + PROSE) * 4}</think><answer>B</answer>",
    "dense_rollout": f"<think>{CLAIM * 30}</think><answer>B</answer>",
    "hostile": "<obj>a</obj><box>[1,2" * 200,
}
NUM_TEXTS = 2048


@pytest.mark.parametrize("kind", COMPLETIONS)
def test_parse(kind: str, benchmark: BenchmarkFixture) -> None:
    texts = [COMPLETIONS[kind]] * NUM_TEXTS
    options = {"coord_space": CoordSpace(kind="norm1000"), "frame_hw": (360, 640), "duration_s": 18.0}
    claims, _ = parse_claims(texts, **options)  # type: ignore[arg-type]
    assert claims.responses.lengths == (COMPLETIONS[kind].count(CLAIM),) * NUM_TEXTS
    benchmark.extra_info["bytes"] = len(texts[0]) * NUM_TEXTS
    benchmark(parse_claims, texts, **options)
