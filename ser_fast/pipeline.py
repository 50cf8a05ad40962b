"""score_rollouts(): from completions and their videos to evidence rewards. The one place where the packages meet."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch

from ser_fast.claims import parse_claims
from ser_fast.errors import DecodeError, InputError, RefusedMedia
from ser_fast.faults import PolicyFault, SystemFault
from ser_fast.referee import Referee
from ser_fast.rewards import (
    RewardConfig,
    TimeLabels,
    answer_reward,
    claim_penalty,
    combine,
    evidence_part,
    format_reward,
    get_reward,
)
from ser_fast.types import ClaimBatch, Clip, ClipInfo, Footage, Question, RefereeRequest, RefereeScores, Rollout, ScoredRollouts
from ser_fast.video.sampling import sampled_times


class ClipSource(Protocol):
    """Where the frames of a question come from, when they are not decoded yet. `video.MediaFolder` is one."""

    def info(self, question: Question) -> ClipInfo:
        """Size, duration and frame times; raises DecodeError."""
        ...

    def load(self, question: Question, times: Sequence[float]) -> tuple[Clip, list[int | None]]:
        """A clip, and for each time the number of the frame to judge in it, None where it is missing; raises DecodeError."""
        ...


def score_rollouts(
    rollouts: Sequence[Rollout],
    *,
    clips: Mapping[str, Clip] | Sequence[Clip] | ClipSource,
    referee: Referee,
    reward: str | RewardConfig = "ser",
) -> ScoredRollouts:
    """Scores completions by their evidence, their answer and their format.

    The frames of a video are decoded once, whatever the number of its rollouts. A fault of the policy scores 0 and counts; a
    fault of the system (a file that cannot be read, a referee that fails) leaves the count, and a response of which nothing is
    left is not valid: NaN, with the reason. docs/faults.md lists them.

    Args:
        rollouts: R completions with their questions.
        clips: what the policy saw, one clip a rollout or one a media name (claims are judged in the nearest frame), or a source
            that decodes the cited frames.
        referee: judges the claims.
        reward: a preset's name or a config.

    Returns:
        One row a rollout, in order.

    Raises:
        RefusedMedia: a playlist, a script, another container, or a file beyond the limits.
        InputError: a media name that clips lacks, a clip without frames, other frames of the same window, a sampling rule that
            does not fit its video, labels that the reward needs and a question lacks (found before anything is opened).
    """
    config = get_reward(reward)
    config.check_questions([rollout.question for rollout in rollouts])
    source = _decoded(rollouts, clips) if isinstance(clips, Mapping | Sequence) else clips
    with torch.device("cpu"):  # tables stand on the host, whatever the caller's default device
        return _score(rollouts, source, referee, config)


def _score(rollouts: Sequence[Rollout], source: ClipSource, referee: Referee, config: RewardConfig) -> ScoredRollouts:
    questions = [rollout.question for rollout in rollouts]
    clock = _Clock()
    with clock("open"):
        media = [_open(rollout, source) for rollout in rollouts]
    with clock("parse"):
        claims, report = parse_claims(
            ["" if m.reason else rollout.completion for rollout, m in zip(rollouts, media, strict=True)],
            coord_space=[rollout.coord_space for rollout in rollouts],
            frame_hw=[m.info.frame_hw for m in media],
            duration_s=[m.info.horizon or m.info.duration for m in media],
        )
    faults: list[str | None] = [None] * claims.num_claims
    for r in range(len(rollouts)):
        for c in claims.responses.rows(r)[config.evidence.cap :]:
            faults[c] = str(PolicyFault.BEYOND_CAP)
    with clock("decode"):
        requests = _requests(questions, claims, media, source, faults)
    with clock("referee"):
        scores = _judge(requests, claims.num_claims, referee, faults)
    with clock("reward"):
        labels = TimeLabels(
            duration=[m.info.duration for m in media],
            frame_times=[m.frame_times for m in media],
            key_times=[q.key_times for q in questions],
            intervals=[[q.interval] if q.interval else [] for q in questions],
        )
        penalty = claim_penalty(claims, labels, config.evidence)
        evidence = evidence_part(claims, report, scores, penalty, config.evidence)
        readable = torch.tensor([m.reason is None for m in media], dtype=torch.bool)
        parts = {"evidence": evidence.reward}
        if "answer" in config.needed:
            parts["answer"] = answer_reward(report.answers, questions)
        if "format" in config.needed:
            parts["format"] = format_reward(report, claims, require_evidence=config.require_evidence)
        parts = {name: torch.where(readable, parts[name], torch.nan) for name in config.needed}
        gate = {"evidence": "answer"} if config.gate_evidence and "evidence" in config.needed else None
        table = combine(parts, {name: config.weights.get(name, 0.0) for name in config.needed}, gate=gate)
    reasons = [
        None if table.valid[r] else media[r].reason or _first_system_fault(claims, faults, r) for r in range(len(rollouts))
    ]
    return ScoredRollouts(
        rollouts=tuple(rollouts),
        table=table,
        claims=claims,
        report=report,
        scores=scores,
        penalty=penalty,
        claim_reward=evidence.claim_reward,
        faults=tuple(faults),
        reasons=tuple(reasons),
        timings=clock.seconds,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Media:
    """What is known of the media of one rollout."""

    info: ClipInfo
    frame_times: tuple[float, ...]
    """Of the frames that the policy saw."""
    reason: str | None = None
    """Why it cannot be read; the rest is then a stand-in."""


_UNREADABLE = ClipInfo(frame_hw=(1, 1), duration=0.0, times=(0.0,))


def _open(rollout: Rollout, source: ClipSource) -> _Media:
    try:
        info = source.info(rollout.question)
    except RefusedMedia:
        raise
    except DecodeError as error:
        return _Media(info=_UNREADABLE, frame_times=(0.0,), reason=f"{SystemFault.MEDIA}: {error}")
    if rollout.frame_times is not None:
        return _Media(info=info, frame_times=tuple(sorted(rollout.frame_times)))
    if rollout.sampling is None:
        return _Media(info=info, frame_times=info.times)
    try:
        return _Media(info=info, frame_times=sampled_times(info.times, rollout.sampling))
    except ValueError as error:
        if info.damage is None:
            raise InputError(f"sampling of rollout {rollout.id!r}: {error}") from error
        return _Media(info=_UNREADABLE, frame_times=(0.0,), reason=f"{SystemFault.FRAME_MISSING}: {info.damage}")


def _requests(
    questions: Sequence[Question],
    claims: ClaimBatch,
    media: Sequence[_Media],
    source: ClipSource,
    faults: list[str | None],
) -> dict[int, RefereeRequest]:
    """Claim number -> what the referee is asked. Marks claims whose frame cannot be had in faults."""
    by_footage: dict[Footage, list[tuple[int, int]]] = {}
    for r, question in enumerate(questions):
        rows = [(r, c) for c in claims.responses.rows(r) if faults[c] is None]
        by_footage.setdefault(question.footage, []).extend(rows)
    requests = {}
    times = claims.time_s.tolist()
    for members in by_footage.values():
        if not members:
            continue
        try:
            clip, frames = source.load(questions[members[0][0]], [times[c] for _, c in members])
        except RefusedMedia:
            raise
        except DecodeError as error:
            for _, c in members:
                faults[c] = f"{SystemFault.MEDIA}: {error}"
            continue
        for (r, c), frame in zip(members, frames, strict=True):
            if frame is None:
                damage = media[r].info.damage
                faults[c] = f"{SystemFault.FRAME_MISSING}: none at {times[c]:.3f} s" + (f" ({damage})" if damage else "")
                continue
            requests[c] = RefereeRequest(
                clip=clip,
                frame_idx=frame,
                boxes=tuple(claims.claim_boxes(c)),
                name=claims.name(c),
                time_s=times[c],
                question=questions[r].question,
                answer=questions[r].answer,
            )
    return dict(sorted(requests.items()))


def _judge(
    requests: Mapping[int, RefereeRequest], num_claims: int, referee: Referee, faults: list[str | None]
) -> RefereeScores:
    """One row a claim: NaN where the referee was not asked, not valid where it failed."""
    asked = torch.tensor(list(requests), dtype=torch.int64)
    relevance, localization, level_mass = torch.full((3, num_claims), torch.nan, dtype=torch.float32)
    valid = torch.zeros(num_claims, dtype=torch.bool)
    reasons: list[str | None] = list(faults)
    if requests:
        scores = referee.score(list(requests.values()))
        if len(scores.reasons) != len(requests):
            raise ValueError(f"referee: expected a score for each of {len(requests)} claims, got {len(scores.reasons)}")
        relevance[asked], localization[asked] = scores.relevance.cpu(), scores.localization.cpu()
        level_mass[asked] = scores.level_mass.cpu()
        valid[asked] = (scores.valid & _in_range(scores.relevance) & _in_range(scores.localization)).cpu()
        for c, reason in zip(requests, scores.reasons, strict=True):
            if not valid[c]:
                faults[c] = f"{SystemFault.REFEREE}: {reason or 'a score is not a number in [0, 1]'}"
                reasons[c] = faults[c]
        relevance[~valid], localization[~valid] = math.nan, math.nan
    return RefereeScores(
        relevance=relevance,
        localization=localization,
        level_mass=level_mass,
        valid=valid,
        reasons=tuple(reasons),
    )


def _in_range(score: torch.Tensor) -> torch.Tensor:
    """Whether a score is a number in [0, 1], up to rounding."""
    return (score >= -1e-5) & (score <= 1 + 1e-5)


def _first_system_fault(claims: ClaimBatch, faults: Sequence[str | None], r: int) -> str | None:
    return next((faults[c] for c in claims.responses.rows(r) if faults[c] and faults[c] not in set(PolicyFault)), None)


def _decoded(rollouts: Sequence[Rollout], clips: Mapping[str, Clip] | Sequence[Clip]) -> _Decoded:
    if isinstance(clips, Sequence) and len(clips) != len(rollouts):
        raise InputError(f"clips: expected one for each of {len(rollouts)} rollouts, got {len(clips)}")
    by_footage: dict[Footage, Clip] = {}
    for r, question in enumerate(rollout.question for rollout in rollouts):
        if isinstance(clips, Mapping) and question.media not in clips:
            raise InputError(f"clips: expected one called {question.media!r}, got none")
        clip = clips[question.media] if isinstance(clips, Mapping) else clips[r]
        if not len(clip.times):
            raise InputError(f"clips: expected frames in the one called {question.media!r}, got none")
        first = by_footage.setdefault(question.footage, clip)
        if first is not clip and not (torch.equal(first.times, clip.times) and torch.equal(first.frames, clip.frames)):
            raise InputError(f"clips: expected the same frames for all rollouts on a window of {question.media!r}, got others")
    return _Decoded(by_footage)


class _Decoded:
    """Clips that are decoded already: what the policy saw."""

    def __init__(self, clips: Mapping[Footage, Clip]) -> None:
        self.clips = clips

    def info(self, question: Question) -> ClipInfo:
        clip = self.clips[question.footage]
        return ClipInfo(frame_hw=clip.frame_hw, duration=clip.duration, times=tuple(clip.times.tolist()), damage=clip.damage)

    def load(self, question: Question, times: Sequence[float]) -> tuple[Clip, list[int | None]]:
        clip = self.clips[question.footage]
        distance = (clip.times.cpu()[None, :] - torch.tensor(times, dtype=torch.float64)[:, None]).abs()
        return clip, list(distance.argmin(dim=1).tolist())


class _Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - begin
