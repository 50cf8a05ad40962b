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
    """What follows a clip in one example."""

    question: tuple[int, ...]
    """Given tokens; at least one."""
    completion: tuple[int, ...]
    """Predicted tokens, end token included."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClipTree:
    """All examples on one clip: they share its tokens."""

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
    """int64[N]: which example each target belongs to, counted over the branches of all trees."""


def make_batch(trees: Sequence[ClipTree], prompts: PolicyPrompts, *, device: torch.device | str = "cpu") -> Batch:
    """One row a tree: the clip once, then each question with its completion as a branch of it."""
    segments = [
        [tree.clip.segment, *(Segment(ids=branch.question + branch.completion, parent=0) for branch in tree.branches)]
        for tree in trees
    ]
    packed = pack_rows(segments, image_token_id=prompts.tokens.image, merge_size=prompts.spec.merge_size, device=device)
    rows: list[int] = []
    columns: list[int] = []
    targets: list[int] = []
    owners: list[int] = []
    examples = [(b, s, branch) for b, tree in enumerate(trees) for s, branch in enumerate(tree.branches, start=1)]
    for owner, (b, s, branch) in enumerate(examples):
        num = len(branch.completion)
        _, end = packed.spans[b][s]
        rows += [b] * num
        columns += range(end - num - 1, end - 1)
        targets += branch.completion
        owners += [owner] * num
    return Batch(
        packed=packed,
        views=tuple(view for tree in trees for view in tree.clip.views),
        rows=torch.tensor(rows),
        columns=torch.tensor(columns),
        targets=torch.tensor(targets),
        owners=torch.tensor(owners),
    )
