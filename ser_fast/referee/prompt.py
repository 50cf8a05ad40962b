"""What the referee is shown and asked, as token trees: a frame, the claims on it, two questions about each claim.

    root      chat header, frame, question, reference answer
      claim     name, time, box as text, enlarged crop
        leaf      how relevant?   ... the level token is due
        leaf      how well placed? ... the level token is due

The wording is ours; the shape (full view, crop view, two axes in levels, answer-conditioned) follows the description of SER.
Texts from outside (names, questions, answers) are data: they are tokenised with special-token parsing off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ser_fast.numbers import is_whole_number
from ser_fast.ops import PatchSpec
from ser_fast.packing import Segment
from ser_fast.referee.loading import PromptTokens
from ser_fast.referee.views import View
from ser_fast.text import clean
from ser_fast.types import Box, BoxConvention, RefereeRequest, hull

SYSTEM = "You check visual evidence. You answer with a single digit and nothing else."

ROOT = "A frame of a video:\n{image}\nQuestion: {question}\nReference answer: {answer}\n"

CLAIM = "Cited evidence: {name}\nAt {time} s, in the box {boxes} (x1, y1, x2, y2 in {unit}), enlarged:\n{image}\n"

RELEVANCE = "Does the answer depend on this evidence? Rate it from 0 (unrelated) to {top} (entirely)."

LOCALIZATION = "Does the box hold this evidence? Rate it from 0 (not at all) to {top} (whole and tight)."


@dataclass(frozen=True, kw_only=True, slots=True)
class RefereeConfig:
    """Every number is a default of ours: the referee of the SER paper is not public."""

    levels: int = 5
    """The referee answers 0 to levels - 1; scores are the expectation over these tokens divided by levels - 1."""
    crop_margin: float = 0.10
    """Added to the hull of the boxes on each side, as a share of that side."""
    min_crop_margin_px: int = 10
    """At least this much, in pixels of the frame."""
    min_crop_side_px: int = 112
    """Smaller crops are enlarged until their shorter side has this length."""
    max_crop_ratio: float = 16.0
    """Thinner crops are widened, as far as the frame allows."""
    max_frame_pixels: int = 512 * 28 * 28
    max_crop_pixels: int = 256 * 28 * 28
    max_row_tokens: int = 4096
    """A tree that would be longer is split; the claims of one frame then share several copies of it."""
    max_batch_tokens: int = 8192
    """Tokens of one forward pass, padding included."""

    def __post_init__(self) -> None:
        if not is_whole_number(self.levels) or not 2 <= self.levels <= 10:
            raise ValueError(f"levels: expected 2 to 10, got {self.levels}")
        for name in ("crop_margin", "min_crop_margin_px"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name}: expected a number >= 0, got {getattr(self, name)}")
        if not self.max_crop_ratio >= 1:
            raise ValueError(f"max_crop_ratio: expected a number >= 1, got {self.max_crop_ratio}")
        for name in ("min_crop_side_px", "max_frame_pixels", "max_crop_pixels", "max_row_tokens", "max_batch_tokens"):
            if not is_whole_number(getattr(self, name)) or getattr(self, name) < 1:
                raise ValueError(f"{name}: expected a whole number > 0, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimTree:
    """The claims on one frame under one question."""

    segments: tuple[Segment, ...]
    views: tuple[tuple[View, ...], ...]
    """Images of each segment."""
    requests: tuple[int, ...]
    """Which request each claim is."""
    leaves: tuple[tuple[int, int], ...]
    """Segments that end where the relevance and the localization level of each claim are due."""

    @property
    def num_tokens(self) -> int:
        """Of all segments."""
        return sum(len(segment.ids) for segment in self.segments)


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptBuilder:
    """Requests -> trees, for one model."""

    tokens: PromptTokens
    spec: PatchSpec
    convention: BoxConvention
    config: RefereeConfig

    def trees(self, requests: Sequence[RefereeRequest]) -> list[ClaimTree]:
        """Groups requests by frame and question. No tree is longer than max_row_tokens unless one claim alone is."""
        groups: dict[tuple[int, int, str, str], list[int]] = {}
        for i, request in enumerate(requests):
            key = (id(request.clip), request.frame_idx, request.question, request.answer)
            groups.setdefault(key, []).append(i)
        trees = []
        for members in groups.values():
            root, root_views = self.root(requests[members[0]])
            branches = [(i, self.branch(requests[i])) for i in members]
            while branches:
                num_tokens, count = len(root.ids), 0
                for _, (segments, _) in branches:
                    num_tokens += sum(len(segment.ids) for segment in segments)
                    if count and num_tokens > self.config.max_row_tokens:
                        break
                    count += 1
                trees.append(_join(root, root_views, branches[:count]))
                branches = branches[count:]
        return trees

    def root(self, request: RefereeRequest) -> tuple[Segment, tuple[View, ...]]:
        """Chat header, frame, question and reference answer."""
        height, width = request.clip.frame_hw
        size = self.spec.fit(height, width, max_pixels=self.config.max_frame_pixels)
        view = View(clip=request.clip, frame_idx=request.frame_idx, box=(0, 0, width, height), size=size)
        texts = {"question": clean(request.question), "answer": clean(request.answer)}
        return self._segment(self.tokens.header, ROOT, texts, view, ()), (view,)

    def branch(self, request: RefereeRequest) -> tuple[tuple[Segment, Segment, Segment], View]:
        """The claim with its crop, and the two questions about it; parents are relative to a tree of one claim."""
        height, width = request.clip.frame_hw
        box = crop_box(request.boxes, (height, width), self.config)
        view = View(clip=request.clip, frame_idx=request.frame_idx, box=box, size=self._crop_size(box))
        frame_size = self.spec.fit(height, width, max_pixels=self.config.max_frame_pixels)
        texts = {
            "time": f"{request.time_s:.2f}",
            "name": clean(request.name),
            "unit": "pixels" if self.convention == "pixels" else "thousandths of the frame",
            "boxes": box_text(request.boxes, self.convention, (height, width), frame_size),
        }
        claim = self._segment((), CLAIM, texts, view, (), parent=0)
        top = {"top": str(self.config.levels - 1)}
        leaves = [self._segment((), text, top, None, self.tokens.trailer, parent=1) for text in (RELEVANCE, LOCALIZATION)]
        return (claim, leaves[0], leaves[1]), view

    def _crop_size(self, box: tuple[int, int, int, int]) -> tuple[int, int]:
        width, height = box[2] - box[0], box[3] - box[1]
        enlarge = max(1.0, self.config.min_crop_side_px / min(height, width))
        sides = math.ceil(height * enlarge), math.ceil(width * enlarge)
        return self.spec.fit(*sides, max_pixels=self.config.max_crop_pixels)

    def _segment(
        self,
        before: tuple[int, ...],
        template: str,
        texts: dict[str, str],
        view: View | None,
        after: tuple[int, ...],
        parent: int | None = None,
    ) -> Segment:
        """Fills a template. Texts go in after the template is split at the image, so none of them can move it."""
        parts = template.split("{image}")
        ids = [*before, *self.tokens.encode(parts[0].format(**texts))]
        if view is not None:
            num_tokens = self.spec.num_tokens(*view.size)
            ids += [self.tokens.image_start, *[self.tokens.image] * num_tokens, self.tokens.image_end]
            ids += self.tokens.encode(parts[1].format(**texts))
        grids = (self.spec.grid(*view.size),) if view is not None else ()
        return Segment(ids=(*ids, *after), grids=grids, parent=parent)


def _join(
    root: Segment, root_views: tuple[View, ...], branches: Sequence[tuple[int, tuple[tuple[Segment, ...], View]]]
) -> ClaimTree:
    segments, views = [root], [root_views]
    leaves = []
    for _, (branch, view) in branches:
        at = len(segments)
        claim, *rest = branch
        segments.append(claim)
        segments += [Segment(ids=leaf.ids, grids=leaf.grids, parent=at) for leaf in rest]
        views += [(view,), (), ()]
        leaves.append((at + 1, at + 2))
    return ClaimTree(
        segments=tuple(segments),
        views=tuple(views),
        requests=tuple(i for i, _ in branches),
        leaves=tuple(leaves),
    )


def crop_box(boxes: Sequence[Box], frame_hw: tuple[int, int], config: RefereeConfig) -> tuple[int, int, int, int]:
    """The hull of the boxes with its margin, widened where it is too thin, inside the frame: whole pixels, half open."""
    height, width = frame_hw
    x1, y1, x2, y2 = hull(boxes)
    margin_x = max(config.min_crop_margin_px, config.crop_margin * (x2 - x1))
    margin_y = max(config.min_crop_margin_px, config.crop_margin * (y2 - y1))
    x1, y1, x2, y2 = x1 - margin_x, y1 - margin_y, x2 + margin_x, y2 + margin_y
    widen_x = max(0.0, (y2 - y1) / config.max_crop_ratio - (x2 - x1)) / 2
    widen_y = max(0.0, (x2 - x1) / config.max_crop_ratio - (y2 - y1)) / 2
    left, top = max(0, math.floor(x1 - widen_x)), max(0, math.floor(y1 - widen_y))
    return left, top, min(width, math.ceil(x2 + widen_x)), min(height, math.ceil(y2 + widen_y))


def box_text(boxes: Sequence[Box], convention: BoxConvention, frame_hw: tuple[int, int], size: tuple[int, int]) -> str:
    """Boxes in pixels of the frame -> text in the referee's own convention; size is (height, width) of the frame it sees."""
    extent = size if convention == "pixels" else (1000, 1000)
    scale_y, scale_x = extent[0] / frame_hw[0], extent[1] / frame_hw[1]
    rows = [[round(x1 * scale_x), round(y1 * scale_y), round(x2 * scale_x), round(y2 * scale_y)] for x1, y1, x2, y2 in boxes]
    return ", ".join(str(row) for row in rows)
