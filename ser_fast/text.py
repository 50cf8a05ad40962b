"""Texts from models and data files, made fit to be shown, tokenised and stored."""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_ASCII_CONTROL = dict.fromkeys([*range(32), 127], " ")
_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """Control characters become spaces, lone surrogates the replacement character; white space at the ends goes.

    Everything else survives: letters of any script, emoji with their joiners.
    """
    if not text.isascii():
        text = replace_surrogates(_CONTROL.sub(" ", text))
    elif not text.isprintable():
        text = text.translate(_ASCII_CONTROL)
    return text.strip()


def escape_surrogates(text: str) -> str:
    r"""Writes lone surrogates, which UTF-8 cannot hold, as \ud800 and the like: in JSON that is the same text."""
    return _SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def replace_surrogates(text: str) -> str:
    """Replaces lone surrogates by the replacement character."""
    return _SURROGATE.sub("\ufffd", text)
