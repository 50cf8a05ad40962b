"""Completions from one computation of the prompt, against transformers' own generation and against full forwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ser_fast.errors import InputError
from ser_fast.referee.views import view_pixels
from tests.conftest import FAMILIES
from tests.support.referee import make_clip
from trainer.batch import Branch, ClipTree, make_batch
from trainer.decode import Prompt
from trainer.policy import Policy

QUESTIONS = ("What color is the ring?", "Where is the red thing, and when?", "\u72ac?")


def _prompts(policy: Policy, num: int) -> list[Prompt]:
    """Clips of one to three frames of several sizes, with questions of several lengths."""
    clips = [make_clip(1 + i % 3, height=56 + 28 * (i % 4), width=84 + 14 * (i % 5)) for i in range(num)]
    return [(policy.prompts.clip(clip), policy.prompts.question(QUESTIONS[i % 3])) for i, clip in enumerate(clips)]


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_ids_are_those_of_transformers(family: str, random_vlm: dict[str, Path]) -> None:
    """On 32 prompts, batched here, two of each, one by one there; some end before the limit."""
    policy = Policy.load(random_vlm[family])
    prompts = _prompts(policy, 32)
    written = [completion.ids for completion in policy.generate(prompts, max_new_tokens=12)]
    places = {i: {ids.index(i) for ids in written if i in ids} for i in set().union(*written)}
    with torch.no_grad():  # the end comes where, till now, it has written what first comes at the most various places
        policy.model.lm_head.weight[policy.end] = 1.01 * policy.model.lm_head.weight[max(places, key=lambda i: len(places[i]))]
    twice = policy.generate(prompts, num=2, max_new_tokens=12, batch_size=13)
    ours = twice[::2]
    assert [completion.ids for completion in twice[1::2]] == [completion.ids for completion in ours]
    assert len({len(completion.ids) for completion in ours}) > 2
    silent = policy.silent_tokens()
    for (clip, question), completion in zip(prompts, ours, strict=True):
        ids = torch.tensor([[*clip.segment.ids, *question]])
        pixels, grid = view_pixels(clip.views, policy.spec, "cpu")
        theirs = policy.model.generate(
            input_ids=ids,
            pixel_values=pixels,
            image_grid_thw=grid,
            mm_token_type_ids=(ids == policy.prompts.tokens.image).int(),
            do_sample=False,
            max_new_tokens=12,
            suppress_tokens=silent,
            eos_token_id=policy.end,
            pad_token_id=policy.end,
        )[0, ids.shape[1] :].tolist()
        assert list(completion.ids) == theirs
        assert completion.truncated == (theirs[-1] != policy.end)


@pytest.mark.parametrize("family", FAMILIES)
def test_sampled_logprobs_are_those_of_a_full_forward(family: str, random_vlm: dict[str, Path]) -> None:
    policy = Policy.load(random_vlm[family])
    prompts = _prompts(policy, 5)
    completions = policy.generate(prompts, num=3, max_new_tokens=10, temperature=1.3, seed=1)
    trees = [
        ClipTree(
            clip=clip,
            branches=(Branch(question=question, completions=tuple(c.ids for c in completions[3 * i : 3 * i + 3])),),
        )
        for i, (clip, question) in enumerate(prompts)
    ]
    expected = policy.logprobs(make_batch(trees, policy.prompts), temperature=1.3)
    got = torch.tensor([logprob for completion in completions for logprob in completion.logprobs])
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)
    assert len({completion.ids for completion in completions}) == len(completions)


def test_some_end_and_some_do_not(policy: Policy) -> None:
    """Rows that are done leave; those that go on are not touched by that: alone they write the same."""
    prompts = _prompts(policy, 6)
    with torch.no_grad():
        policy.model.lm_head.weight[policy.end] *= 6
    together = policy.generate(prompts, num=4, max_new_tokens=24, temperature=1.0, seed=5)
    lengths = {len(completion.ids) for completion in together}
    assert len(lengths) > 2
    for completion in together:
        assert completion.truncated == (len(completion.ids) == 24 and completion.ids[-1] != policy.end)
        assert policy.end not in completion.ids[:-1]
        assert len(completion.logprobs) == len(completion.ids)
    greedy = policy.generate(prompts, num=2, max_new_tokens=24)
    assert [c.ids for c in greedy[::2]] == [c.ids for c in greedy[1::2]]
    assert [policy.generate([prompt], max_new_tokens=24)[0].ids for prompt in prompts] == [c.ids for c in greedy[::2]]


def test_samples_depend_on_the_seed_alone(policy: Policy) -> None:
    prompts = _prompts(policy, 3)
    state = torch.random.get_rng_state()
    first = policy.generate(prompts, num=2, max_new_tokens=8, temperature=1.0, seed=3)
    torch.manual_seed(77)
    assert policy.generate(prompts, num=2, max_new_tokens=8, temperature=1.0, seed=3) == first
    assert policy.generate(prompts, num=2, max_new_tokens=8, temperature=1.0, seed=4) != first
    torch.random.set_rng_state(state)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_mark_of_the_chat_or_of_images_is_written(family: str, random_vlm: dict[str, Path]) -> None:
    """Nor an id that the tokenizer does not have; at a temperature that makes all ids alike."""
    policy = Policy.load(random_vlm[family])
    silent = set(policy.silent_tokens())
    named = {policy.tokenizer.convert_tokens_to_ids(text) for text in ("<|im_start|>", "<|image_pad|>", "<|vision_start|>")}
    assert named <= silent
    assert policy.end not in silent
    num_tokens = policy.model.lm_head.weight.shape[0]
    assert set(range(len(policy.tokenizer), num_tokens)) <= silent
    completions = policy.generate(_prompts(policy, 4), num=16, max_new_tokens=40, temperature=1e3, seed=0)
    written = {i for completion in completions for i in completion.ids}
    assert len(written) > num_tokens / 3
    assert not written & silent


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens: expected a whole number > 0, got 0"),
        ({"num": 0}, "num: expected a whole number > 0, got 0"),
        ({"batch_size": 0}, "batch_size: expected a whole number > 0, got 0"),
        ({"temperature": -1.0}, r"temperature: expected a number >= 0, got -1\.0"),
        ({"temperature": float("nan")}, "temperature: expected a number >= 0, got nan"),
    ],
)
def test_settings_that_make_no_sense_are_named(settings: dict[str, Any], message: str, policy: Policy) -> None:
    prompt = (policy.prompts.clip(make_clip(2, height=168, width=168)), policy.prompts.question("What?"))
    with pytest.raises(InputError, match=message):
        policy.generate([prompt], **({"max_new_tokens": 4} | settings))
