"""Index arithmetic on ragged rows, shared by the references."""

from __future__ import annotations

import torch


def row_to_segment(offsets: torch.Tensor, num_rows: int) -> torch.Tensor:
    """int64[num_rows]: the segment each row belongs to, from int64[G+1] offsets."""
    index = torch.arange(offsets.numel() - 1, device=offsets.device)
    return torch.repeat_interleave(index, offsets.diff(), output_size=num_rows)


def pair_rows(
    offsets_a: torch.Tensor, offsets_b: torch.Tensor, num_a: int, num_pairs: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Every pair of a row of a with a row of b from the same segment.

    Args:
        offsets_a, offsets_b: int64[G+1].
        num_a: rows of a.
        num_pairs: sum over segments of rows of a times rows of b.

    Returns:
        int64[num_pairs] rows of a and of b: segments in order, a block of (rows of a) x (rows of b) each, row-major.
    """
    segment = row_to_segment(offsets_a, num_a)
    num_partners = offsets_b.diff()[segment]
    row_a = torch.repeat_interleave(torch.arange(num_a, device=offsets_a.device), num_partners, output_size=num_pairs)
    first_pair = num_partners.cumsum(0) - num_partners
    within = torch.arange(num_pairs, device=offsets_a.device) - first_pair[row_a]
    return row_a, offsets_b[segment[row_a]] + within


def segment_sum(values: torch.Tensor, segment: torch.Tensor, num_segments: int) -> torch.Tensor:
    """values[N] summed by segment -> [num_segments]; empty segments give 0."""
    return values.new_zeros(num_segments).index_add_(0, segment, values)
