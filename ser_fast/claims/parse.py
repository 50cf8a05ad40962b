"""Completions -> claim tables. One scan in C++, then arithmetic on whole columns."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ser_fast import _native
from ser_fast.claims.grammar import MAX_NAME_LENGTH, MIN_SIDE_PX
from ser_fast.faults import POLICY_FAULTS, PolicyFault
from ser_fast.text import clean
from ser_fast.types import ClaimBatch, CoordSpace, ParseReport, Segments

_NO_FAULT = 0
_CODE = {fault: code for code, fault in enumerate(POLICY_FAULTS, start=1)}
_COUNTS = np.array([False, *(fault.counts for fault in POLICY_FAULTS)])


def parse_claims(
    texts: Sequence[str],
    *,
    coord_space: CoordSpace | Sequence[CoordSpace],
    frame_hw: tuple[int, int] | Sequence[tuple[int, int]],
    duration_s: float | Sequence[float],
    profile: str = "strict",
) -> tuple[ClaimBatch, ParseReport]:
    """Reads the evidence claims out of completions.

    A claim that breaks the grammar, or whose box or time cannot be, is rejected alone and with its reason; it is a fault of
    the policy and the others stand. Two things only are repaired: a box that overlaps the frame is clipped to it, and white
    space (ASCII) around any part is ignored. Linear in the length of the texts; never raises for what a text says.

    Args:
        texts: R completions.
        coord_space: what box numbers mean; one for all, or one a text.
        frame_hw: (height, width) of the frames of the clip; one for all, or one a text.
        duration_s: seconds of the clip: times must lie in [0, duration]; one for all, or one a text.
        profile: "strict".

    Returns:
        The accepted claims, boxes in pixels of the frame; and what was found in each text.

    Raises:
        TypeError: a text is not a str.
        ValueError: an unknown profile, a duration that is no number >= 0, or a list of another length than texts.
        ImportError: the compiled library is not there.

    Source: grammar of Open-o3-Video, arXiv 2510.20579; strict reading in docs/grammar.md.
    """
    if profile != "strict":
        raise ValueError(f"profile: expected 'strict', got {profile!r}")
    for r, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts[{r}]: expected a str, got {type(text).__name__}")
    spaces = _per_text("coord_space", coord_space, len(texts), one=isinstance(coord_space, CoordSpace))
    one_size = len(frame_hw) == 2 and not isinstance(frame_hw[0], Sequence)
    sizes = _per_text("frame_hw", frame_hw, len(texts), one=one_size)
    durations = _per_text("duration_s", duration_s, len(texts), one=isinstance(duration_s, numbers.Real))
    if not all(duration >= 0 for duration in durations):
        raise ValueError(f"duration_s: expected numbers >= 0, got {durations}")

    scan = _native.call("scan_claims", [text.encode("utf-8", "surrogatepass") for text in texts])
    num_claims = scan["fault"].size
    text_of_claim = np.repeat(np.arange(len(texts)), scan["claims_per_text"])
    fault = scan["fault"].astype(np.int64)
    names = _read_names(texts, text_of_claim, scan["span"], fault)
    claim_of_box = np.repeat(np.arange(num_claims), scan["boxes_per_claim"])
    frame_wh = np.array([(width, height) for height, width in sizes], dtype=np.float64).reshape(-1, 2)
    scale = frame_wh / np.array([space.extent() for space in spaces]).reshape(-1, 2)
    boxes = _place_boxes(scan["box"], scale, frame_wh, text_of_claim[claim_of_box], claim_of_box, fault)
    time = scan["time"]
    late = (time < 0) | (time > np.array(durations, dtype=np.float64)[text_of_claim])
    fault = np.where((fault == _NO_FAULT) & late, _CODE[PolicyFault.OUT_OF_CLIP], fault)

    good = fault == _NO_FAULT
    batch = _to_batch(good, text_of_claim, time, names, scan["boxes_per_claim"], boxes[good[claim_of_box]], len(texts))
    return batch, _to_report(texts, fault, text_of_claim, scan["span"], scan["layout"])


def _read_names(texts: Sequence[str], text_of_claim: np.ndarray, span: np.ndarray, fault: np.ndarray) -> dict[int, str]:
    """Claim -> name, for the claims without a fault. Marks those whose name is none, or too long, in fault."""
    written = np.flatnonzero(fault == _NO_FAULT)
    places = zip(written.tolist(), text_of_claim[written].tolist(), span[written, 2:].tolist(), strict=True)
    raw = {c: texts[r][begin:end] for c, r, (begin, end) in places}
    cleaned = {text: clean(text) for text in set(raw.values())}
    names = {c: cleaned[text] for c, text in raw.items()}
    for c, name in names.items():
        if not 0 < len(name) <= MAX_NAME_LENGTH:
            fault[c] = _CODE[PolicyFault.LONG_NAME if name else PolicyFault.MISSING_NAME]
    return names


def _per_text(name: str, value: Any, num_texts: int, *, one: bool) -> list[Any]:
    values = [value] * num_texts if one else list(value)
    if len(values) != num_texts:
        raise ValueError(f"{name}: expected one value, or one for each of {num_texts} texts, got {len(values)}")
    return values


def _place_boxes(
    raw: np.ndarray,
    scale: np.ndarray,
    frame_wh: np.ndarray,
    text_of_box: np.ndarray,
    claim_of_box: np.ndarray,
    fault: np.ndarray,
) -> np.ndarray:
    """Boxes in pixels of the frame, clipped to it. Marks the claims of boxes that cannot be in fault."""
    with np.errstate(over="ignore"):  # 1e308 in thousandths of a frame is as far outside as infinity
        corners = raw.reshape(-1, 2, 2) * scale[text_of_box][:, None]
    limit = frame_wh[text_of_box]
    low, high = corners[:, 0], corners[:, 1]
    problems = {
        PolicyFault.INVERTED_BOX: (high < low).any(1),
        PolicyFault.EMPTY_BOX: (high == low).any(1),
        PolicyFault.OUT_OF_FRAME: ((high <= 0) | (low >= limit)).any(1),
    }
    for reason, bad in problems.items():
        claims = claim_of_box[bad]
        fault[claims] = np.where(fault[claims] == _NO_FAULT, _CODE[reason], fault[claims])
    clipped = np.clip(corners, 0, limit[:, None])
    hull_low = np.full((fault.size, 2), np.inf)
    hull_high = np.full((fault.size, 2), -np.inf)
    np.minimum.at(hull_low, claim_of_box, clipped[:, 0])
    np.maximum.at(hull_high, claim_of_box, clipped[:, 1])
    small = (hull_high - hull_low < MIN_SIDE_PX).any(1)
    fault[small & (fault == _NO_FAULT)] = _CODE[PolicyFault.TOO_SMALL]
    return clipped.reshape(-1, 4)


def _to_batch(
    good: np.ndarray,
    text_of_claim: np.ndarray,
    time: np.ndarray,
    names: dict[int, str],
    boxes_per_claim: np.ndarray,
    boxes: np.ndarray,
    num_texts: int,
) -> ClaimBatch:
    name_ids: dict[str, int] = {}
    name_id = [name_ids.setdefault(names[c], len(name_ids)) for c in np.flatnonzero(good).tolist()]
    return ClaimBatch(
        responses=Segments.from_lengths(np.bincount(text_of_claim[good], minlength=num_texts).tolist()),
        time_s=torch.from_numpy(time[good].astype(np.float32)),
        name_id=torch.tensor(name_id, dtype=torch.int32),
        names=tuple(name_ids),
        boxes=Segments.from_lengths(boxes_per_claim[good].tolist()),
        box_xyxy=torch.from_numpy(boxes.astype(np.float32)),
    )


def _to_report(
    texts: Sequence[str], fault: np.ndarray, text_of_claim: np.ndarray, span: np.ndarray, layout: np.ndarray
) -> ParseReport:
    bad = fault != _NO_FAULT
    counts = _COUNTS[fault]
    think_begin, _, answer_begin, answer_end, balanced = layout.T.tolist()
    return ParseReport(
        texts=tuple(texts),
        rejected=Segments.from_lengths(np.bincount(text_of_claim[bad], minlength=len(texts)).tolist()),
        reason=torch.from_numpy((fault[bad] - 1).astype(np.int8)),
        span=torch.from_numpy(span[bad, :2]),
        num_faults=torch.from_numpy(np.bincount(text_of_claim[counts], minlength=len(texts))),
        has_think=tuple(begin >= 0 for begin in think_begin),
        balanced=tuple(map(bool, balanced)),
        answers=tuple(
            text[begin:end].strip() if begin >= 0 else None
            for text, begin, end in zip(texts, answer_begin, answer_end, strict=True)
        ),
    )
