"""Clips with the questions and completions on them -> packed rows, and where each token of a completion is predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ser_fast.packing import PackedRows, Segment, pack_rows
from ser_fast.referee.views import View
from trainer.prompt import ClipPrompt, PolicyPrompts


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    """A question on a clip, with completions that share it."""

    question: tuple[int, ...]
    """Given tokens; at least one."""
    completions: tuple[tuple[int, ...], ...]
    """Predicted tokens of each, end token included."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClipTree:
    """All questions on one clip: they share its tokens."""

    clip: ClipPrompt
    branches: tuple[Branch, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """B rows of N predicted tokens in all."""

    packed: PackedRows
    views: tuple[View, ...]
    rows: torch.Tensor
    """int64[N]: row of the token before each target."""
    columns: torch.Tensor
    """int64[N]: column of the token before each target."""
    targets: torch.Tensor
    """int64[N]."""
    owners: torch.Tensor
    """int64[N]: which completion each target belongs to, counted through all trees."""


def make_batch(trees: Sequence[ClipTree], prompts: PolicyPrompts, *, device: torch.device | str = "cpu") -> Batch:
    """One row a tree: the clip once, each question once behind it, and each completion as a branch of its question."""
    segments: list[list[Segment]] = []
    examples: list[tuple[int, int, int]] = []
    """Row, and the segments of question and completion."""
    for row, tree in enumerate(trees):
        segments.append([tree.clip.segment])
        for branch in tree.branches:
            question = len(segments[row])
            segments[row].append(Segment(ids=branch.question, parent=0))
            for completion in branch.completions:
                examples.append((row, question, len(segments[row])))
                segments[row].append(Segment(ids=completion, parent=question))
    packed = pack_rows(segments, image_token_id=prompts.tokens.image, merge_size=prompts.spec.merge_size, device=device)
    rows: list[int] = []
    columns: list[int] = []
    targets: list[int] = []
    owners: list[int] = []
    for owner, (row, question, s) in enumerate(examples):
        ids, spans = segments[row][s].ids, packed.spans[row]
        rows += [row] * len(ids)
        columns += [spans[question][1] - 1, *range(spans[s][0], spans[s][1] - 1)]
        targets += ids
        owners += [owner] * len(ids)
    return Batch(
        packed=packed,
        views=tuple(view for tree in trees for view in tree.clip.views),
        rows=torch.tensor(rows, device=device),
        columns=torch.tensor(columns, device=device),
        targets=torch.tensor(targets, device=device),
        owners=torch.tensor(owners, device=device),
    )
