"""The toy tokenizer: words, tags and digits are tokens, everything else is bytes, nothing is unknown."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ser_fast.referee import prompt as referee_prompt
from ser_fast.referee.loading import plain_encoder
from trainer.prompt import SYSTEM
from trainer.toy.tokenizer import toy_tokenizer
from trainer.toy.world import COLORS, SHAPES


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return toy_tokenizer()


@pytest.mark.parametrize(
    "text", [*COLORS, *SHAPES, *"0123456789", "<obj>", "</obj>", "<box>", "<think>", "</answer>", "[", ","]
)
def test_a_word_a_tag_a_digit_is_one_token(text: str, tokenizer: Any) -> None:
    encode = plain_encoder(tokenizer)
    assert len(encode(text)) == 1
    if text in (*COLORS, *SHAPES):
        assert len(encode(f" {text}")) == 1


@pytest.mark.parametrize("text", [SYSTEM, referee_prompt.CLAIM, referee_prompt.RELEVANCE, referee_prompt.LOCALIZATION])
def test_prompts_are_words(text: str, tokenizer: Any) -> None:
    words = re.findall(r" ?[A-Za-z]+", re.sub(r"\{[a-z]+\}", "", text))
    assert len(words) >= 8
    assert [word for word in words if len(plain_encoder(tokenizer)(word)) != 1] == []


@pytest.mark.parametrize(
    "text",
    [
        "woman in a light coat",
        "\u72ac\u3068\u732b",
        "\U0001f469\u200d\U0001f467 caf\u00e9",
        "a\u0000b",
        "x" * 500,
        "<obj",
        "</T>",
    ],
)
def test_other_text_falls_back_to_bytes_and_reads_back(text: str, tokenizer: Any) -> None:
    ids = plain_encoder(tokenizer)(text)
    assert len(ids) <= len(text.encode())
    assert tokenizer.decode(ids) == text
    assert tokenizer.unk_token is None
    assert max(ids) < len(tokenizer)


def test_the_same_each_time(tokenizer: Any) -> None:
    assert toy_tokenizer().get_vocab() == tokenizer.get_vocab()
