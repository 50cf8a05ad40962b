"""Random tag strings: the fast parser and the slow oracle must read every one of them alike."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from ser_fast.claims.parse import parse_claims
from ser_fast.faults import PolicyFault
from ser_fast.types import ClaimBatch, CoordSpace, ParseReport
from tests.claims import oracle

NUM_QUICK = 30_000
NUM_FULL = 1_000_000
BATCH = 2_000
MIN_ACCEPTED_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Setup:
    """What a text is parsed against."""

    coord_space: CoordSpace
    frame_hw: tuple[int, int]
    duration_s: float

    @property
    def scale(self) -> tuple[float, float]:
        """From box numbers to pixels of the frame, across and down."""
        width, height = self.coord_space.extent()
        return self.frame_hw[1] / width, self.frame_hw[0] / height


SETUPS = (
    Setup(CoordSpace(kind="pixels", height=360, width=640), (360, 640), 10.0),
    Setup(CoordSpace(kind="pixels", height=364, width=644), (719, 1281), 12.5),
    Setup(CoordSpace(kind="pixels", height=1000, width=600), (101, 77), 0.0),
    Setup(CoordSpace(kind="norm1"), (1080, 1920), 3.337),
    Setup(CoordSpace(kind="norm1"), (5, 4), 1e30),
    Setup(CoordSpace(kind="norm1000"), (240, 427), 0.1),
    Setup(CoordSpace(kind="norm1000"), (3, 2000), 30.0),
)

# --- The pieces -----------------------------------------------------------------------------------------------------------

TAGS = ("<obj>", "</obj>", "<box>", "</box>", "<t>", "</t>")
FRAME_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
NEAR_TAGS = (
    "<OBJ>", "</ obj>", "<obj", "obj>", "<box/>", "< t>", "<t >", "</t", "<<t>", "<ans>", "<tthink>", "</", "<", ">",
    "<>",
)  # fmt: skip
NEAR_WORDS = (
    ("At", "s"),
    ("AT", "s"),
    ("a t", "s"),
    ("at at", "s"),
    ("", "s"),
    ("at:", "s"),
    ("at", "S"),
    ("at", ""),
    ("at", "\u017f"),
)
WHITE_SPACE = (" ", "\t", "\n", "\v", "\f", "\r", "  ", "\r\n", " \n\t ")
NEARLY_WHITE = ("\xa0", "\u3000", "\u2028", "\x85", "\x1c", "\x1f", "\u200b", "\ufeff", "\x00", "_", "\\n", "\b")
STRANGE = (
    "\x00", "\x07", "\x1b", "\x7f", "\x9f", "\ud800", "\udfff", "\ud83d\ude00", "\udc80", "\ue000", "\U0010ffff",
    "\uffff",
)  # fmt: skip
GOOD_NAMES = (
    "dog", "brown dog", "a man in a red shirt", "s", "at", "[1,2,3,4]", "4.5", "狗", "穿红衣服的人", "собака", "كلب",
    "e\u0301", "\u212b", "👩‍👩‍👧‍👦", "🏳️‍🌈 flag", "👍🏽", "a  b", "a\nb",
)  # fmt: skip
ODD_NAMES = (
    "x" * 63, "x" * 64, "x" * 65, "🙂" * 64, "狗" * 65, "x" * 700, "\ud800" * 64, "\x00" * 65, "\x00\x00", "\xa0",
    "\u3000\x1c\u2028", "\x85 dog \x85", "\x01dog\x02", "\u200b", "dog\x00cat", "\xa0" + "x" * 64, "x" * 64 + "\x00",
    "<OBJ>", "a < b > c", "</", "\ud83d\ude00", "dog\udfff",
)  # fmt: skip
PROSE = (
    "", "", "", " ", "The dog jumps: ", "said", "s", "at", " and ", "\n", "狗在跑。", "🙂", "[1,2,3,4]", "1.5", ".", "<b>",
    "\ud800",
)  # fmt: skip
PLAIN_NUMBERS = (
    "0", "-0", "+0", "-0.0", "00", "1", "007", "-1", "+3", ".5", "5.", "-.5", "+5.", "1e2", "1E2", "+1e+2", "1e-2",
    "-2.5e-1",
)  # fmt: skip
EXTREME_NUMBERS = (
    "1e-320", "5e-324", "2e-324", "3e-324", "-1e-999", "1e-999", "0e999", "0e-999", "0e99999999999999999999", "1e308",
    "1.5e308", "1.7976931348623157e308", "1.7976931348623159e308", "-1e308", "2.2250738585072014e-308",
    "2.2250738585072011e-308", "1e99999999999999999999", "1e-99999999999999999999", "0." + "0" * 400 + "1e401",
    "1" + "0" * 400 + "e-400", "3." + "14" * 300, "0" * 400 + "7", "9" * 308, "9007199254740993",
    "0.1000000000000000055511151231257827", "1000000000000000000000e-20", "1e0000000000000000000000002", "-0e-0",
    "0." + "0" * 800 + "1",
)  # fmt: skip
NOT_FINITE = (
    "nan", "NaN", "-nan", "+NAN", "inf", "-inf", "+Inf", "Infinity", "-INFINITY", "iNfInItY", "1e999", "-1e999",
    "1e309", "9" * 400, "1e+400", "-" + "1" * 310,
)  # fmt: skip
NO_NUMBERS = (
    "", "-", "+", ".", "e", "e5", ".e5", "1e", "1e+", "1e-", "1.e", "1e5.0", "1.2.3", "--1", "+-1", "- 1", "1 2",
    "1_000", "1,5", "0x10", "0x1p3", "1f", "1d", "1.0f", "\u0661", "\uff15", "½", "\u22121", "one", "nan(1)", "nans",
    "infi", "infinit", "in f", "snan", "\u0131nf", "\u0130nf", "in\ufb01", "1\x00", "\x001", "1\xa0", "\ufeff1",
    "1\ud800", "'1'", "1%", "1e5e5", "1e 5", "True", "1j", "++1", "1+", "n an", "infinityy",
)  # fmt: skip
EDGES = (
    "0", "-0.0", "-1", "-1e-9", "1e-9", "1e-320", "5e-324", "-5e-324", "1e308", "-1e308", "1.5e308",
    "1.7976931348623157e308", "1", "2", "3", "4", "5", "1.9999999999999998", "3.9999999999999996",
    "4.000000000000001", "0.1", "0.30000000000000004", "0.3", "0.9999999999999999", "1.0000000000000002", "77", "101",
    "360", "364", "356", "640", "636", "644", "600", "1000", "1000.0", "999.9999999999999", "1000.0000000000001",
    "359.99999999999994", "360.00000000000006", "640.0000000000001", "1e4", "16.666666", "9.367681498829040",
    "9.367681498829039",
)  # fmt: skip
TIMES = (
    "0", "-0.0", "0.0", "1e-320", "-5e-324", "0.1", "0.10000000000000002", "10", "10.000000000000002", "12.5",
    "3.337", "1e30", "3.3370000000000006", "30", "30.00000001", "1e-999", "-1e-999", "1.0000000000000001e30", "-1",
    "1000", "-1e9",
)  # fmt: skip


def _space(rng: random.Random) -> str:
    """White space or none, rarely something that only looks like it."""
    p = rng.random()
    if p < 0.75:
        return ""
    if p < 0.99:
        return rng.choice(WHITE_SPACE)
    return rng.choice(NEARLY_WHITE)


def _odd_number(rng: random.Random) -> str:
    """A number that is hard to read, or none."""
    return rng.choice(rng.choice((PLAIN_NUMBERS, EXTREME_NUMBERS, NOT_FINITE, NO_NUMBERS)))


def _plain_number(rng: random.Random, value: float) -> str:
    """A value in one of the ways to write it, mostly rounded."""
    p = rng.random()
    if p < 0.4 and value >= 2.0:
        return str(int(value))
    if p < 0.7:
        return f"{value:.3f}"
    if p < 0.8:
        return f"{value:+.2e}"
    if p < 0.9:
        return f"{value:.3g}"
    return repr(value)


def _four_numbers(rng: random.Random, setup: Setup) -> list[str]:
    """The numbers of a box: mostly a good one, else one at the border of the frame, or any."""
    if rng.random() < 0.15:
        return [rng.choice(EDGES) for _ in range(4)]
    width, height = setup.coord_space.extent()
    x1, y1 = rng.uniform(-0.1, 0.7) * width, rng.uniform(-0.1, 0.7) * height
    x2, y2 = x1 + rng.random() * width, y1 + rng.random() * height
    numbers = [_plain_number(rng, x1), _plain_number(rng, y1), _plain_number(rng, x2), _plain_number(rng, y2)]
    p = rng.random()
    if p < 0.04:
        numbers[rng.randrange(4)] = rng.choice(EDGES)
    elif p < 0.08:
        numbers[rng.randrange(4)] = _odd_number(rng)
    elif p < 0.10:
        rng.shuffle(numbers)
    elif p < 0.12:
        i = rng.randrange(2)
        numbers[i] = numbers[i + 2]
    return numbers


def _flat_bracket(rng: random.Random, setup: Setup) -> str:
    """A bracket of numbers, as a rule of four."""
    numbers = _four_numbers(rng, setup)
    if rng.random() < 0.02:
        numbers = numbers[:3] if rng.random() < 0.5 else [*numbers, "5"]
    if rng.random() < 0.6:
        return "[" + rng.choice((",", ", ")).join(numbers) + "]"
    spaced = ",".join(_space(rng) + number + _space(rng) for number in numbers)
    return f"{_space(rng)}[{spaced}]{_space(rng)}"


def _nested_bracket(rng: random.Random, setup: Setup, depth: int) -> str:
    """Brackets in brackets."""
    if depth <= 1:
        return _flat_bracket(rng, setup)
    inner = [_nested_bracket(rng, setup, depth - rng.choice((1, 1, 1, 2))) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    return f"{_space(rng)}[{','.join(inner)}]{_space(rng)}"


def _box_text(rng: random.Random, setup: Setup) -> str:
    """What stands in a box tag."""
    p = rng.random()
    if p < 0.85:
        text = _flat_bracket(rng, setup)
    elif p < 0.97:
        text = _nested_bracket(rng, setup, rng.choice((2, 2, 2, 3, 3, 4, 4, 5)))
    elif p < 0.98:
        text = "[" * rng.choice((1, 4, 5, 60)) + rng.choice(("", "1", "1,2,3,4")) + "]" * rng.choice((0, 1, 4, 5))
    else:
        text = ",".join(_flat_bracket(rng, setup) for _ in range(rng.randrange(3)))
    return _mangled(rng, text) if rng.random() < 0.04 else text


def _time_text(rng: random.Random, setup: Setup) -> str:
    """What stands in a time tag."""
    p = rng.random()
    if p < 0.08:
        text = rng.choice(TIMES)
    elif p < 0.13:
        text = _odd_number(rng)
    else:
        text = _plain_number(rng, rng.random() * min(setup.duration_s, 1e9))
    return _space(rng) + text + _space(rng)


def _name(rng: random.Random) -> str:
    """What stands in an object tag."""
    p = rng.random()
    if p < 0.7:
        return _space(rng) + rng.choice(GOOD_NAMES) + _space(rng)
    if p < 0.95:
        return rng.choice(ODD_NAMES)
    if p < 0.98:
        return _mangled(rng, rng.choice(ODD_NAMES))
    return _space(rng)


def _claim(rng: random.Random, setup: Setup) -> list[str]:
    """The parts of a claim."""
    parts = ["<obj>", _name(rng), "</obj>", _space(rng)]
    for _ in range(rng.choice((1, 1, 1, 1, 1, 1, 2, 2, 3, 4, 5))):
        parts += ["<box>", _box_text(rng, setup), "</box>", _space(rng)]
    word, unit = rng.choice(NEAR_WORDS) if rng.random() < 0.03 else ("at", "s")
    return [*parts, word, _space(rng), "<t>", _time_text(rng, setup), "</t>", _space(rng), unit]


def _piece(rng: random.Random, setup: Setup) -> str:
    """Anything that may stand in a text."""
    p = rng.random()
    if p < 0.55:
        return rng.choice(TAGS)
    if p < 0.6:
        return rng.choice(FRAME_TAGS)
    if p < 0.8:
        return rng.choice(rng.choice((PROSE, NEAR_TAGS, WHITE_SPACE, NEARLY_WHITE, STRANGE, PLAIN_NUMBERS)))
    if p < 0.9:
        return rng.choice(("at", "s", "[1,2,30,40]", "[[.1,.1,.9,.9]]", " at ", " s", "0"))
    return rng.choice((_name(rng), _box_text(rng, setup), _time_text(rng, setup)))


# --- The texts ------------------------------------------------------------------------------------------------------------


def _response(rng: random.Random, setup: Setup) -> list[str]:
    """The parts of a response as it should be, with at most three claims."""
    parts = ["<think>"]
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        parts += [rng.choice(PROSE), *_claim(rng, setup)]
    return [*parts, rng.choice(PROSE), "</think>", _space(rng), "<answer>", _space(rng), rng.choice(PROSE), "</answer>"]


def _rearranged(rng: random.Random, setup: Setup) -> list[str]:
    """Claims, think and answer tags in any order."""
    parts = ["<think>"] if rng.random() < 0.6 else []
    for _ in range(rng.randrange(2, 6)):
        p = rng.random()
        if p < 0.6:
            parts += (*rng.choice(((), ("<think>",), ("<answer>",))), *_claim(rng, setup))
        else:
            parts.append(rng.choice((*FRAME_TAGS, *PROSE)))
    return parts


def _change_parts(rng: random.Random, setup: Setup, parts: list[str]) -> None:
    """Leaves out, doubles, swaps, replaces or inserts one part, or cuts the text."""
    i = rng.randrange(len(parts))
    match rng.randrange(8):
        case 0 | 1:
            del parts[i]
        case 2:
            parts.insert(i, parts[i])
        case 3:
            j = rng.randrange(len(parts))
            parts[i], parts[j] = parts[j], parts[i]
        case 4:
            parts[i] = _piece(rng, setup)
        case 5:
            del parts[i + 1 :]
        case _:
            parts.insert(i, _piece(rng, setup))


def _mangled(rng: random.Random, text: str) -> str:
    """Leaves out, doubles, replaces or inserts one character."""
    i = rng.randrange(len(text) + 1)
    match rng.randrange(4):
        case 0:
            return text[:i] + text[i + 1 :]
        case 1:
            return text[:i] + text[i : i + 1] + text[i:]
        case 2:
            return text[:i] + rng.choice("<>/[],.-+eE0s \n\x00狗\xa0\ud800") + text[i + 1 :]
        case _:
            return text[:i] + rng.choice("<>/[],.-+eE0s \n\x00狗\xa0\ud800🙂") + text[i:]


def _soup(rng: random.Random, setup: Setup) -> str:
    """Pieces in any order, as a rule in a think block."""
    text = "".join(_piece(rng, setup) for _ in range(rng.randrange(26)))
    return "<think>" + text + rng.choice(("", "</think>", "</think>")) if rng.random() < 0.7 else text


def _random_text(rng: random.Random, setup: Setup) -> str:
    """One text: soup, or a response with a number of changes."""
    p = rng.random()
    if p < 0.25:
        return _soup(rng, setup)
    parts = _response(rng, setup) if p < 0.87 else _rearranged(rng, setup)
    for _ in range(rng.choice((0, 0, 0, 0, 1, 1, 2, 4))):
        if parts:
            _change_parts(rng, setup, parts)
    text = "".join(parts)
    return _mangled(rng, text) if rng.random() < 0.15 else text


# --- The comparison -------------------------------------------------------------------------------------------------------


def _as_oracle_response(claims: ClaimBatch, report: ParseReport, r: int) -> oracle.OracleResponse:
    """What the fast parser says of one text, in the form of the oracle."""
    return oracle.OracleResponse(
        claims=[
            oracle.OracleClaim(claims.name(c), float(claims.time_s[c]), claims.claim_boxes(c)) for c in claims.responses.rows(r)
        ],
        rejected=[(str(claim.reason), claim.begin, claim.end) for claim in report.rejected_claims(r)],
        has_think=report.has_think[r],
        balanced=report.balanced[r],
        answer=report.answers[r],
    )


def _rounded(response: oracle.OracleResponse) -> oracle.OracleResponse:
    """The same with float32 numbers."""
    claims = [
        oracle.OracleClaim(
            claim.name,
            float(np.float32(claim.time_s)),
            [tuple(np.array(box, dtype=np.float32).tolist()) for box in claim.boxes],
        )
        for claim in response.claims
    ]
    return oracle.OracleResponse(claims, response.rejected, response.has_think, response.balanced, response.answer)


def _agree(claims: ClaimBatch, report: ParseReport, expected: list[oracle.OracleResponse]) -> bool:
    """Whether a whole batch is as the oracle says, column by column."""
    wanted = [claim for response in expected for claim in response.claims]
    rejected = [row for response in expected for row in response.rejected]
    wanted_boxes = [box for claim in wanted for box in claim.boxes]
    reasons = [list(PolicyFault)[code].value for code in report.reason.tolist()]
    counted = [sum(PolicyFault(reason).counts for reason, _, _ in response.rejected) for response in expected]
    return (
        claims.responses.lengths == tuple(len(response.claims) for response in expected)
        and [claims.names[i] for i in claims.name_id.tolist()] == [claim.name for claim in wanted]
        and np.array_equal(claims.time_s.numpy(), np.array([claim.time_s for claim in wanted], dtype=np.float32))
        and claims.boxes.lengths == tuple(len(claim.boxes) for claim in wanted)
        and np.array_equal(claims.box_xyxy.numpy(), np.array(wanted_boxes, dtype=np.float32).reshape(-1, 4))
        and report.rejected.lengths == tuple(len(response.rejected) for response in expected)
        and [(reason, *span) for reason, span in zip(reasons, report.span.tolist(), strict=True)] == rejected
        and report.num_faults.tolist() == counted
        and report.has_think == tuple(response.has_think for response in expected)
        and report.balanced == tuple(response.balanced for response in expected)
        and report.answers == tuple(response.answer for response in expected)
    )


def _parse_fast(texts: list[str], setups: list[Setup]) -> tuple[ClaimBatch, ParseReport]:
    return parse_claims(
        texts,
        coord_space=[setup.coord_space for setup in setups],
        frame_hw=[setup.frame_hw for setup in setups],
        duration_s=[setup.duration_s for setup in setups],
    )


def _first_difference(texts: list[str], setups: list[Setup], expected: list[oracle.OracleResponse]) -> str:
    """Tells of the first text that is read differently: alone, or only with the others around it."""
    for text, setup, response in zip(texts, setups, expected, strict=True):
        alone = _parse_fast([text], [setup])
        if not _agree(*alone, [response]):
            parsed, faults = _as_oracle_response(*alone, 0), alone[1].num_faults.tolist()
            return f"\n{text!r}\n{setup}\nparser: {parsed}, {faults=}\noracle: {_rounded(response)}"
    claims, report = _parse_fast(texts, setups)
    for r, response in enumerate(expected):
        if (parsed := _as_oracle_response(claims, report, r)) != _rounded(response):
            return f"\nin a batch only: {texts[r]!r}\n{setups[r]}\nparser: {parsed}\noracle: {_rounded(response)}"
    return "the columns of the batch differ, though no text alone does"


def _compare(num_texts: int, seed: int) -> Counter[str]:
    """Compares both on so many random texts; counts texts with an accepted claim, and the reasons of the others."""
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    for start in range(0, num_texts, BATCH):
        setups = rng.choices(SETUPS, weights=(6, 3, 1, 3, 1, 3, 1), k=min(BATCH, num_texts - start))
        texts = [_random_text(rng, setup) for setup in setups]
        expected = [
            oracle.parse(text, scale=setup.scale, frame_hw=setup.frame_hw, duration_s=setup.duration_s)
            for text, setup in zip(texts, setups, strict=True)
        ]
        claims, report = _parse_fast(texts, setups)
        assert _agree(claims, report, expected), _first_difference(texts, setups, expected)
        counts["accepted"] += sum(bool(response.claims) for response in expected)
        counts.update(reason for response in expected for reason, _, _ in response.rejected)
    return counts


def _assert_meaningful(counts: Counter[str], num_texts: int) -> None:
    """The mix must reach every reason, and enough claims must be good."""
    assert counts["accepted"] >= MIN_ACCEPTED_SHARE * num_texts, counts
    assert {fault.value for fault in PolicyFault if fault is not PolicyFault.BEYOND_CAP} <= set(counts), counts


def test_agrees_with_oracle(record_property: Callable[[str, object], None]) -> None:
    counts = _compare(NUM_QUICK, seed=0)
    record_property("counts", dict(counts.most_common()))
    _assert_meaningful(counts, NUM_QUICK)


@pytest.mark.full
def test_agrees_with_oracle_on_a_million(record_property: Callable[[str, object], None]) -> None:
    counts = _compare(NUM_FULL, seed=1)
    record_property("counts", dict(counts.most_common()))
    _assert_meaningful(counts, NUM_FULL)
