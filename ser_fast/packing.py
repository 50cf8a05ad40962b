"""Prefix trees -> packed rows: ids, positions and a mask, so that shared prefixes are computed once.

A tree of segments (say a frame, the claims on it, the questions about each claim) is laid out in one row, parents before
children. Each token sees its own segment up to itself and all ancestors of that segment, and its position is what it would be
if the path from the root were a text of its own. The stock Qwen-VL models take such rows as they are: a 4-D mask and explicit
position ids. Letters: B rows, T tokens of the longest row, S segments of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

Grid = tuple[int, int, int]
"""(1, rows, columns) of patches of an image."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A run of tokens that continues its parent."""

    ids: tuple[int, ...]
    grids: tuple[Grid, ...] = ()
    """Of the images whose placeholder tokens stand in ids, in their order."""
    parent: int | None = None
    """Index of an earlier segment of the same row; None starts at position 0 and sees no other segment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeLevel:
    """The N segments of one depth, padded to Q tokens, and the tokens of their paths, padded to K. Tokens are numbered through
    the rows: row times T plus column."""

    queries: torch.Tensor
    """int64[N,Q]; padding repeats a token of the segment."""
    keys: torch.Tensor
    """int64[N,K]: the ancestors from the root on, then the segment."""
    mask: torch.Tensor
    """bool[N,Q,K]: True where a query may look."""
    real: torch.Tensor
    """int64: which of the N x Q queries are no padding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedRows:
    """What a Qwen-VL model needs for B rows at once. Rows are padded on the right; padding sees itself only."""

    input_ids: torch.Tensor
    """int64[B,T]."""
    position_ids: torch.Tensor
    """int64[3,B,T]: temporal, height, width."""
    segment_ids: torch.Tensor
    """int64[B,T]; -1 on padding."""
    spans: tuple[tuple[tuple[int, int], ...], ...]
    """For each row and segment: its first token and the one behind its last."""
    paths: tuple[tuple[tuple[int, ...], ...], ...]
    """For each row and segment: the segments from its root to itself, which are those that it sees."""

    def levels(self) -> list[TreeLevel]:
        """The same sight as `mask`, by depth: the roots, their children, and so on."""
        num_tokens = self.input_ids.shape[1]
        by_depth: dict[int, list[list[range]]] = {}
        for b, paths in enumerate(self.paths):
            runs = [range(b * num_tokens + first, b * num_tokens + last) for first, last in self.spans[b]]
            for path in paths:
                by_depth.setdefault(len(path), []).append([runs[s] for s in path])
        return [_level(by_depth[depth], self.input_ids.device) for depth in sorted(by_depth)]

    def mask(self) -> torch.Tensor:
        """bool[B,1,T,T], True where a query may look: what SDPA takes."""
        segment = self.segment_ids.clamp(min=0)
        num_tokens, num_segments = segment.shape[1], max(map(len, self.paths))
        visible = torch.zeros(len(self.paths), num_segments, num_segments, dtype=torch.bool)
        for b, paths in enumerate(self.paths):
            for s, path in enumerate(paths):
                visible[b, s, list(path)] = True
        visible = visible.to(segment.device)
        row = torch.arange(segment.shape[0], device=segment.device)[:, None, None]
        seen = visible[row, segment[:, :, None], segment[:, None, :]]
        padding = self.segment_ids < 0
        seen = seen & ~padding[:, :, None] & ~padding[:, None, :]
        order = torch.arange(num_tokens, device=segment.device)
        seen &= order[:, None] >= order[None, :]
        seen |= torch.eye(num_tokens, dtype=torch.bool, device=segment.device)
        return seen[:, None]

    def last_tokens(self, leaves: Sequence[tuple[int, int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Where the given (row, segment) pairs end: int64[N] rows and int64[N] columns of their last tokens."""
        device = self.input_ids.device
        rows = torch.tensor([row for row, _ in leaves], dtype=torch.int64, device=device)
        columns = torch.tensor([self.spans[row][s][1] - 1 for row, s in leaves], dtype=torch.int64, device=device)
        return rows, columns


def pack_rows(
    rows: Sequence[Sequence[Segment]], *, image_token_id: int, merge_size: int, device: torch.device | str = "cpu"
) -> PackedRows:
    """Lays out one tree (or several) a row.

    Images keep the multimodal positions of the Qwen-VL family: the three axes of an image start at the position due, and the
    text behind it goes on after its longer side. The vision features must come in the order of `image_order`.

    Raises:
        ValueError: no rows, an empty row or segment, a parent that is not an earlier segment, or placeholder tokens that do
            not fit the grids.
    """
    if not rows or not all(rows):
        raise ValueError("rows: expected at least one row, and segments in each")
    num_tokens = max(sum(len(segment.ids) for segment in row) for row in rows)
    padding_id = 0 if image_token_id != 0 else 1  # padding must not pass for an image
    input_ids = torch.full((len(rows), num_tokens), padding_id, dtype=torch.int64)
    position_ids = torch.zeros(3, len(rows), num_tokens, dtype=torch.int64)
    segment_ids = torch.full((len(rows), num_tokens), -1, dtype=torch.int64)
    spans, paths = [], []
    for b, row in enumerate(rows):
        row_spans: list[tuple[int, int]] = []
        next_position: list[int] = []
        first = 0
        for s, segment in enumerate(row):
            where = f"rows[{b}][{s}]"
            if segment.parent is not None and not 0 <= segment.parent < s:
                raise ValueError(f"{where}: expected a parent before it, got {segment.parent}")
            start = 0 if segment.parent is None else next_position[segment.parent]
            positions, following = _positions(segment, start, image_token_id, merge_size, where)
            last = first + len(segment.ids)
            input_ids[b, first:last] = torch.tensor(segment.ids, dtype=torch.int64)
            position_ids[:, b, first:last] = positions
            segment_ids[b, first:last] = s
            next_position.append(following)
            row_spans.append((first, last))
            first = last
        spans.append(tuple(row_spans))
        paths.append(tuple(tuple(path_to(row, s)) for s in range(len(row))))
    return PackedRows(
        input_ids=input_ids.to(device),
        position_ids=position_ids.to(device),
        segment_ids=segment_ids.to(device),
        spans=tuple(spans),
        paths=tuple(paths),
    )


def image_order(rows: Sequence[Sequence[Segment]]) -> list[tuple[int, int, int]]:
    """(row, segment, number of the image in it) of every image, in the order in which the model takes their features."""
    return [(b, s, i) for b, row in enumerate(rows) for s, segment in enumerate(row) for i in range(len(segment.grids))]


def path_to(row: Sequence[Segment], leaf: int) -> list[int]:
    """The segments from the root to a leaf: joined, they are the text that the leaf stands for."""
    path: list[int] = []
    at: int | None = leaf
    while at is not None:
        path.append(at)
        at = row[at].parent
    return path[::-1]


def _level(segments: Sequence[Sequence[range]], device: torch.device) -> TreeLevel:
    """Of segments, each as the runs of tokens on its path."""
    num_queries = max(len(runs[-1]) for runs in segments)
    num_keys = max(sum(map(len, runs)) for runs in segments)
    queries = torch.zeros(len(segments), num_queries, dtype=torch.int64)
    keys = torch.zeros(len(segments), num_keys, dtype=torch.int64)
    num_before = torch.zeros(len(segments), dtype=torch.int64)
    lengths = torch.tensor([len(runs[-1]) for runs in segments])
    for n, runs in enumerate(segments):
        path = [token for run in runs for token in run]
        queries[n] = runs[-1][0]
        queries[n, : len(runs[-1])] = torch.tensor(runs[-1])
        keys[n, : len(path)] = torch.tensor(path)
        num_before[n] = len(path) - len(runs[-1])
    query = torch.arange(num_queries)
    seen = (num_before[:, None] + query[None, :]).minimum((num_before + lengths - 1)[:, None])
    mask = torch.arange(num_keys) <= seen[:, :, None]
    real = (query[None, :] < lengths[:, None]).flatten().nonzero()[:, 0]
    return TreeLevel(queries=queries.to(device), keys=keys.to(device), mask=mask.to(device), real=real.to(device))


def _positions(segment: Segment, start: int, image_token_id: int, merge_size: int, where: str) -> tuple[torch.Tensor, int]:
    """int64[3, tokens] positions of a segment that starts at a position, and the position that follows it."""
    if not segment.ids:
        raise ValueError(f"{where}: expected at least one token")
    pieces = []
    grids = list(segment.grids)
    at, end = 0, len(segment.ids)
    while at < end:
        run = at
        if segment.ids[at] != image_token_id:
            while run < end and segment.ids[run] != image_token_id:
                run += 1
            pieces.append(torch.arange(start, start + run - at).expand(3, -1))
            start += run - at
        else:
            if not grids:
                raise ValueError(f"{where}: more image placeholders than its {len(segment.grids)} grids")
            time, height, width = grids.pop(0)
            if time != 1 or height % merge_size or width % merge_size or min(height, width) < 1:
                grid = (time, height, width)
                raise ValueError(f"{where}: expected a grid (1, rows, columns) in multiples of {merge_size}, got {grid}")
            rows, columns = height // merge_size, width // merge_size
            run = at + rows * columns
            if segment.ids[at:run] != (image_token_id,) * (rows * columns):
                raise ValueError(f"{where}: expected {rows * columns} image placeholders in a run for {height} x {width}")
            index = torch.arange(rows * columns)
            axes = [torch.zeros_like(index), index // columns, index % columns]
            pieces.append(torch.stack(axes) + start)
            start += max(rows, columns)
        at = run
    if grids:
        raise ValueError(f"{where}: expected placeholders for {len(segment.grids)} images, {len(grids)} are missing")
    return torch.cat(pieces, dim=1), start
