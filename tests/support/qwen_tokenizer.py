"""The real Qwen2 vocabulary, from the byte-pair table that the dashscope wheel carries."""

from __future__ import annotations

import base64
import functools
import importlib.util
from pathlib import Path
from typing import Any

from ser_fast.testing import qwen_tokenizer

PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@functools.cache
def byte_pair_ranks() -> dict[bytes, int]:
    """Token -> rank."""
    spec = importlib.util.find_spec("dashscope")
    assert spec is not None
    assert spec.origin is not None
    lines = (Path(spec.origin).parent / "resources" / "qwen.tiktoken").read_bytes().splitlines()
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line)}


def qwen2_tokenizer() -> Any:
    """A transformers tokenizer with Qwen2's vocabulary, special tokens and a chat template."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    ranks = byte_pair_ranks()
    letters = _letters_of_bytes()

    def spelled(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    merges = []
    for token, rank in ranks.items():
        splits = ((token[:i], token[i:]) for i in range(1, len(token)))
        pairs = sorted((ranks[a], ranks[b], a, b) for a, b in splits if a in ranks and b in ranks)
        merges += [(rank, spelled(a), spelled(b)) for _, _, a, b in pairs]
    merges.sort(key=lambda merge: merge[0])
    vocabulary = {spelled(token): rank for token, rank in ranks.items()}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[(a, b) for _, a, b in merges]))
    backend.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(PATTERN), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    backend.decoder = decoders.ByteLevel()
    return qwen_tokenizer(backend)


def _letters_of_bytes() -> dict[int, str]:
    """The letter that byte-level vocabularies write for each byte: itself where printable, else one from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in printable}
    others = [byte for byte in range(256) if byte not in letters]
    return letters | {byte: chr(256 + i) for i, byte in enumerate(others)}
