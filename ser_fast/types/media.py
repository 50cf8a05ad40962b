"""Frames, their times, and what the numbers of a box mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from ser_fast.numbers import is_whole_number
from ser_fast.types.tables import ShapeRepr

if TYPE_CHECKING:
    import torch

MAX_SIDE = 1_000_000
"""No image is higher or wider."""

Box = tuple[float, float, float, float]
"""x1, y1, x2, y2; the origin is the top left corner of the frame."""

BoxConvention = Literal["pixels", "norm1000"]
"""How a model family writes boxes: pixels of the resized frame that it sees, or thousandths of the frame."""


def hull(boxes: Sequence[Box]) -> Box:
    """The smallest box that holds all of them; at least one."""
    return min(b[0] for b in boxes), min(b[1] for b in boxes), max(b[2] for b in boxes), max(b[3] for b in boxes)


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
        return {k: v for k, v in asdict(self).items() if v is not None}

    def extent(self) -> tuple[float, float]:
        """(width, height) of the whole frame in this space."""
        if self.kind == "pixels":
            assert self.width is not None and self.height is not None
            return float(self.width), float(self.height)
        full = 1.0 if self.kind == "norm1" else 1000.0
        return full, full


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Clip(ShapeRepr):
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
class ClipInfo(ShapeRepr):
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
