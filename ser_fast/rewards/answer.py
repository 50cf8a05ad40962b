"""The answer part: is the answer right?"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

import torch

from ser_fast.errors import InputError
from ser_fast.types import Question, Task

LETTER_TASKS = frozenset({Task.MCQ, Task.TEMPORAL_MCQ})
TEXT_TASKS = frozenset({Task.FREE_FORM, Task.SPATIO_TEMPORAL})

_LETTER = re.compile(r"([A-Za-z])\.?|\(([A-Za-z])\)|\[([A-Za-z])\]")
_OPTION = "Correct Option:"
_ASCII_WORD = re.compile("[a-z0-9]+")
# Scripts that are written without spaces: each character stands for a word.
_UNSPACED = re.compile("([\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])")


def answer_reward(answers: Sequence[str | None], questions: Sequence[Question]) -> torch.Tensor:
    """1 for the right letter, or the mean F1 of ROUGE-1, ROUGE-2 and ROUGE-L for free text; 0 without an answer.

    Letters (tasks mcq and temporal-mcq) must be the whole answer, as X, X., (X) or [X], in the case of the reference; behind
    "Correct Option:" where a temporal-mcq answer has that. Free text (free-form, spatio-temporal) is compared by `rouge_mean`.

    Args:
        answers: R answers, None where a response has none.
        questions: R questions.

    Returns:
        float32[R] in [0, 1].

    Raises:
        InputError: a task whose answers are neither letters nor text, or a letter task whose reference is no letter.

    Source: answer rewards of Open-o3-Video (arXiv 2510.20579), without stemming.
    """
    check_answerable(questions)
    scores = [_score(answer, question) for answer, question in zip(answers, questions, strict=True)]
    return torch.tensor(scores, dtype=torch.float32)


def check_answerable(questions: Sequence[Question]) -> None:
    """Checks that `answer_reward` knows what to compare an answer with.

    Raises:
        InputError: as `answer_reward`.
    """
    for question in questions:
        if question.task not in LETTER_TASKS | TEXT_TASKS:
            raise InputError(f"task of question {question.id!r}: {str(question.task)!r} has no answer reward yet")
        if question.task in LETTER_TASKS and _letter(question.answer) is None:
            raise InputError(f"answer of question {question.id!r}: expected a letter, got {question.answer!r}")


def _score(answer: str | None, question: Question) -> float:
    if answer is None:
        return 0.0
    if question.task in TEXT_TASKS:
        return rouge_mean(answer, question.answer)
    if question.task == Task.TEMPORAL_MCQ:
        answer = answer.rpartition(_OPTION)[2]
    return float(_letter(answer) == _letter(question.answer))


def _letter(text: str) -> str | None:
    match = _LETTER.fullmatch(text.strip())
    return next(group for group in match.groups() if group) if match else None


def rouge_mean(answer: str, reference: str) -> float:
    """(F1 of ROUGE-1 + F1 of ROUGE-2 + F1 of ROUGE-L) / 3 over lower-case words, without stemming.

    Words are runs of letters, marks and digits of any script, in Unicode's composed form and folded case; Chinese and Japanese
    count by the character. Note that ROUGE-2 of a single word is 0, so a right one-word answer gets 2/3.

    Source: ROUGE (Lin 2004); equal to the rouge_score package (use_stemmer=False) on ASCII text.
    """
    words, wanted = _words(answer), _words(reference)
    scores = [_overlap_f1(words, wanted, n) for n in (1, 2)]
    scores.append(_f1(_common_subsequence(words, wanted), len(words), len(wanted)))
    return sum(scores) / 3


def _words(text: str) -> list[str]:
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    kept = (c if unicodedata.category(c)[0] in "LMN" else " " for c in text)  # letters, marks, numbers
    return _UNSPACED.sub(r" \1 ", "".join(kept)).split()


def _overlap_f1(words: list[str], wanted: list[str], n: int) -> float:
    grams, wanted_grams = (Counter(tuple(text[i : i + n]) for i in range(len(text) - n + 1)) for text in (words, wanted))
    return _f1((grams & wanted_grams).total(), grams.total(), wanted_grams.total())


def _f1(common: int, num: int, num_wanted: int) -> float:
    return 2 * common / (num + num_wanted) if common else 0.0


def _common_subsequence(words: list[str], wanted: list[str]) -> int:
    """Length of the longest common subsequence, a row of the table at a time as the bits of one number (Hyyro 2004)."""
    places: dict[str, int] = {}
    for i, word in enumerate(wanted):
        places[word] = places.get(word, 0) | 1 << i
    row = everything = (1 << len(wanted)) - 1
    for word in words:
        matches = row & places.get(word, 0)
        row = ((row + matches) | (row - matches)) & everything
    return len(wanted) - row.bit_count()
