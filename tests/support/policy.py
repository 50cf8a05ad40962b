"""The textbook for policies: one sequence at a time, the model's own positions and mask, eager torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ser_fast.referee.views import view_pixels
from trainer.decode import Prompt
from trainer.policy import Policy


def textbook_logprobs(policy: Policy, prompt: Prompt, completion: Sequence[int]) -> torch.Tensor:
    """float32[N]: log-probability of each token of a completion, differentiable."""
    clip, question = prompt
    given = (*clip.segment.ids, *question)
    ids = torch.tensor([[*given, *completion]])
    pixels, grid = view_pixels(clip.views, policy.spec, "cpu")
    logits = policy.model(
        input_ids=ids,
        pixel_values=pixels,
        image_grid_thw=grid,
        mm_token_type_ids=(ids == policy.prompts.tokens.image).int(),
        use_cache=False,
    ).logits[0, len(given) - 1 : -1]
    return logits.float().log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0]
