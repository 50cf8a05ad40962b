"""What parsing makes of completions. Letters: R responses, C claims, B boxes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ser_fast.faults import POLICY_FAULTS, PolicyFault
from ser_fast.types.media import Box
from ser_fast.types.tables import Segments, ShapeRepr

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ClaimBatch(ShapeRepr):
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
class ParseReport(ShapeRepr):
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
