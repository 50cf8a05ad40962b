"""What the referee is shown, against numbers worked out by hand."""

from __future__ import annotations

import dataclasses

import pytest

from ser_fast.ops import PatchSpec
from ser_fast.referee import RefereeConfig
from ser_fast.referee.loading import PromptTokens
from ser_fast.referee.prompt import PromptBuilder, crop_box
from ser_fast.types import BoxConvention, RefereeRequest
from tests.support.referee import make_clip

FRAME = (480, 640)
CONFIG = RefereeConfig()


@pytest.mark.parametrize(
    ("boxes", "expected"),
    [
        ([(200, 100, 400, 250)], (180, 85, 420, 265)),  # 10 % of 200 x 150 on each side
        ([(200, 100, 240, 250)], (190, 85, 250, 265)),  # at least 10 px
        ([(200, 100, 300, 150), (350, 90, 400, 200)], (180, 79, 420, 211)),  # the hull
        ([(350, 90, 400, 200), (200, 100, 300, 150)], (180, 79, 420, 211)),  # in any order
        ([(200.5, 100.5, 300.5, 200.5)], (190, 90, 311, 211)),  # outwards to whole pixels
        ([(0, 0, 640, 480)], (0, 0, 640, 480)),  # inside the frame
        ([(600, 470, 640, 480)], (590, 460, 640, 480)),
        ([(320, 0, 321, 480)], (302, 0, 339, 480)),  # 21 x 576 with margins: widened to 576 / 16 = 36
        ([(0, 240, 640, 241)], (0, 216, 640, 265)),  # 768 x 21 with margins: to 48 high
    ],
)
def test_crop_box(boxes: list[tuple[float, float, float, float]], expected: tuple[int, int, int, int]) -> None:
    assert crop_box(boxes, FRAME, CONFIG) == expected


def _builder(convention: BoxConvention = "pixels", **config: object) -> PromptBuilder:
    tokens = PromptTokens(
        encode=lambda text: [ord(c) for c in text], header=(1,), trailer=(2,), image_start=3, image=4, image_end=5
    )
    spec = PatchSpec(min_pixels=28 * 28, max_pixels=1280 * 28 * 28)
    return PromptBuilder(tokens=tokens, spec=spec, convention=convention, config=RefereeConfig(**config))  # type: ignore[arg-type]


def _request(**changes: object) -> RefereeRequest:
    fields = {
        "clip": make_clip(height=480, width=640),
        "frame_idx": 0,
        "boxes": ((200.0, 100.0, 400.0, 250.0),),
        "name": "cat",
        "time_s": 1.25,
        "question": "what?",
        "answer": "a cat",
    }
    return RefereeRequest(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("box", "config", "size"),
    [
        ((200.0, 100.0, 400.0, 250.0), {}, (168, 252)),  # 240 x 180 px, to multiples of 28 (180 / 28 = 6.4, 240 / 28 = 8.6)
        ((300.0, 200.0, 320.0, 220.0), {}, (112, 112)),  # 40 x 40 px: enlarged until the shorter side has 112
        ((300.0, 200.0, 340.0, 220.0), {}, (112, 168)),  # 60 x 40 px
        ((300.0, 200.0, 320.0, 240.0), {}, (168, 112)),  # 40 x 60 px
        ((0.0, 0.0, 640.0, 480.0), {"max_crop_pixels": 64 * 28 * 28}, (168, 252)),  # at most 64 tokens
    ],
)
def test_size_of_the_crop(box: tuple[float, float, float, float], config: dict[str, int], size: tuple[int, int]) -> None:
    _, view = _builder(**config).branch(_request(boxes=(box,)))
    assert view.size == size
    assert size[0] * size[1] <= RefereeConfig(**config).max_crop_pixels


def test_size_of_the_frame() -> None:
    _, (view,) = _builder().root(_request())
    assert (view.box, view.size) == ((0, 0, 640, 480), (476, 644))
    _, (view,) = _builder(max_frame_pixels=64 * 28 * 28).root(_request())
    assert view.size == (168, 252)


@pytest.mark.parametrize(("convention", "unit"), [("pixels", "pixels"), ("norm1000", "thousandths of the frame")])
def test_words(convention: BoxConvention, unit: str) -> None:
    (claim, relevance, localization), _ = _builder(convention, levels=7).branch(_request(boxes=((200.0, 100.0, 420.0, 250.0),)))
    text = _text(claim)
    assert text.startswith("Cited evidence: cat\n")
    box = "[201, 99, 423, 248]" if convention == "pixels" else "[312, 208, 656, 521]"  # the frame is seen as 476 x 644
    assert f"At 1.25 s, in the box {box} (x1, y1, x2, y2 in {unit}), enlarged:\n" in text
    assert _text(relevance) == "Does the answer depend on this evidence? Rate it from 0 (unrelated) to 6 (entirely)."
    assert _text(localization) == "Does the box hold this evidence? Rate it from 0 (not at all) to 6 (whole and tight)."


def _text(segment: object) -> str:
    return "".join(chr(i) for i in segment.ids if i > 5)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "num_trees"),
    [
        ({}, 1),
        ({"name": "dog"}, 1),
        ({"time_s": 9.0}, 1),
        ({"frame_idx": 1}, 2),
        ({"question": "why?"}, 2),
        ({"answer": "a dog"}, 2),
        ({"clip": make_clip(height=480, width=640)}, 2),
    ],
)
def test_claims_share_a_tree_only_if_they_share_all_of_its_root(change: dict[str, object], num_trees: int) -> None:
    first = _request()
    second = dataclasses.replace(first, **change)
    trees = _builder().trees([first, second])
    assert len(trees) == num_trees
    for tree in trees:
        assert [_text(tree.segments[leaf]) for leaf in tree.leaves[0]] == [_text(s) for s in _builder().branch(first)[0][1:]]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"levels": 11}, "levels: expected 2 to 10, got 11"),
        ({"levels": 2.5}, "levels: expected 2 to 10, got 2.5"),
        ({"crop_margin": -0.1}, "crop_margin: expected a number >= 0, got -0.1"),
        ({"max_crop_ratio": 0.0}, "max_crop_ratio: expected a number >= 1, got 0.0"),
        ({"max_crop_pixels": 0}, "max_crop_pixels: expected a whole number > 0, got 0"),
        ({"max_batch_tokens": -5}, "max_batch_tokens: expected a whole number > 0, got -5"),
    ],
)
def test_settings_that_make_no_sense(setting: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RefereeConfig(**setting)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"boxes": ()}, "boxes: expected non-empty ones inside a frame of 480 x 640, got"),
        ({"boxes": ((0.0, 0.0, float("nan"), 9.0),)}, "boxes: expected non-empty ones inside"),
        ({"boxes": ((0.0, 0.0, 641.0, 9.0),)}, "boxes: expected non-empty ones inside"),
        ({"frame_idx": 4}, "frame_idx: expected 0 <= index < 4, got 4"),
    ],
)
def test_requests_that_make_no_sense(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _request(**change)
