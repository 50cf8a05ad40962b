"""The tokenizer of the toy models: a word of the world, a tag or a digit is one token, all else is bytes."""

from __future__ import annotations

import re
from typing import Any

from ser_fast.referee import prompt as referee_prompt
from ser_fast.testing import qwen_tokenizer
from trainer.prompt import SYSTEM, UNITS, PromptConfig
from trainer.toy.tasks import WORDS

PIECES = r"</?[a-z]+>| ?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9<]|<|\s"
"""A tag, a word with the space before it, a digit, one other sign, or white space."""


def toy_tokenizer() -> Any:
    """A byte-level BPE that merges exactly the pieces of our prompts, questions and completions, with Qwen's special tokens."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=8192, min_frequency=1, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(sorted(_pieces()), trainer)
    return qwen_tokenizer(backend, added=())


def _pieces() -> set[str]:
    """Every piece that occurs in what the models read and write."""
    prompt = PromptConfig()
    texts = [SYSTEM, prompt.frame, prompt.length, *(text for pair in UNITS.values() for text in pair), *WORDS]
    texts += [
        referee_prompt.SYSTEM,
        referee_prompt.ROOT,
        referee_prompt.CLAIM,
        referee_prompt.RELEVANCE,
        referee_prompt.LOCALIZATION,
    ]
    texts += [" pixels", " thousandths of the frame", "system\n", "user\n", "assistant\n"]
    fields = re.compile(r"\{[a-z]+\}")
    return {piece for text in texts for piece in re.findall(PIECES, fields.sub(" ", text))}
