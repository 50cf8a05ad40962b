"""The format part: does the response have the shape that was asked for?"""

from __future__ import annotations

import torch

from ser_fast.types import ClaimBatch, ParseReport


def format_reward(report: ParseReport, claims: ClaimBatch, *, require_evidence: bool = True) -> torch.Tensor:
    """0, 0.5 or 1 a response.

    | what there is | reward |
    |---|---|
    | a think and an answer block, tags balanced, and at least one accepted claim | 1 |
    | the blocks, tags balanced, no claim | 0.5, or 1 where evidence is not required |
    | a block is missing, or a kind of tag opens more or less often than it closes | 0 |

    Returns:
        float32[R].

    Source: the three levels of Open-o3-Video (arXiv 2510.20579); evidence here is a claim that parses, not a count of tags.
    """
    levels = []
    for r in range(len(report)):
        complete = report.has_think[r] and report.answers[r] is not None and report.balanced[r]
        evident = len(claims.responses.rows(r)) > 0 or not require_evidence
        levels.append((1.0 if evident else 0.5) if complete else 0.0)
    return torch.tensor(levels, dtype=torch.float32)
