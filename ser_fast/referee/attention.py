"""Attention over packed trees, one call a tree level: queries of a segment meet the keys of its path, and no others.

A dense tree mask asks for T x T products of which most are masked away. Here each level of the trees is a batch of its own: its
segments padded to the longest, against the keys of their ancestors and their own. Same sums, in another order of tokens; the
dense mask is the oracle. Registered with transformers as an attention implementation for the language layers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from ser_fast.packing import PackedRows, TreeLevel

NAME = "ser_fast_tree"


def use_tree_attention(model: Any) -> None:
    """Lets the language layers of a Qwen-VL model take `tree_arguments`; without them they attend as with "sdpa"."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
    from transformers.modeling_utils import AttentionInterface

    def attend(
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        tree_levels: list[TreeLevel] | None = None,
        tree_places: torch.Tensor | None = None,
        **settings: Any,
    ) -> tuple[torch.Tensor, None]:
        if tree_levels is None or tree_places is None:
            return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
        if settings.get("dropout"):
            raise ValueError(f"dropout: expected none with a tree, got {settings['dropout']}")
        return tree_attention(query, key, value, tree_levels, tree_places, scale=settings.get("scaling")), None

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.model.language_model.config._attn_implementation = NAME


def tree_arguments(packed: PackedRows) -> dict[str, Any]:
    """What a model that uses tree attention takes for packed rows. The mask is never looked at: it tells transformers that none
    need be made."""
    levels = packed.levels()
    nothing = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=packed.input_ids.device)
    return {
        "input_ids": packed.input_ids,
        "position_ids": packed.position_ids,
        "attention_mask": nothing,
        "tree_levels": levels,
        "tree_places": result_places(levels, packed.input_ids.numel()),
    }


def tree_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    levels: list[TreeLevel],
    places: torch.Tensor,
    *,
    scale: float | None = None,
) -> torch.Tensor:
    """softmax(q k' scale) v of each token over its own path.

    Args:
        query: [B, H, T, D].
        key, value: [B, H_kv, T, D]; H is a multiple of H_kv.
        levels: of the rows; together they hold each token that is not padding once.
        places: `result_places` of the levels.
        scale: 1 / sqrt(D) if not given.

    Returns:
        [B, T, H, D]; padding gets the result of some other token.
    """
    batch, heads, num_tokens, width = query.shape
    flat = [x.transpose(1, 2).reshape(batch * num_tokens, -1, width) for x in (query, key, value)]
    results = []
    for level in levels:
        q = _taken(flat[0], level.queries)
        k, v = (_taken(x, level.keys) for x in flat[1:])
        if k.shape[1] != heads:
            k, v = (x.repeat_interleave(heads // x.shape[1], dim=1) for x in (k, v))
        out = scaled_dot_product_attention(q, k, v, attn_mask=level.mask[:, None], scale=scale)
        results.append(out.transpose(1, 2).reshape(-1, heads, width))
    return torch.cat(results).index_select(0, places).reshape(batch, num_tokens, heads, width)


def result_places(levels: list[TreeLevel], num_tokens: int) -> torch.Tensor:
    """int64[num_tokens]: where the result of each token stands when the queries of all levels follow one another; the same for
    all layers. Padding points at the first."""
    places = torch.zeros(num_tokens, dtype=torch.int64, device=levels[0].queries.device)
    first = 0
    for level in levels:
        places[level.queries.flatten()[level.real]] = level.real + first
        first += level.queries.numel()
    return places


def _taken(rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """[M, H, D] rows at int64[N, L] -> [N, H, L, D]. index_select, because its gradient is a plain index_add."""
    return rows.index_select(0, index.flatten()).reshape(*index.shape, *rows.shape[1:]).transpose(1, 2)
