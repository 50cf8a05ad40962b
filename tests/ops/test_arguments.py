"""What holds for all ops: one device, gradients only where they are stated, no surprise from autocast or compile."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

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

FLAGS = torch.ones(3, dtype=torch.bool)
IDS = torch.zeros(3, dtype=torch.int64)
META = torch.device("meta")


def _segments(*lengths: int) -> Segments:
    return Segments.from_lengths(lengths)


def _penalty(time_s: torch.Tensor, mode: str = "snap", **tables: Any) -> torch.Tensor:
    arguments = {"duration": torch.tensor([5.0]), "segments": _segments(len(time_s))} | tables
    return temporal_penalty(time_s, mode=mode, **arguments)


ELSEWHERE: dict[str, tuple[Callable[[], Any], str]] = {
    "advantage": (lambda: group_advantage(torch.rand(3), _segments(3), FLAGS.to(META)), "valid"),
    "localization": (
        lambda: evidence_reward(torch.rand(3), torch.rand(3, device=META), torch.rand(3), FLAGS, _segments(3)),
        "localization",
    ),
    "penalty": (
        lambda: evidence_reward(torch.rand(3), torch.rand(3), torch.rand(3, device=META), FLAGS, _segments(3)),
        "penalty",
    ),
    "claim flags": (lambda: evidence_reward(*torch.rand(3, 3), FLAGS.to(META), _segments(3)), "valid"),
    "rejected": (
        lambda: evidence_reward(*torch.rand(3, 3), FLAGS, _segments(3), num_rejected=IDS[:1].to(META)),
        "num_rejected",
    ),
    "duration": (
        lambda: _penalty(torch.rand(3), duration=torch.rand(1, device=META), frame_times=(torch.rand(2), _segments(2))),
        "duration",
    ),
    "frames": (lambda: _penalty(torch.rand(3), frame_times=(torch.rand(2, device=META), _segments(2))), r"frame_times\[0\]"),
    "boxes": (lambda: box_iou(torch.rand(2, 4), torch.rand(2, 4, device=META)), "b"),
    "intervals": (lambda: interval_iou(torch.rand(2, 2), torch.rand(2, 2, device=META)), "b"),
    "head": (lambda: token_logprob(torch.rand(3, 4), torch.rand(5, 4, device=META), IDS), "weight"),
    "targets": (lambda: token_logprob(torch.rand(3, 4), torch.rand(5, 4), IDS.to(META)), "target"),
    "out": (
        lambda: crop_resize(
            torch.zeros(1, 4, 4, 3, dtype=torch.uint8),
            torch.tensor([0]),
            torch.tensor([[0, 0, 4, 4]]),
            out_hw=(2, 2),
            out=torch.zeros(1, 2, 2, 3, dtype=torch.uint8, device=META),
        ),
        "out",
    ),
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_a_tensor_on_another_device_is_refused(case: str) -> None:
    call, name = ELSEWHERE[case]
    with pytest.raises(ValueError, match=rf"^{name}: expected on cpu, got meta$"):
        call()


def test_segments_on_another_device_are_refused() -> None:
    segments = Segments(offsets=torch.tensor([0, 3], device=META), host=(0, 3))
    with pytest.raises(ValueError, match="segments: expected offsets on cpu, got meta"):
        group_advantage(torch.rand(3), segments)


def test_host_tables_of_crops_are_refused_elsewhere() -> None:
    frames = torch.zeros(1, 4, 4, 3, dtype=torch.uint8)
    box = torch.tensor([[0, 0, 4, 4]])
    with pytest.raises(ValueError, match="frame_idx: expected on the host, since it decides sizes, got meta"):
        crop_resize(frames, torch.tensor([0], device=META), box, out_hw=(2, 2))
    with pytest.raises(ValueError, match="boxes: expected on the host, since it decides sizes, got meta"):
        crop_resize(frames, torch.tensor([0]), box.to(META), out_hw=(2, 2))


def test_out_must_be_contiguous() -> None:
    frames = torch.zeros(1, 4, 4, 3, dtype=torch.uint8)
    out = torch.zeros(1, 2, 2, 6, dtype=torch.uint8)[..., ::2]
    with pytest.raises(ValueError, match=r"out: expected a contiguous tensor, got one with strides \[24, 12, 6, 2\]"):
        crop_resize(frames, torch.tensor([0]), torch.tensor([[0, 0, 4, 4]]), out_hw=(2, 2), out=out)
    rows = torch.zeros(4, 2 * 1176)[:, ::2]
    with pytest.raises(ValueError, match="out: expected a contiguous tensor"):
        crop_patchify(frames, torch.tensor([0]), torch.tensor([[0, 0, 4, 4]]), sizes=[(28, 28)], spec=PatchSpec(), out=rows)


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (-1, 5)])
def test_no_box_is_no_excuse_for_a_wrong_size(size: tuple[int, int]) -> None:
    frames = torch.zeros(1, 4, 4, 3, dtype=torch.uint8)
    with pytest.raises(ValueError, match="out_hw: expected positive numbers"):
        crop_resize(frames, torch.zeros(0, dtype=torch.int64), torch.zeros(0, 4, dtype=torch.int64), out_hw=size)


WITHOUT_GRADIENT: dict[str, Callable[[torch.Tensor], Any]] = {
    "box_iou": lambda x: box_iou(x.reshape(-1, 4), x.reshape(-1, 4)),
    "interval_iou": lambda x: interval_iou(x.reshape(-1, 2), x.reshape(-1, 2)),
    "interval_iou of unions": lambda x: interval_iou(
        x.reshape(-1, 2), x.reshape(-1, 2), segments=(_segments(4), _segments(4)), union=True
    )[0],
    "temporal_penalty": lambda x: _penalty(x, frame_times=(torch.arange(3.0), _segments(3))),
    "evidence_reward": lambda x: evidence_reward(x, x, x, torch.ones(8, dtype=torch.bool), _segments(8)).reward,
    "group_advantage": lambda x: group_advantage(x, _segments(8)),
}


@pytest.mark.parametrize("op", WITHOUT_GRADIENT)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_what_has_no_gradient_says_so(op: str, compiled: bool) -> None:
    """Eager and compiled alike: no graph through a formula here that is missing there."""
    torch._dynamo.reset()
    function = torch.compile(WITHOUT_GRADIENT[op], backend="aot_eager") if compiled else WITHOUT_GRADIENT[op]
    x = torch.rand(8)
    result = function(x.clone().requires_grad_())
    assert not result.requires_grad
    torch.testing.assert_close(result, WITHOUT_GRADIENT[op](x), equal_nan=True)


def test_autocast_does_not_reach_into_an_op() -> None:
    hidden, weight, target = torch.randn(8, 64, requires_grad=True), torch.randn(100, 64), torch.arange(8)
    plain = token_logprob(hidden, weight, target)
    (gradient,) = torch.autograd.grad(plain[0].sum(), hidden)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = token_logprob(hidden, weight, target)
        (gradient_inside,) = torch.autograd.grad(inside[0].sum(), hidden)
    assert torch.equal(inside[0], plain[0])
    assert torch.equal(inside[1], plain[1])
    assert torch.equal(gradient_inside, gradient)


@pytest.mark.parametrize("op", ["token_logprob", "evidence_reward", "temporal_penalty", "group_advantage", "box_iou"])
def test_compiled_once_for_every_length(op: str) -> None:
    """fullgraph, dynamic, first with one length and then with others; the results are those of eager."""
    torch._dynamo.reset()
    weight = torch.randn(11, 8)
    functions: dict[str, Callable[[torch.Tensor], Any]] = {
        "token_logprob": lambda x: token_logprob(x, weight, torch.zeros(x.shape[0], dtype=torch.int64), chunk=4)[0],
        "evidence_reward": lambda x: evidence_reward(*x.unbind(1)[:3], x[:, 0] >= 0, _of(x)).claim_reward,
        "temporal_penalty": lambda x: temporal_penalty(
            x[:, 0], mode="points", segments=_of(x), duration=torch.ones(1), key_times=(x[:, 1], _of(x))
        ),
        "group_advantage": lambda x: group_advantage(x[:, 0], _of(x)),
        "box_iou": lambda x: box_iou(x[:, :4], x[:, 4:]),
    }
    compiled = torch.compile(functions[op], fullgraph=True, dynamic=True, backend="aot_eager")
    for num in (4, 5, 9):
        x = torch.rand(num, 8)
        torch.testing.assert_close(compiled(x), functions[op](x), equal_nan=True)


def _of(x: torch.Tensor) -> Segments:
    return Segments(offsets=torch.tensor([0, x.shape[0]]), host=(0, x.shape[0]))


def test_infinite_scores_are_system_faults() -> None:
    result = evidence_reward(
        torch.tensor([math.inf, 1.0]), torch.ones(2), torch.zeros(2), torch.ones(2, dtype=torch.bool), _segments(2)
    )
    assert (result.reward.item(), bool(result.valid)) == (1.0, True)
    assert result.claim_reward.isnan().tolist() == [True, False]


def test_the_widest_float_wins() -> None:
    flags = torch.ones(1, dtype=torch.bool)
    half, double = torch.ones(1).half(), torch.ones(1, dtype=torch.float64)
    for scores in ((half, half, double), (double, half, half), (half, double, half)):
        assert evidence_reward(*scores, flags, _segments(1)).reward.dtype == torch.float64
    assert evidence_reward(half, half, half, flags, _segments(1)).reward.dtype == torch.float32


def test_whole_seconds_are_compared_with_the_whole_duration() -> None:
    """Integer times must not cut the duration down to an integer."""
    keys = (torch.tensor([1.0]), _segments(1))
    assert _penalty(torch.tensor([1]), "points", duration=torch.tensor([1.9]), key_times=keys).item() == 0.0
    assert _penalty(torch.tensor([2]), "points", duration=torch.tensor([2.5]), key_times=keys).item() < 1.0
    assert _penalty(torch.tensor([1]), "points", duration=torch.tensor([0.5]), key_times=keys).item() == 1.0


def test_the_narrowest_gaussian_is_a_point() -> None:
    keys = (torch.tensor([1.0], dtype=torch.float64), _segments(1))
    times = torch.tensor([1.0, 1.5], dtype=torch.float64)
    assert _penalty(times, "points", key_times=keys, sigma=1e-200).tolist() == [0.0, 1.0]


@pytest.mark.parametrize(("num", "gap"), [(1, 5.0), (3, 2.0)])
def test_spacing_of_few_frames(num: int, gap: float) -> None:
    """The mean gap of three frames, the duration where there is but one, NaN where there is none."""
    tables = {"key_times": (torch.tensor([1.0]), _segments(1)), "unit": "spacing"}
    frames = torch.arange(num, dtype=torch.float64) * 2
    penalty = _penalty(torch.tensor([2.0], dtype=torch.float64), "points", frame_times=(frames, _segments(num)), **tables)
    assert penalty.item() == pytest.approx(1 - math.exp(-0.5 / gap**2))


@pytest.mark.parametrize("others", [[], [1.0, 2.0]], ids=["none at all", "of another response"])
def test_spacing_without_frames_is_not_a_number(others: list[float]) -> None:
    penalty = temporal_penalty(
        torch.tensor([2.0]),
        mode="points",
        segments=_segments(1, 0),
        duration=torch.tensor([5.0, 5.0]),
        key_times=(torch.tensor([1.0]), _segments(1, 0)),
        frame_times=(torch.tensor(others), _segments(0, len(others))),
        unit="spacing",
    )
    assert math.isnan(penalty.item())


@pytest.mark.parametrize("time_s", [1.0, 2.0])
def test_a_time_on_a_frame_of_uneven_gaps(time_s: float) -> None:
    """On a frame the distance is 0 whichever gap is taken; just before it the gap is the one before."""
    frames = (torch.tensor([0.0, 1.0, 2.0, 6.0], dtype=torch.float64), _segments(4))
    assert _penalty(torch.tensor([time_s], dtype=torch.float64), frame_times=frames, duration=torch.tensor([9.0])).item() == 0.0


def test_writing_into_out_is_told_to_autograd() -> None:
    frames = torch.randint(256, (2, 40, 40, 3), dtype=torch.uint8)
    box, options = torch.tensor([[0, 0, 40, 40]]), {"sizes": [(28, 28)], "spec": PatchSpec()}
    out = torch.zeros(4, 1176)
    weight = torch.ones(1176, 1, requires_grad=True)
    crop_patchify(frames, torch.tensor([0]), box, **options, out=out)
    used = (out @ weight).sum()
    crop_patchify(frames, torch.tensor([1]), box, **options, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        used.backward()
    with pytest.raises(ValueError, match="out: expected a tensor that requires no gradient"):
        crop_patchify(frames, torch.tensor([0]), box, **options, out=torch.zeros(4, 1176, requires_grad=True))


def test_token_logprob_is_differentiable_once() -> None:
    hidden = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    logprob, _ = token_logprob(hidden, torch.randn(5, 8, dtype=torch.float64), torch.tensor([0, 1, 2]))
    with pytest.raises(RuntimeError, match="token_logprob: differentiable once, got create_graph=True"):
        torch.autograd.grad(logprob.sum(), hidden, create_graph=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_half_precision_inputs(dtype: torch.dtype) -> None:
    """Summed in float32 and rounded once: no further from float64 than half a unit in the last place, or nearly."""
    hidden, weight = torch.randn(20, 32).to(dtype), torch.randn(300, 32).to(dtype)
    target = torch.randint(300, (20,))
    gradients = []
    for kind in (dtype, torch.float64):
        inputs = hidden.to(kind).requires_grad_(), weight.to(kind).requires_grad_()
        logprob, entropy = token_logprob(*inputs, target, chunk=64)
        gradients.append(torch.autograd.grad(logprob.sum() + 0.3 * entropy.sum(), inputs))
    for got, want in zip(*gradients, strict=True):
        bound = want.abs() * torch.finfo(dtype).eps * 0.6 + 1e-5
        assert ((got.double() - want).abs() <= bound).all()


def test_values_do_not_depend_on_the_default_dtype() -> None:
    from ser_fast.ops import crops

    frames = torch.randint(256, (1, 40, 40, 3), dtype=torch.uint8)
    arguments = frames, torch.tensor([0]), torch.tensor([[0, 0, 40, 40]])
    expected = crop_patchify(*arguments, sizes=[(28, 28)], spec=PatchSpec())[0]
    for dtype in (torch.bfloat16, torch.float64):
        crops.level_table.cache_clear()
        torch.set_default_dtype(dtype)
        try:
            actual = crop_patchify(*arguments, sizes=[(28, 28)], spec=PatchSpec())[0]
        finally:
            torch.set_default_dtype(torch.float32)
        assert torch.equal(actual, expected)
