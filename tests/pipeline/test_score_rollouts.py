"""score_rollouts: every kind of fault and its owner, with the expected line; frames, sources, arguments."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ser_fast.errors import DecodeError, InputError, RefusedMedia
from ser_fast.faults import PolicyFault, SystemFault
from ser_fast.jsonl import rollout_from_json
from ser_fast.pipeline import score_rollouts
from ser_fast.rewards import EvidenceConfig, RewardConfig
from ser_fast.types import Clip, ClipInfo, Question, RefereeRequest, RefereeScores, Rollout
from tests.support.referee import FakeReferee, make_clip

CASES = [json.loads(line) for line in (Path(__file__).parent.parent / "data" / "faults.jsonl").read_text("utf-8").splitlines()]
TIMES = [float(i) for i in range(10)]


class Source:
    """Ten frames of 100 x 200, one a second; broken.mp4 cannot be read, short.mp4 ends after five seconds."""

    def __init__(self) -> None:
        self.loads: list[str] = []
        self.clip = make_clip(10, height=100, width=200)

    def info(self, question: Question) -> ClipInfo:
        if question.media == "broken.mp4":
            raise DecodeError("broken.mp4", "open", "invalid data found")
        damage = "ends early: at 5.000 of 10.000 s" if question.media == "short.mp4" else None
        return ClipInfo(frame_hw=(100, 200), duration=10.0, times=tuple(TIMES[: 5 if damage else 10]), damage=damage)

    def load(self, question: Question, times: Sequence[float]) -> tuple[Clip, list[int | None]]:
        self.loads.append(question.media)
        short = question.media == "short.mp4"
        clip = self.clip
        if short:
            clip = Clip(
                frames=clip.frames[:5],
                times=clip.times[:5],
                start_s=0.0,
                duration=10.0,
                source="short.mp4",
                decoded_by="test",
                damage=self.info(question).damage,
            )
        return clip, [None if short and time > 5 else int(time) for time in times]


class FailingReferee(FakeReferee):
    """Fails for claims whose name says how."""

    REASONS = {"timeout": "no answer within 10 s", "refusal": "the referee declined"}

    def __init__(self) -> None:
        super().__init__(lambda request: (math.nan, 0.5) if request.name == "nan" else (0.8, 0.5))

    def score(self, requests: Sequence[RefereeRequest]) -> RefereeScores:
        scores = super().score(requests)
        reasons = tuple(self.REASONS.get(request.name) for request in requests)
        valid = torch.tensor([reason is None for reason in reasons])  # a NaN slips through as valid
        return RefereeScores(
            relevance=scores.relevance,
            localization=scores.localization,
            level_mass=scores.level_mass,
            valid=valid,
            reasons=reasons,
        )


@pytest.mark.parametrize("case", CASES, ids=[case["fault"] for case in CASES])
def test_each_fault_has_its_line(case: dict[str, Any]) -> None:
    scored = score_rollouts([rollout_from_json(case["rollout"])], clips=Source(), referee=FailingReferee())
    line = json.loads(scored.to_json_lines(timings=False)[0])
    assert line == case["expected"]


def test_all_lines_together_are_the_lines_one_by_one() -> None:
    scored = score_rollouts([rollout_from_json(c["rollout"]) for c in CASES], clips=Source(), referee=FailingReferee())
    assert [json.loads(line) for line in scored.to_json_lines(timings=False)] == [case["expected"] for case in CASES]


def test_every_fault_has_a_line() -> None:
    lines = {case["fault"] for case in CASES if case["owner"] == "policy"}
    assert lines == set(PolicyFault)
    reasons = " ".join(json.dumps(case["expected"]) for case in CASES if case["owner"] == "system")
    assert all(f'"{fault}: ' in reasons for fault in SystemFault)


def _rollout(completion: str, **changes: Any) -> Rollout:
    return rollout_from_json(CASES[0]["rollout"] | {"completion": completion} | changes)


def _claim(time: float | str = 3, name: str = "cat") -> str:
    return f"<obj>{name}</obj><box>[20,10,120,60]</box>at<t>{time}</t>s"


def _thought(*claims: str) -> str:
    return f"<think>{' '.join(claims)}</think><answer>A</answer>"


def test_the_referee_is_asked_what_the_claim_says() -> None:
    referee = FakeReferee()
    source = Source()
    score_rollouts([_rollout(_thought(_claim(3.2), _claim(7, "dog")))], clips=source, referee=referee)
    first, second = referee.requests
    assert (first.name, first.frame_idx, first.boxes, first.time_s) == (
        "cat",
        3,
        ((20.0, 10.0, 120.0, 60.0),),
        pytest.approx(3.2),
    )
    assert (second.name, second.frame_idx) == ("dog", 7)
    assert (first.question, first.answer, first.clip) == ("Which animal?", "A", source.clip)


def test_each_video_is_loaded_once_and_claims_beyond_the_cap_are_not_judged() -> None:
    referee, source = FakeReferee(), Source()
    score_rollouts(
        [_rollout(_thought(*[_claim(i) for i in range(10)]), id=str(i)) for i in range(5)], clips=source, referee=referee
    )
    assert source.loads == ["clip.mp4"]
    assert len(referee.requests) == 5 * 8


def test_a_mapping_of_clips_is_judged_in_the_nearest_frame() -> None:
    clip = make_clip(4, height=100, width=200, fps=0.5)  # frames at 0, 2, 4, 6 s
    referee = FakeReferee()
    rollout = _rollout(_thought(_claim(0.9), _claim(1.1), _claim(7.5)), frame_times=None, sampling={"fps": 1.0})
    scored = score_rollouts([rollout], clips={"clip.mp4": clip}, referee=referee)
    assert [request.frame_idx for request in referee.requests] == [0, 1, 3]
    torch.testing.assert_close(scored.penalty, torch.tensor([0.9, 0.9, 1.0]))
    with pytest.raises(InputError, match=r"clips: expected one called 'clip.mp4', got none"):
        score_rollouts([rollout], clips={}, referee=referee)


def test_each_window_of_a_video_is_judged_in_its_own_clip() -> None:
    clip = dataclasses.replace(make_clip(2, height=100, width=200), duration=10.0)
    early, late = clip, dataclasses.replace(clip, times=clip.times + 5)
    windows = ({"start": 0.0, "end": 1.0}, {"start": 5.0, "end": 6.0})
    rollouts = [_rollout(_thought(_claim(5.2)), id=str(i), **window) for i, window in enumerate(windows)]
    referee = FakeReferee()
    score_rollouts(rollouts, clips=[early, late], referee=referee)
    assert [(request.clip, request.frame_idx) for request in referee.requests] == [(early, 1), (late, 0)]
    for other in (dataclasses.replace(early, frames=255 - early.frames), dataclasses.replace(early, times=early.times + 1)):
        with pytest.raises(InputError, match=r"clips: expected the same frames for all rollouts on a window of 'clip\.mp4'"):
            score_rollouts([rollouts[0], rollouts[0]], clips=[early, other], referee=referee)
    with pytest.raises(InputError, match=r"clips: expected one for each of 2 rollouts, got 1"):
        score_rollouts(rollouts, clips=[early], referee=referee)
    with pytest.raises(InputError, match=r"clips: expected the same frames for all rollouts on a window of 'clip\.mp4'"):
        score_rollouts([rollouts[0], rollouts[0]], clips=[early, late], referee=referee)


def test_an_image_is_a_clip_of_one_frame_at_0() -> None:
    image = Clip(
        frames=torch.zeros(1, 100, 200, 3, dtype=torch.uint8),
        times=torch.zeros(1, dtype=torch.float64),
        start_s=0.0,
        duration=0.0,
        source="i",
        decoded_by="test",
    )
    row = {key: value for key, value in CASES[0]["rollout"].items() if key not in ("video", "frame_times")} | {"image": "i.png"}
    rollouts = [rollout_from_json(row | {"completion": _thought(_claim(t))}) for t in (0, 1)]
    scored = score_rollouts(rollouts, clips={"i.png": image}, referee=FakeReferee())
    assert scored.table.parts["evidence"].tolist() == [1.0, 0.0]
    assert scored.report.rejected_claims(1)[0].reason == "out_of_clip"


def _evidence(config: EvidenceConfig, *claims: str, **labels: Any) -> float:
    """The evidence part of one response, judged relevance 0.8, localization 0.5."""
    rollout = _rollout(_thought(*claims), **labels)
    referee = FakeReferee(lambda _: (0.8, 0.5))
    scored = score_rollouts([rollout], clips=Source(), referee=referee, reward=RewardConfig(evidence=config))
    return scored.table.parts["evidence"].item()


def test_each_field_of_the_evidence_config_counts() -> None:
    quarter = _claim(3.25)  # half way to half way: penalty 1/2
    assert _evidence(EvidenceConfig(), quarter) == pytest.approx(0.4 * 0.5)
    assert _evidence(EvidenceConfig(combine="mean"), quarter) == pytest.approx(0.65 * 0.5)
    assert _evidence(EvidenceConfig(combine="mean", combine_weight=0.25), quarter) == pytest.approx(0.575 * 0.5)
    assert _evidence(EvidenceConfig(combine="gate", combine_weight=0.9), quarter) == 0.0
    assert _evidence(EvidenceConfig(penalty_form="subtract"), quarter) == pytest.approx(0.4 - 0.25)
    assert _evidence(EvidenceConfig(penalty_form="subtract", penalty_weight=0.2), quarter) == pytest.approx(0.4 - 0.1)
    two = [_claim(3), _claim(4)]
    assert _evidence(EvidenceConfig(), *two) == pytest.approx(0.4)
    assert _evidence(EvidenceConfig(cap=1), *two) == pytest.approx(0.4 / 2 - 0.1)
    assert _evidence(EvidenceConfig(cap=1, count_cost=0.05), *two) == pytest.approx(0.4 / 2 - 0.05)
    points = {"penalty_mode": "points"}
    for options, distance in (({}, 2.0), ({"sigma": 4.0}, 0.5), ({"penalty_unit": "duration", "sigma": 0.1}, 2.0)):
        config = EvidenceConfig(**points, **options)  # type: ignore[arg-type]
        assert _evidence(config, _claim(3), key_times=[5.0]) == pytest.approx(0.4 * math.exp(-(distance**2) / 2))
    spacing = EvidenceConfig(penalty_mode="points", penalty_unit="spacing")
    frames = {"frame_times": [0.0, 4.0, 8.0]}
    assert _evidence(spacing, _claim(3), key_times=[5.0], **frames) == pytest.approx(0.4 * math.exp(-0.125))
    assert _evidence(EvidenceConfig(penalty_mode="interval"), _claim(3), interval=[2.0, 4.0]) == pytest.approx(0.4)
    assert _evidence(EvidenceConfig(penalty_mode="interval"), _claim(3), interval=[4.0, 5.0]) == pytest.approx(
        0.4 * math.exp(-0.5)
    )


def test_frame_times_may_come_in_any_order() -> None:
    assert _evidence(EvidenceConfig(), _claim(3.25), frame_times=[4.0, 0.0, 3.0]) == pytest.approx(0.4 * 0.5)


def test_each_field_of_the_reward_config_counts() -> None:
    right, wrong = _rollout(_thought(_claim(3))), _rollout(_thought(_claim(3)).replace(">A<", ">B<"))
    bare = _rollout(_thought())

    def total(rollout: Rollout, **fields: Any) -> float:
        scored = score_rollouts([rollout], clips=Source(), referee=FakeReferee(), reward=RewardConfig(**fields))
        return scored.table.total.item()

    assert total(right) == 3.0
    assert total(right, weights={"answer": 0.25, "format": 0.5, "evidence": 2.0}) == 2.75
    assert total(wrong) == 2.0
    assert total(wrong, gate_evidence=True) == 1.0
    assert total(wrong, gate_evidence=True, weights={"evidence": 1.0}) == 0.0, "the gate is looked at without a weight"
    assert total(bare) == 1.5
    assert total(bare, require_evidence=False) == 2.0


def test_parts_without_weight_are_neither_computed_nor_missed() -> None:
    """A task without an answer reward is no obstacle where the answer has no weight."""
    rollout = _rollout(_thought(_claim(3)), task="temporal")
    scored = score_rollouts([rollout], clips=Source(), referee=FakeReferee(), reward=RewardConfig(weights={"evidence": 1.0}))
    assert scored.table.total.item() == 1.0
    assert list(scored.table.parts) == ["evidence"]


def test_what_a_question_lacks_is_found_before_anything_is_opened() -> None:
    class Untouchable:
        def info(self, question: Question) -> ClipInfo:
            raise AssertionError("opened")

        load = info

    referee = FakeReferee()
    with pytest.raises(InputError, match="task of question 'none': 'temporal' has no answer reward yet"):
        score_rollouts([_rollout(_thought(_claim(3)), task="temporal")], clips=Untouchable(), referee=referee)  # type: ignore[arg-type]
    assert referee.requests == []


def test_files_that_are_refused_on_purpose_stop_the_batch() -> None:
    class Refusing(Source):
        def load(self, question: Question, times: Sequence[float]) -> tuple[Clip, list[int | None]]:
            raise RefusedMedia("clip.mp4", "decode", "too large")

    with pytest.raises(RefusedMedia, match="too large"):
        score_rollouts([_rollout(_thought(_claim(3)))], clips=Refusing(), referee=FakeReferee())


def test_a_video_that_fails_while_it_is_decoded_is_a_system_fault() -> None:
    class Vanishing(Source):
        def load(self, question: Question, times: Sequence[float]) -> tuple[Clip, list[int | None]]:
            raise DecodeError("clip.mp4", "open", "gone")

    scored = score_rollouts([_rollout(_thought(_claim(3)))], clips=Vanishing(), referee=FakeReferee())
    assert scored.faults == scored.reasons == ("media_error: clip.mp4: open: gone",)
    assert scored.table.total.isnan().all()


def test_a_time_behind_a_file_that_is_cut_off_is_not_the_policys_fault() -> None:
    class Cut(Source):
        def info(self, question: Question) -> ClipInfo:
            return ClipInfo(frame_hw=(100, 200), duration=5.0, times=tuple(TIMES[:5]), damage="cut off", horizon=3600.0)

        def load(self, question: Question, times: Sequence[float]) -> tuple[Clip, list[int | None]]:
            return self.clip, [int(time) if time < 5 else None for time in times]

    scored = score_rollouts([_rollout(_thought(_claim(3), _claim(9), _claim(9999)))], clips=Cut(), referee=FakeReferee())
    assert scored.faults == (None, "frame_missing: none at 9.000 s (cut off)")
    assert [claim.reason for claim in scored.report.rejected_claims(0)] == ["out_of_clip"]
    assert scored.table.parts["evidence"].item() == 0.5


def test_scores_that_are_none_are_the_referees_fault() -> None:
    for score in ((7.0, -3.0), (1.1, 0.5), (0.5, -0.1), (math.inf, 0.5)):
        scored = score_rollouts([_rollout(_thought(_claim(3)))], clips=Source(), referee=FakeReferee(lambda _, s=score: s))
        assert not scored.table.valid.any(), score
        assert scored.faults[0] is not None
        assert scored.faults[0].startswith("referee_error: ")


def test_a_total_outage_is_not_a_reward_of_0() -> None:
    """Nor does it become one because the policy cites more than is judged."""
    rollout = _rollout(_thought(*[_claim(3, "timeout")] * 9))
    assert not score_rollouts([rollout], clips=Source(), referee=FailingReferee()).table.valid.any()


def test_an_image_and_a_video_of_one_name_are_two() -> None:
    class Both(Source):
        def load(self, question: Question, times: Sequence[float]) -> tuple[Clip, list[int | None]]:
            self.loads.append("image" if question.image else "video")
            return super().load(question, times)

    source = Both()
    image = {k: v for k, v in CASES[0]["rollout"].items() if k not in ("video", "frame_times")} | {"image": "clip.mp4"}
    score_rollouts([_rollout(_thought(_claim(3))), rollout_from_json(image)], clips=source, referee=FakeReferee())
    assert sorted(source.loads) == ["clip.mp4", "clip.mp4", "image", "video"]


def test_labels_and_rules_that_do_not_fit_are_named() -> None:
    rollout = _rollout(_thought(_claim(3)))
    points = RewardConfig(evidence=EvidenceConfig(penalty_mode="points"))
    with pytest.raises(InputError, match="key_times of question 'none': expected for penalty_mode 'points', got none"):
        score_rollouts([rollout], clips=Source(), referee=FakeReferee(), reward=points)
    late = _rollout(_thought(_claim(3)), frame_times=None, sampling={"fps": 1.0, "start": 11.0})
    with pytest.raises(InputError, match="sampling of rollout 'none': start, end: expected a window that begins in"):
        score_rollouts([late], clips=Source(), referee=FakeReferee())


def test_a_window_beyond_the_end_of_a_damaged_file_is_a_system_fault() -> None:
    late = _rollout(_thought(_claim(3)), video="short.mp4", frame_times=None, sampling={"fps": 1.0, "start": 7.0})
    scored = score_rollouts([late], clips=Source(), referee=FakeReferee())
    assert scored.reasons == ("frame_missing: ends early: at 5.000 of 10.000 s",)
    assert scored.table.total.isnan().all()


def test_no_rollouts() -> None:
    scored = score_rollouts([], clips={}, referee=FakeReferee())
    assert (len(scored), scored.to_json_lines()) == (0, [])


def test_timings_name_the_stages() -> None:
    scored = score_rollouts([_rollout(_thought(_claim(3)))], clips=Source(), referee=FakeReferee())
    assert list(scored.timings) == ["open", "parse", "decode", "referee", "reward"]
    assert json.loads(scored.to_json_lines()[0])["timings"].keys() == scored.timings.keys()


def test_no_text_makes_a_response_not_valid() -> None:
    """When the system parts are healthy every text has a reward: a policy cannot make itself unscorable."""
    rng = random.Random(0)
    pieces = ["<obj>", "</obj>", "<box>", "</box>", "at<t>", "</t>s", "<think>", "</think>", "<answer>", "</answer>"]
    pieces += ["[1,2,90,80]", "[NaN,1,2,3]", "3", "-1", "1e999", "cat", "\ud800", "\x00", " ", "A", _claim(3), _claim(99)]
    texts = ["".join(rng.choices(pieces, k=rng.randrange(30))) for _ in range(3000)]
    texts += ["<think>" + text + "</think><answer>A</answer>" for text in texts]
    scored = score_rollouts([_rollout(text) for text in texts], clips=Source(), referee=FakeReferee())
    assert scored.table.valid.all()
    assert scored.table.total.isfinite().all()
    assert (scored.table.parts["evidence"] > 0).sum() > 50, "some texts hold good claims"
    assert len(json.loads(scored.to_json_lines()[7])["id"]) > 0


def _exactly(score: float) -> RefereeScores:
    one = torch.full((1,), score, dtype=torch.float32, device="cpu")
    return RefereeScores(
        relevance=one, localization=one, level_mass=one, valid=torch.ones(1, dtype=torch.bool, device="cpu"), reasons=(None,)
    )


class OneScore:
    """Gives one score, whatever it is asked."""

    def score(self, requests: Sequence[RefereeRequest]) -> RefereeScores:
        return _exactly(0.7)


CLAIM = "<obj>cat</obj><box>[1, 2, 30, 40]</box>at<t>3.3</t>s"


def _with_claims(num: int) -> Rollout:
    return rollout_from_json(CASES[0]["rollout"] | {"completion": f"<think>{CLAIM * num}</think><answer>a tabby cat</answer>"})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_rewards_do_not_depend_on_torchs_defaults(dtype: torch.dtype) -> None:
    rollout = _with_claims(1)
    expected = score_rollouts([rollout], clips=Source(), referee=OneScore()).to_json_lines(timings=False)
    torch.set_default_dtype(dtype)
    torch.set_default_device("meta")
    try:
        with torch.device("cpu"):
            source = Source()
        actual = score_rollouts([rollout], clips=source, referee=OneScore())
    finally:
        torch.set_default_device("cpu")
        torch.set_default_dtype(torch.float32)
    assert actual.to_json_lines(timings=False) == expected
    assert actual.table.total.dtype == torch.float32


def test_a_clip_without_frames_cannot_be_judged() -> None:
    rollout = _with_claims(1)
    empty = Clip(
        frames=torch.zeros(0, 100, 200, 3, dtype=torch.uint8),
        times=torch.zeros(0, dtype=torch.float64),
        start_s=0.0,
        duration=10.0,
        source="x",
        decoded_by="test",
    )
    with pytest.raises(InputError, match=r"clips: expected frames in the one called 'clip\.mp4', got none"):
        score_rollouts([rollout], clips={rollout.question.media: empty}, referee=OneScore())


def test_a_referee_that_gives_another_number_of_scores_is_a_bug() -> None:
    with pytest.raises(ValueError, match="referee: expected a score for each of 2 claims, got 1"):
        score_rollouts([_with_claims(2)], clips=Source(), referee=OneScore())
