"""temporal_penalty, evidence_reward and group_advantage against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from ser_fast.ops import adaptive_sigma, evidence_reward, group_advantage, temporal_penalty
from ser_fast.types import Segments
from tests.support.tolerance import exact

NAN = math.nan


def _penalty(times: list[float], mode: str = "snap", duration: float = 10.0, **kwargs: object) -> list[float]:
    """Penalties in one response; tables given as plain lists."""
    tables = {}
    for name in ("frame_times", "key_times", "intervals"):
        if name in kwargs:
            values = torch.tensor(kwargs.pop(name), dtype=torch.float64)
            values = values.reshape(-1, 2) if name == "intervals" else values
            tables[name] = (values, Segments.from_lengths([len(values)]))
    return temporal_penalty(
        torch.tensor(times, dtype=torch.float64),
        mode=mode,
        segments=Segments.from_lengths([len(times)]),
        duration=torch.tensor([duration]),
        **tables,  # type: ignore[arg-type]
        **kwargs,  # type: ignore[arg-type]
    ).tolist()


def test_snap() -> None:
    """0 on a frame, 1 half way between two, linear in between; gaps are local."""
    frames = [0.0, 1.0, 2.0, 6.0]
    assert _penalty([0.0, 0.25, 0.5, 0.75, 1.0], frame_times=frames) == pytest.approx([0, 0.5, 1, 0.5, 0])
    assert _penalty([3.0, 4.0, 5.0], frame_times=frames) == pytest.approx([0.5, 1, 0.5])
    assert _penalty([7.0, 8.0, 10.0], frame_times=frames) == pytest.approx([0.5, 1, 1]), "behind the last: the last gap"
    assert _penalty([1.0], frame_times=[2.0, 4.0]) == pytest.approx([1.0]), "before the first: the first gap"
    assert _penalty([2.0, 4.5], frame_times=[2.0]) == pytest.approx([0.0, 0.5]), "a single frame: the duration"
    assert _penalty([0.0], frame_times=[0.0], duration=0.0) == [0.0], "an image"


def test_outside_the_clip_is_1_in_every_mode() -> None:
    times = [-0.1, 10.1]
    assert _penalty(times, frame_times=[0.0, 10.0]) == [1.0, 1.0]
    assert _penalty(times, "points", key_times=times) == [1.0, 1.0]
    assert _penalty(times, "interval", intervals=[[-5.0, 50.0]]) == [1.0, 1.0]


def test_the_last_moment_is_inside_after_rounding_to_float32() -> None:
    end = 18.4514838
    penalty = temporal_penalty(
        torch.tensor([end]),
        mode="points",
        segments=Segments.from_lengths([1]),
        duration=torch.tensor([end], dtype=torch.float64),
        key_times=(torch.tensor([end], dtype=torch.float64), Segments.from_lengths([1])),
    )
    assert penalty.item() < 1e-6


def test_points_is_one_minus_the_gaussian_of_open_o3() -> None:
    """The proximities that baseline figures give for d = 1: 0.969 at p = 0, 0.882 at p = 1/2, 0.607 from p = 3/4."""
    for progress, proximity in ((0.0, 0.969), (0.5, 0.882), (0.75, 0.607), (1.0, 0.607)):
        penalty = _penalty([6.0], "points", key_times=[1.0, 5.0], sigma=adaptive_sigma(progress))
        assert 1 - penalty[0] == pytest.approx(proximity, abs=5e-4)


def test_interval_is_0_inside() -> None:
    times = [2.0, 3.0, 4.0, 5.0, 7.5]
    expected = [0, 0, 0, 1 - math.exp(-0.5), 1 - math.exp(-0.125)]
    assert _penalty(times, "interval", intervals=[[2.0, 4.0], [8.0, 9.0]]) == pytest.approx(expected)


def test_units() -> None:
    kwargs = {"key_times": [5.0], "frame_times": [0.0, 2.0, 4.0]}
    assert _penalty([7.0], "points", **kwargs, unit="spacing") == pytest.approx([1 - math.exp(-0.5)])
    assert _penalty([7.0], "points", **kwargs, unit="duration", sigma=0.1) == pytest.approx([1 - math.exp(-2)])


def test_nan_and_missing_times() -> None:
    assert math.isnan(_penalty([NAN], frame_times=[0.0, 1.0])[0])
    assert math.isnan(_penalty([1.0], "points", key_times=[])[0])
    assert math.isnan(_penalty([1.0], frame_times=[])[0])


def test_frame_times_must_ascend_within_a_response() -> None:
    with pytest.raises(ValueError, match=r"frame_times\[0\]: expected to ascend within a response, got a fall at row 1"):
        _penalty([7.0], frame_times=[6.0, 0.0, 7.0])


def test_just_behind_the_end_is_outside() -> None:
    end = torch.tensor([10.0], dtype=torch.float64)
    for time_s, expected in ((10.0, 0.0), (10.0 + 1e-9, 1.0), (-1e-9, 1.0), (0.0, 0.0)):
        times = torch.tensor([time_s], dtype=torch.float64)
        frames = (torch.tensor([0.0, 10.0], dtype=torch.float64), Segments.from_lengths([2]))
        penalty = temporal_penalty(times, mode="snap", segments=Segments.from_lengths([1]), duration=end, frame_times=frames)
        assert penalty.item() == expected


def test_an_unknown_duration_leaves_no_penalty() -> None:
    assert math.isnan(_penalty([1.0], frame_times=[0.0, 2.0], duration=NAN)[0])


def test_penalties_of_many_responses_equal_those_of_each() -> None:
    times, frames = [[0.2, 3.0], [], [1.0, 2.2, 9.0]], [[0.0, 1.0, 4.0], [0.0], [2.0]]
    together = temporal_penalty(
        torch.tensor([t for row in times for t in row], dtype=torch.float64),
        mode="snap",
        segments=Segments.from_lengths(map(len, times)),
        duration=torch.tensor([10.0, 10.0, 10.0]),
        frame_times=(torch.tensor([t for row in frames for t in row]), Segments.from_lengths(map(len, frames))),
    )
    assert together.tolist() == [p for row, f in zip(times, frames, strict=True) for p in _penalty(row, frame_times=f)]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"mode": "exact"}, "mode: expected one of snap, points, interval, got 'exact'"),
        ({"mode": "points"}, "key_times: expected for mode 'points', got none"),
        ({"mode": "points", "key_times": [1.0], "unit": "spacing"}, "frame_times: expected for unit 'spacing', got none"),
        ({"mode": "points", "key_times": [1.0], "sigma": 0.0}, "sigma: expected a number > 0, got 0.0"),
        ({"frame_times": [0.0], "unit": "hours"}, "unit: expected one of seconds, spacing, duration, got 'hours'"),
    ],
)
def test_penalty_errors(kwargs: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _penalty([1.0], **kwargs)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"progress: expected a number in \[0, 1\], got 1.5"):
        adaptive_sigma(1.5)


def _reward(claims: list[tuple[float, float, float]], **kwargs: object) -> tuple[float, bool, list[float]]:
    """(reward, valid, claim rewards) of one response with (relevance, localization, penalty) claims."""
    columns = torch.tensor(claims, dtype=torch.float64).reshape(-1, 3).unbind(1)
    valid = torch.tensor(kwargs.pop("valid", [True] * len(claims)), dtype=torch.bool)
    if "rejected" in kwargs:
        kwargs["num_rejected"] = torch.tensor([kwargs.pop("rejected")])
    result = evidence_reward(*columns, valid, Segments.from_lengths([len(claims)]), **kwargs)  # type: ignore[arg-type]
    return result.reward.item(), bool(result.valid), result.claim_reward.tolist()


def test_evidence_rules() -> None:
    claim = [(0.8, 0.5, 0.25)]
    assert _reward(claim)[0] == pytest.approx(0.8 * 0.5 * 0.75)
    assert _reward(claim, combine="mean", weight=0.3)[0] == pytest.approx((0.3 * 0.8 + 0.7 * 0.5) * 0.75)
    assert _reward(claim, combine="gate", weight=0.8)[0] == pytest.approx(0.5 * 0.75)
    assert _reward(claim, combine="gate", weight=0.81)[0] == 0.0
    assert _reward(claim, penalty_form="subtract", penalty_weight=0.4)[0] == pytest.approx(0.4 - 0.1)
    assert _reward(claim, penalty_form="subtract", penalty_weight=9.0)[0] == 0.0


def test_evidence_is_a_mean_so_weak_claims_cost() -> None:
    assert _reward([(1, 1, 0), (0, 1, 0)]) == (0.5, True, [1.0, 0.0])
    assert _reward([]) == (0.0, True, [])


def test_rejected_claims_count_with_0() -> None:
    assert _reward([(1, 1, 0)], rejected=3)[0] == 0.25
    assert _reward([], rejected=2) == (0.0, True, [])


def test_claims_beyond_the_cap_earn_nothing_and_cost() -> None:
    reward, valid, claims = _reward([(1, 1, 0)] * 12, cap=8, count_cost=0.1)
    assert claims == [1.0] * 8 + [0.0] * 4
    assert (reward, valid) == (pytest.approx(8 / 12 - 0.1 * 4 / 8), True)
    assert _reward([(1, 1, 0)] * 4, rejected=8, cap=8, count_cost=0.1)[0] == pytest.approx(4 / 12 - 0.1 * 4 / 8)


def test_system_faults_leave_the_count() -> None:
    reward, valid, claims = _reward([(1, 1, 0), (1, 1, 0)], valid=[True, False])
    assert (reward, valid) == (1.0, True)
    assert claims[0] == 1.0
    assert math.isnan(claims[1])


def test_a_response_is_not_valid_only_if_system_faults_leave_nothing() -> None:
    reward, valid, _ = _reward([(1, 1, 0), (1, 1, 0)], valid=[False, False])
    assert math.isnan(reward)
    assert not valid
    assert _reward([(1, 1, 0)], valid=[False], rejected=1)[:2] == (0.0, True), "a policy fault is left"
    assert not _reward([(1, 1, 0)] * 2, valid=[False, True], cap=1)[1], "what is beyond the cap is not scored at all"


def test_a_nan_score_is_a_system_fault() -> None:
    reward, valid, claims = _reward([(NAN, 1, 0), (1, 1, 0.5)])
    assert (reward, valid) == (0.5, True)
    assert math.isnan(claims[0])


def test_evidence_errors() -> None:
    for kwargs, message in (
        ({"cap": 2.5}, "cap: expected a whole number >= 1, got 2.5"),
        ({"count_cost": NAN}, "count_cost: expected a number >= 0, got nan"),
        ({"count_cost": -5.0}, "count_cost: expected a number >= 0, got -5.0"),
        ({"penalty_weight": NAN}, "penalty_weight: expected a number >= 0, got nan"),
        ({"weight": NAN}, r"weight: expected a number in \[0, 1\], got nan"),
        ({"combine": "max"}, "combine: expected one of product, mean, gate, got 'max'"),
        ({"penalty_form": "divide"}, "penalty_form: expected one of scale, subtract, got 'divide'"),
        ({"cap": 0}, "cap: expected a whole number >= 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            _reward([(1, 1, 0)], **kwargs)


def _advantage(rewards: list[float], groups: list[int], valid: list[bool] | None = None, **kwargs: object) -> torch.Tensor:
    mask = None if valid is None else torch.tensor(valid)
    return group_advantage(torch.tensor(rewards), Segments.from_lengths(groups), mask, **kwargs)  # type: ignore[arg-type]


def test_advantage_is_that_of_grpo() -> None:
    rewards = torch.rand(24)
    groups = rewards.reshape(6, 4)
    expected = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
    torch.testing.assert_close(_advantage(rewards.tolist(), [4] * 6), expected.flatten())
    centered = groups - groups.mean(1, keepdim=True)
    torch.testing.assert_close(_advantage(rewards.tolist(), [4] * 6, scale="none"), centered.flatten())
    batch = centered / (centered.pow(2).sum().div(23).sqrt() + 1e-4)
    torch.testing.assert_close(_advantage(rewards.tolist(), [4] * 6, scale="batch"), batch.flatten())


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("eps", [1e-4, 0.0])
def test_equal_rewards_give_exactly_0(scale: str, eps: float) -> None:
    for value in (0.1, 1 / 3, 1e-8, 3e7):
        exact(_advantage([value] * 7, [3, 4], scale=scale, eps=eps), torch.zeros(7))
    exact(_advantage([0.3], [1], scale=scale, eps=eps), torch.zeros(1))


def test_rows_that_are_not_valid_are_left_out() -> None:
    kept = _advantage([1.0, 3.0, 2.0], [3])
    mixed = _advantage([1.0, 99.0, 3.0, 2.0, NAN], [5], [True, False, True, True, True])
    torch.testing.assert_close(mixed[[0, 2, 3]], kept)
    assert mixed[[1, 4]].isnan().all(), "never turned into a number"
    exact(_advantage([1.0, 5.0], [2], [True, False]), torch.tensor([0.0, NAN]))


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_an_infinite_reward_is_left_out_like_one_that_is_not_valid(scale: str) -> None:
    """In its group and in the batch; an empty group is no trouble."""
    kept = _advantage([1.0, 3.0, 2.0, 5.0], [2, 0, 2], scale=scale)
    mixed = _advantage([1.0, math.inf, 3.0, 2.0, -math.inf, 5.0], [3, 0, 3], scale=scale)
    torch.testing.assert_close(mixed[[0, 2, 3, 5]], kept)
    assert mixed[[1, 4]].isnan().all()
    with pytest.raises(ValueError, match="eps, ddof: expected numbers >= 0, got nan"):
        _advantage([1.0], [1], scale=scale, eps=NAN)


def test_advantage_errors() -> None:
    for kwargs, message in (
        ({"scale": "rank"}, "scale: expected one of group, batch, none, got 'rank'"),
        ({"eps": -1.0}, "eps, ddof: expected numbers >= 0, got -1.0, 1"),
        ({"groups": [2, 2]}, "segments: expected segments of 3 rows, got 4"),
    ):
        groups = kwargs.pop("groups", [3])
        with pytest.raises(ValueError, match=message):
            _advantage([1.0, 2.0, 3.0], groups, **kwargs)  # type: ignore[arg-type]


@pytest.mark.parametrize("num", [0, 1, 65_536])
def test_any_number_of_rows(num: int) -> None:
    scores = torch.rand(3, num)
    segments = Segments.from_lengths([num])
    assert evidence_reward(*scores, torch.ones(num, dtype=torch.bool), segments).claim_reward.shape == (num,)
    assert group_advantage(scores[0], segments).shape == (num,)
