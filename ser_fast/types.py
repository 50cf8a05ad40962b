"""The data that crosses packages. Importing this module imports neither torch nor numpy.

Tables are struct of arrays; ragged data carries its offsets twice, on the device and on the host, so that no size is ever
read back from a device. Letters: R responses, C claims, B boxes, F frames.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from ser_fast.faults import POLICY_FAULTS, PolicyFault
from ser_fast.numbers import is_finite_number, is_whole_number, shortest_float32
from ser_fast.text import escape_surrogates

if TYPE_CHECKING:
    import torch

MAX_SIDE = 1_000_000
"""No image is higher or wider."""

Box = tuple[float, float, float, float]
"""x1, y1, x2, y2; the origin is the top left corner of the frame."""

BoxConvention = Literal["pixels", "norm1000"]
"""How a model family writes boxes: pixels of the resized frame that it sees, or thousandths of the frame."""


class _ShapeRepr:
    """Prints shapes instead of data."""

    __slots__ = ()

    def __repr__(self) -> str:
        parts = []
        for item in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if hasattr(value, "shape") and hasattr(value, "dtype"):
                text = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
            elif isinstance(value, (tuple, list)) and len(value) > 8:
                text = f"<{len(value)} items>"
            else:
                text = repr(value)
            parts.append(f"{item.name}={text}")
        return f"{type(self).__name__}({', '.join(parts)})"


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Segments(_ShapeRepr):
    """G consecutive runs of rows in a flat table: run g is rows offsets[g] to offsets[g + 1] - 1."""

    offsets: torch.Tensor
    """int64[G+1], starts at 0, never falls."""
    host: tuple[int, ...]
    """The same numbers on the host."""

    def __post_init__(self) -> None:
        import torch

        if torch.compiler.is_compiling():  # lengths are symbols there
            return
        rising = all(is_whole_number(n) for n in self.host) and list(self.host) == sorted(self.host)
        if not rising or self.host[:1] != (0,):
            raise ValueError(f"host: expected whole numbers that start at 0 and never fall, got {self.host!r:.80}")
        if self.offsets.dtype != torch.int64 or self.offsets.shape != (len(self.host),):
            got = f"{self.offsets.dtype}{list(self.offsets.shape)}".removeprefix("torch.")
            raise ValueError(f"offsets: expected int64[{len(self.host)}], got {got}")
        if self.offsets.device.type == "cpu" and self.offsets.tolist() != list(self.host):
            raise ValueError(f"offsets: expected those of host, {self.host!r:.80}, got {self.offsets.tolist()!r:.80}")

    @classmethod
    def from_lengths(cls, lengths: Iterable[int], *, device: torch.device | str = "cpu") -> Segments:
        """Builds segments from the number of rows in each run.

        Raises:
            ValueError: a length is negative or no whole number.
        """
        import torch

        lengths = list(lengths)
        if not all(is_whole_number(n) and n >= 0 for n in lengths):
            raise ValueError(f"lengths: expected whole numbers >= 0, got {lengths!r:.80}")
        host = (0, *itertools.accumulate(lengths))
        return cls(offsets=torch.tensor(host, dtype=torch.int64, device=device), host=host)

    def __len__(self) -> int:
        return len(self.host) - 1

    @property
    def num_rows(self) -> int:
        """Of all runs together."""
        return self.host[-1]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Rows in each run."""
        return tuple(b - a for a, b in itertools.pairwise(self.host))

    def rows(self, g: int) -> range:
        """The row numbers of run g."""
        return range(self.host[g], self.host[g + 1])

    def slice(self, g: int) -> slice:
        """The rows of run g, to index a table with."""
        return slice(self.host[g], self.host[g + 1])


@dataclass(frozen=True, kw_only=True, slots=True)
class CoordSpace:
    """What the numbers of a box mean: always stated, never guessed from the numbers."""

    kind: Literal["pixels", "norm1", "norm1000"]
    """`pixels` of an image of `height` x `width` (as a rule the resized frame that the policy saw), or fractions of the
    frame (`norm1`), or thousandths of it (`norm1000`)."""
    height: int | None = None
    width: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("pixels", "norm1", "norm1000"):
            raise ValueError(f"coord_space.kind: expected 'pixels', 'norm1' or 'norm1000', got {self.kind!r}")
        for name in ("height", "width"):
            value = getattr(self, name)
            if self.kind == "pixels" and not (is_whole_number(value) and 0 < value <= MAX_SIDE):
                raise ValueError(f"coord_space.{name}: expected a whole number > 0 for 'pixels', got {value!r:.80}")
            if self.kind != "pixels" and value is not None:
                raise ValueError(f"coord_space.{name}: expected none for {self.kind!r}, got {value!r}")

    @classmethod
    def from_json(cls, value: object) -> CoordSpace:
        """Reads `{"kind": "pixels", "height": 360, "width": 640}`, `{"kind": "norm1"}` or `{"kind": "norm1000"}`."""
        if not isinstance(value, Mapping):
            raise ValueError(f"coord_space: expected an object with a 'kind', got {value!r}")
        unknown = set(value) - {"kind", "height", "width"}
        if unknown or "kind" not in value:
            raise ValueError(f"coord_space: expected the keys kind, height, width, got {sorted(map(str, value))}")
        return cls(**value)

    def to_json(self) -> dict[str, Any]:
        """The inverse of `from_json`."""
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None}

    def extent(self) -> tuple[float, float]:
        """(width, height) of the whole frame in this space."""
        if self.kind == "pixels":
            assert self.width is not None and self.height is not None
            return float(self.width), float(self.height)
        full = 1.0 if self.kind == "norm1" else 1000.0
        return full, full


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Clip(_ShapeRepr):
    """Decoded frames of one video, or one image. Times share the clock of labels, claims and annotations."""

    frames: torch.Tensor
    """uint8[F,H,W,3], RGB."""
    times: torch.Tensor
    """float64[F], ascending: presentation time of each frame minus that of the first displayed frame, in seconds."""
    start_s: float
    """What was taken off: the presentation time of the first displayed frame in the file."""
    duration: float
    """Seconds from the first displayed frame to the end of the last; 0 for an image."""
    source: str
    decoded_by: str
    """"pyav-cpu", "pillow", ..."""
    damage: str | None = None
    """Why frames that the file promises are missing; None where all are there."""

    def __post_init__(self) -> None:
        if self.frames.ndim != 4 or self.frames.shape[-1] != 3 or str(self.frames.dtype) != "torch.uint8":
            raise ValueError(f"frames: expected uint8[F,H,W,3], got {self.frames.dtype}{list(self.frames.shape)}")
        if self.times.shape != self.frames.shape[:1] or str(self.times.dtype) != "torch.float64":
            raise ValueError(f"times: expected float64[{self.frames.shape[0]}], got {self.times.dtype}{list(self.times.shape)}")
        times = self.times.tolist()
        if not all(map(math.isfinite, times)) or times != sorted(times):
            raise ValueError(f"times: expected finite numbers that ascend, got {times!r:.80}")
        if not 0 <= self.duration < math.inf:
            raise ValueError(f"duration: expected a number >= 0, got {self.duration}")

    @property
    def frame_hw(self) -> tuple[int, int]:
        """(height, width) of the frames."""
        return int(self.frames.shape[1]), int(self.frames.shape[2])


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ClipInfo(_ShapeRepr):
    """What is known of a video or an image without decoding it."""

    frame_hw: tuple[int, int]
    duration: float
    """As `Clip.duration`."""
    times: tuple[float, ...]
    """Presentation times of all its frames, as `Clip.times`."""
    damage: str | None = None
    """As `Clip.damage`."""
    horizon: float | None = None
    """Seconds up to which the video may have gone on, where the file is cut off and does not say how long it was."""


class Task(StrEnum):
    """What a question asks for."""

    FREE_FORM = "free-form"
    MCQ = "mcq"
    TEMPORAL = "temporal"
    TEMPORAL_MCQ = "temporal-mcq"
    SPATIO_TEMPORAL = "spatio-temporal"
    IMAGE_GROUNDING = "image-grounding"


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question about a video or an image, with whatever labels its data set has."""

    id: str
    question: str
    answer: str
    task: Task
    video: str | None = None
    """Path below the media folder; exactly one of video and image is given."""
    image: str | None = None
    options: tuple[str, ...] = ()
    start: float | None = None
    """The window of the video that is asked about, in seconds."""
    end: float | None = None
    key_times: tuple[float, ...] = ()
    """Seconds at which the evidence is known to be visible."""
    interval: tuple[float, float] | None = None
    """The time span that answers the question."""
    boxes: tuple[Mapping[str, Any], ...] = ()
    """True boxes as the data gives them: `{"time_s", "box": [x1, y1, x2, y2] in fractions of the frame, "name"?}`."""

    @property
    def media(self) -> str:
        """The name of the video or of the image."""
        media = self.video if self.video is not None else self.image
        assert media is not None
        return media


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """Which frames a policy saw, as a rule: `fps` frames a second of the window, at most `max_frames`, evenly spread."""

    fps: float
    max_frames: int | None = None
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """One completion of one question."""

    question: Question
    completion: str
    coord_space: CoordSpace
    group: str
    """Rollouts of one prompt share it."""
    frame_times: tuple[float, ...] | None = None
    """Seconds of the frames that the policy saw; or `sampling` says how they were chosen."""
    sampling: Sampling | None = None
    truncated: bool = False
    """The completion hit its length limit."""

    def __post_init__(self) -> None:
        times = self.frame_times
        if times is not None and (not times or not all(is_finite_number(t) and t >= 0 for t in times)):
            raise ValueError(f"frame_times: expected at least one number, all >= 0, got {list(times)!r:.80}")

    @property
    def id(self) -> str:
        """Of its question line."""
        return self.question.id


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ClaimBatch(_ShapeRepr):
    """The accepted claims of R responses, in the order of the text. Boxes are pixels of the frame, clipped to it."""

    responses: Segments
    """R -> C."""
    time_s: torch.Tensor
    """float32[C]."""
    name_id: torch.Tensor
    """int32[C], index into names."""
    names: tuple[str, ...]
    boxes: Segments
    """C -> B, one to four boxes a claim."""
    box_xyxy: torch.Tensor
    """float32[B,4]."""

    @property
    def num_claims(self) -> int:
        """C."""
        return self.responses.num_rows

    def name(self, c: int) -> str:
        """What claim c says that it sees."""
        return self.names[int(self.name_id[c])]

    def claim_boxes(self, c: int) -> list[Box]:
        """The boxes of claim c, on the host."""
        return [tuple(row) for row in self.box_xyxy[self.boxes.slice(c)].tolist()]


@dataclass(frozen=True, kw_only=True, slots=True)
class RejectedClaim:
    """A claim that counts for nothing, and why."""

    reason: PolicyFault
    text: str
    begin: int
    """Position of the text in the completion, in characters."""
    end: int


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ParseReport(_ShapeRepr):
    """What parsing found in R responses besides the accepted claims; Q letters the rejected ones."""

    texts: tuple[str, ...]
    rejected: Segments
    """R -> Q, in the order of the text."""
    reason: torch.Tensor
    """int8[Q], index into POLICY_FAULTS."""
    span: torch.Tensor
    """int64[Q,2]: first character of the rejected text and the one behind its last."""
    num_faults: torch.Tensor
    """int64[R]: rejected claims that enter n."""
    has_think: tuple[bool, ...]
    """The first think block is complete."""
    balanced: tuple[bool, ...]
    """As many opening as closing tags of each kind: think and answer anywhere; obj, box and t inside the think block."""
    answers: tuple[str | None, ...]
    """Text of the first complete answer block, stripped; None where there is none."""

    def __len__(self) -> int:
        return len(self.texts)

    def rejected_claims(self, r: int) -> list[RejectedClaim]:
        """The rejected claims of response r."""
        rows = self.rejected.slice(r)
        return [
            RejectedClaim(reason=POLICY_FAULTS[code], text=self.texts[r][begin:end], begin=begin, end=end)
            for code, (begin, end) in zip(self.reason[rows].tolist(), self.span[rows].tolist(), strict=True)
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class RefereeRequest:
    """One claim, put to a referee."""

    clip: Clip
    frame_idx: int
    """The frame of the clip in which the claim is judged."""
    boxes: tuple[Box, ...]
    """Pixels of that frame. The referee's crop is their hull with a margin."""
    name: str
    time_s: float
    question: str
    answer: str

    def __post_init__(self) -> None:
        if not 0 <= self.frame_idx < self.clip.frames.shape[0]:
            raise ValueError(f"frame_idx: expected 0 <= index < {self.clip.frames.shape[0]}, got {self.frame_idx}")
        height, width = self.clip.frame_hw
        inside = (0 <= x1 < x2 <= width and 0 <= y1 < y2 <= height for x1, y1, x2, y2 in self.boxes)
        if not self.boxes or not all(inside):
            raise ValueError(f"boxes: expected non-empty ones inside a frame of {height} x {width}, got {self.boxes}")


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class RefereeScores(_ShapeRepr):
    """A referee's judgement of C claims."""

    relevance: torch.Tensor
    """float32[C] in [0, 1]: is the object needed for the answer."""
    localization: torch.Tensor
    """float32[C] in [0, 1]: does the box hold it, tightly."""
    level_mass: torch.Tensor
    """float32[C]: probability on the level tokens before renormalising, the smaller of the two axes. Near 0 the referee does
    not answer in levels, and its scores mean nothing."""
    valid: torch.Tensor
    """bool[C]."""
    reasons: tuple[str | None, ...]
    """Why a claim is not valid."""

    def __post_init__(self) -> None:
        num = len(self.reasons)
        for name in ("relevance", "localization", "level_mass", "valid"):
            value, kind = getattr(self, name), "bool" if name == "valid" else "float32"
            if value.shape != (num,) or str(value.dtype) != f"torch.{kind}":
                got = f"{value.dtype}{list(value.shape)}".removeprefix("torch.")
                raise ValueError(f"{name}: expected {kind}[{num}], as many as reasons, got {got}")


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class RewardTable(_ShapeRepr):
    """Rewards of R responses. What cannot be scored is NaN, never 0."""

    total: torch.Tensor
    """float32[R]: weighted sum of the parts; NaN where valid is False."""
    parts: Mapping[str, torch.Tensor]
    """name -> float32[R], unweighted; NaN where system faults leave nothing to score."""
    valid: torch.Tensor
    """bool[R]: no part that has a weight is NaN."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ScoredRollouts(_ShapeRepr):
    """The outcome of `score_rollouts`, row by row the rollouts that went in."""

    rollouts: tuple[Rollout, ...]
    table: RewardTable
    claims: ClaimBatch
    report: ParseReport
    scores: RefereeScores
    """One row a claim; NaN for claims that were not put to the referee."""
    penalty: torch.Tensor
    """float32[C] in [0, 1]: temporal penalty."""
    claim_reward: torch.Tensor
    """float32[C]; 0 for a policy fault, NaN for a system fault."""
    faults: tuple[str | None, ...]
    """Per claim: a `PolicyFault`, a `SystemFault` with its details, or None where the claim was scored."""
    reasons: tuple[str | None, ...]
    """Per response: why it is not valid."""
    timings: Mapping[str, float] = field(default_factory=dict)
    """Seconds by stage, for the whole batch."""

    def __len__(self) -> int:
        return len(self.rollouts)

    def to_json_lines(self, *, timings: bool = True) -> list[str]:
        """One JSON object a response, in the order of the rollouts; `timings=False` leaves out what differs from run to run."""
        return [self._json_line(r, timings) for r in range(len(self))]

    def _json_line(self, r: int, timings: bool) -> str:
        line: dict[str, Any] = {
            "schema": 1,
            "id": self.rollouts[r].id,
            "valid": bool(self.table.valid[r]),
            "total": _json_number(self.table.total[r]),
            "parts": {name: _json_number(part[r]) for name, part in self.table.parts.items()},
            "reason": self.reasons[r],
            "claims": [self._json_claim(c) for c in self.claims.responses.rows(r)],
            "rejected": [{"reason": str(claim.reason), "text": claim.text} for claim in self.report.rejected_claims(r)],
        }
        if timings:
            line["timings"] = {stage: round(seconds, 6) for stage, seconds in self.timings.items()}
        return escape_surrogates(json.dumps(line, ensure_ascii=False))

    def _json_claim(self, c: int) -> dict[str, Any]:
        return {
            "name": self.claims.name(c),
            "time_s": shortest_float32(float(self.claims.time_s[c])),
            "boxes": [[shortest_float32(value) for value in box] for box in self.claims.claim_boxes(c)],
            "relevance": _json_number(self.scores.relevance[c]),
            "localization": _json_number(self.scores.localization[c]),
            "penalty": _json_number(self.penalty[c]),
            "reward": _json_number(self.claim_reward[c]),
            "fault": self.faults[c],
        }


def _json_number(value: torch.Tensor) -> float | None:
    """A float32 score or reward to seven digits; None for NaN, which JSON does not have."""
    number = float(value)
    return None if math.isnan(number) else float(f"{number:.7g}")
