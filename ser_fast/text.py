"""Texts from models and data files, made fit to be shown, tokenised and stored."""

from __future__ import annotations

import unicodedata


def clean(text: str) -> str:
    """Control characters become spaces, lone surrogates the replacement character; white space at the ends goes.

    Everything else survives: letters of any script, emoji with their joiners.
    """
    if text.isascii() and text.isprintable():
        return text.strip()
    kept = []
    for character in text:
        category = unicodedata.category(character)
        kept.append({"Cc": " ", "Cs": "\ufffd"}.get(category, character))
    return "".join(kept).strip()
