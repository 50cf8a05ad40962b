"""Tree attention against SDPA with the dense mask: values and gradients, for trees of all shapes."""

from __future__ import annotations

import random

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from ser_fast.packing import Segment, pack_rows
from ser_fast.referee.attention import result_places, tree_attention


def _random_row(rng: random.Random, num: int) -> list[Segment]:
    """Trees of any shape, some of them beside one another in the row."""
    return [Segment(ids=(1,) * rng.randint(1, 9), parent=rng.choice([None, *range(s)]) if s else None) for s in range(num)]


CASES = {
    "a claim tree": [[Segment(ids=(1,) * 7), *[Segment(ids=(1,) * (3 + i), parent=0) for i in range(4)]]],
    "a chain": [
        [Segment(ids=(1, 1)), Segment(ids=(1,), parent=0), Segment(ids=(1,) * 5, parent=1), Segment(ids=(1,), parent=2)]
    ],
    "roots only": [[Segment(ids=(1,) * 4), Segment(ids=(1,) * 2)], [Segment(ids=(1,))]],
    "uneven rows": [_random_row(random.Random(s), 1 + 3 * s) for s in range(4)],
    "many": [_random_row(random.Random(10 + s), 12) for s in range(5)],
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (6, 1)])
def test_equal_to_the_dense_mask(case: str, heads: int, kv_heads: int) -> None:
    packed = pack_rows(CASES[case], image_token_id=99, merge_size=2)
    rows, num_tokens = packed.input_ids.shape
    sizes = ((rows, heads, num_tokens, 8), *[(rows, kv_heads, num_tokens, 8)] * 2)
    query, key, value = (torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes)
    wide = [x.repeat_interleave(heads // kv_heads, dim=1) for x in (key, value)]
    levels = packed.levels()
    dense = scaled_dot_product_attention(query, *wide, attn_mask=packed.mask(), scale=0.3).transpose(1, 2)
    tree = tree_attention(query, key, value, levels, result_places(levels, rows * num_tokens), scale=0.3)
    real = packed.segment_ids >= 0
    torch.testing.assert_close(tree[real], dense[real])
    weight = torch.randn_like(dense) * real[:, :, None, None]
    expected = torch.autograd.grad((dense * weight).sum(), (query, key, value))
    actual = torch.autograd.grad((tree * weight).sum(), (query, key, value))
    for got, want in zip(actual, expected, strict=True):
        torch.testing.assert_close(got, want)


def test_each_token_is_the_query_of_one_level() -> None:
    packed = pack_rows(CASES["many"], image_token_id=99, merge_size=2)
    queries = torch.cat([level.queries.flatten()[level.real] for level in packed.levels()])
    assert sorted(queries.tolist()) == (packed.segment_ids.flatten() >= 0).nonzero()[:, 0].tolist()


def test_no_query_sees_nothing() -> None:
    """Padding included: a row of the softmax without a key would be NaN."""
    for rows in CASES.values():
        for level in pack_rows(rows, image_token_id=99, merge_size=2).levels():
            assert level.mask.any(-1).all()
