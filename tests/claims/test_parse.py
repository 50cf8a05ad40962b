"""parse_claims by example: what is accepted, what is repaired, every reason; arguments; speed on hostile text."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import torch

from ser_fast.claims import parse_claims, render_claims
from ser_fast.faults import PolicyFault
from ser_fast.types import ClaimBatch, CoordSpace, ParseReport
from tests.support.tolerance import exact

THOUSANDTHS = CoordSpace(kind="norm1000")
CLAIM = "<obj>cat</obj><box>[100,200,300,400]</box>at<t>2.5</t>s"


def _parse(*texts: str, frame_hw: tuple[int, int] = (1000, 1000), duration_s: float = 10.0) -> tuple[ClaimBatch, ParseReport]:
    return parse_claims(texts, coord_space=THOUSANDTHS, frame_hw=frame_hw, duration_s=duration_s)


def _thought(text: str) -> str:
    return f"<think>{text}</think><answer>yes</answer>"


ACCEPTED = {
    "plain": CLAIM,
    "white space everywhere": "<obj> cat\n</obj> <box> [ 100 ,\n200\t, 300 , 400 ] </box>\n at <t> 2.5 </t> s",
    "decimals and exponents": "<obj>cat</obj><box>[1e2,200.0,+300.,.4e3]</box>at<t>25e-1</t>s",
    "nested bracket": "<obj>cat</obj><box>[[100,200,300,400]]</box>at<t>2.5</t>s",
    "deep brackets": "<obj>cat</obj><box>[[[[100,200,300,400]]]]</box>at<t>2.5</t>s",
    "text right behind": CLAIM + "itting on a mat",
    "angle brackets in the prose": f"a < b > c <b>bold</b> {CLAIM} <",
    "times outside claims": f"<t>3</t>s to <t>4</t>s {CLAIM} <t>9</t>s",
    "closing tags out of nowhere": f"</box></obj></t>{CLAIM}</obj>",
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted(case: str) -> None:
    claims, report = _parse(_thought(ACCEPTED[case]))
    assert report.rejected_claims(0) == []
    assert (claims.num_claims, claims.name(0), claims.time_s.tolist()) == (1, "cat", [2.5])
    assert claims.claim_boxes(0) == [(100.0, 200.0, 300.0, 400.0)]


def test_one_to_four_boxes_in_one_or_more_tags() -> None:
    box = "[{0},{0},90{0},90{0}]"
    tags = "".join(f"<box>{box.format(i)}</box>" for i in range(1, 5))
    one_tag = f"<box>[{','.join(box.format(i) for i in range(1, 5))}]</box>"
    mixed = f"<box>[{box.format(1)},{box.format(2)},{box.format(3)}]</box><box>{box.format(4)}</box>"
    claims, report = _parse(*(_thought(f"<obj>x</obj>{boxes}at<t>1</t>s") for boxes in (tags, one_tag, mixed)))
    assert report.rejected.num_rows == 0
    assert claims.boxes.lengths == (4, 4, 4)
    exact(claims.box_xyxy[:4], claims.box_xyxy[4:8])
    exact(claims.box_xyxy[:4], claims.box_xyxy[8:])


BAD_BRACKETS = (
    *("", "[]", "1,2,3,4", "[1,2,3]", "[1,2,3,4,5]", "[1 2 3 4]", "[1,2,3,4,]", "[1,2,3,4", '["1",2,3,4]', "[1,2,3,0x4]"),
    *("[[1,2],[3,4]]", "[1,2,[3,4,5,6]]", "[[1,2,3,4],5]", "(1,2,3,4)", "[[[[[1,2,3,4]]]]]"),
)

REJECTED = {
    PolicyFault.MISSING_NAME: ["<obj> </obj><box>[1,2,300,400]</box>at<t>1</t>s", "<box>[1,2,300,400]</box>at<t>1</t>s"],
    PolicyFault.LONG_NAME: [f"<obj>{'x' * 65}</obj><box>[1,2,300,400]</box>at<t>1</t>s"],
    PolicyFault.NESTED_TAG: [
        "<obj>a<box>[1,2,300,400]</box>at<t>1</t>s",
        "<obj>a</obj><box>[1,2,300,400]at<t>1</t>s",
        "<obj>a</obj><box>[1,2,300,400]</box>at<t>1<t></t>s",
        "<obj>a <obj>b</obj>",
    ],
    PolicyFault.MISSING_BOX: [
        "<obj>a</obj> is here",
        "<obj>a</obj>at<t>1</t>s",
        "<obj>a</obj>: <box>[1,2,300,400]</box>at<t>1</t>s",
    ],
    PolicyFault.MALFORMED_BOX: [f"<obj>a</obj><box>{text}</box>at<t>1</t>s" for text in BAD_BRACKETS],
    PolicyFault.TOO_MANY_BOXES: [f"<obj>a</obj>{'<box>[1,2,300,400]</box>' * 5}at<t>1</t>s"],
    PolicyFault.MISSING_TIME: [
        "<obj>a</obj><box>[1,2,300,400]</box> here",
        "<obj>a</obj><box>[1,2,300,400]</box><t>1</t>s",
        "<obj>a</obj><box>[1,2,300,400]</box>At<t>1</t>s",
    ],
    PolicyFault.MALFORMED_TIME: [
        f"<obj>a</obj><box>[1,2,300,400]</box>at<t>{t}</t>s" for t in ("", "0:05", "1.2.3", "1s", "one")
    ],
    PolicyFault.MISSING_UNIT: [
        "<obj>a</obj><box>[1,2,300,400]</box>at<t>1</t>.",
        "<obj>a</obj><box>[1,2,300,400]</box>at<t>1</t>S",
    ],
    PolicyFault.NON_FINITE: [
        "<obj>a</obj><box>[1,2,NaN,400]</box>at<t>1</t>s",
        "<obj>a</obj><box>[1,2,300,-inf]</box>at<t>1</t>s",
        "<obj>a</obj><box>[1,2,300,1e999]</box>at<t>1</t>s",
        "<obj>a</obj><box>[1,2,300,400]</box>at<t>Infinity</t>s",
    ],
    PolicyFault.INVERTED_BOX: [
        "<obj>a</obj><box>[300,2,1,400]</box>at<t>1</t>s",
        "<obj>a</obj><box>[1,400,300,2]</box>at<t>1</t>s",
    ],
    PolicyFault.EMPTY_BOX: ["<obj>a</obj><box>[1,2,1,400]</box>at<t>1</t>s", "<obj>a</obj><box>[1,2,300,2]</box>at<t>1</t>s"],
    PolicyFault.OUT_OF_FRAME: [
        "<obj>a</obj><box>[1000,2,1300,400]</box>at<t>1</t>s",
        "<obj>a</obj><box>[-300,2,0,400]</box>at<t>1</t>s",
        "<obj>a</obj><box>[1,2,300,400]</box><box>[1,2000,300,4000]</box>at<t>1</t>s",
    ],
    PolicyFault.TOO_SMALL: [
        "<obj>a</obj><box>[1,2,4.9,400]</box>at<t>1</t>s",
        "<obj>a</obj><box>[-900,2,3,400]</box>at<t>1</t>s",
    ],
    PolicyFault.OUT_OF_CLIP: [f"<obj>a</obj><box>[1,2,300,400]</box>at<t>{t}</t>s" for t in ("-0.1", "10.01", "1e300")],
}


@pytest.mark.parametrize(
    ("reason", "text"), [pytest.param(r, t, id=f"{r}-{i}") for r, ts in REJECTED.items() for i, t in enumerate(ts)]
)
def test_rejected_with_its_reason_and_alone(reason: PolicyFault, text: str) -> None:
    claims, report = _parse(_thought(f"see {text} and {CLAIM}."))
    assert claims.num_claims == 1, "the claim behind it stands"
    rejected = report.rejected_claims(0)
    assert [claim.reason for claim in rejected][:1] == [reason]
    assert report.num_faults.tolist() == [len(rejected)]
    assert report.texts[0][rejected[0].begin : rejected[0].end] == rejected[0].text
    assert rejected[0].text.startswith(text[:5])


PLACES = {
    PolicyFault.IN_ANSWER: f"<think>t</think><answer>{CLAIM}</answer>",
    PolicyFault.THINK_UNCLOSED: f"<think>{CLAIM}<answer>yes</answer>",
    PolicyFault.OUTSIDE_THINK: f"{CLAIM}<think>t</think><answer>yes</answer>",
}


@pytest.mark.parametrize("reason", PLACES)
def test_claims_in_the_wrong_place_enter_no_count(reason: PolicyFault) -> None:
    claims, report = _parse(PLACES[reason])
    assert claims.num_claims == 0
    assert [(claim.reason, claim.text) for claim in report.rejected_claims(0)] == [(reason, CLAIM)]
    assert report.num_faults.tolist() == [0]


def test_every_reason_of_parsing_has_an_example() -> None:
    assert {*REJECTED, *PLACES} == set(PolicyFault) - {PolicyFault.BEYOND_CAP}


def test_more_places() -> None:
    claims, report = _parse(
        f"<think>a</think><think>{CLAIM}</think><answer>b</answer>",
        f"<answer>{CLAIM}",
        f"<think><answer>{CLAIM}</think>",
        CLAIM,
        f"<answer>{CLAIM}</answer><think>{CLAIM}</think>",
    )
    reasons = [[claim.reason for claim in report.rejected_claims(r)] for r in range(5)]
    assert reasons == [["outside_think"], ["in_answer"], ["in_answer"], ["outside_think"], ["in_answer"]]
    assert claims.responses.lengths == (0, 0, 0, 0, 1)


def test_a_broken_claim_swallows_its_own_remains_only() -> None:
    claims, report = _parse(_thought(f"<obj>a</obj><box>[1,2</box><box>[3]</box><t>1</t></box> then {CLAIM}"))
    assert claims.num_claims == 1
    assert [(c.reason, c.text) for c in report.rejected_claims(0)] == [
        ("malformed_box", "<obj>a</obj><box>[1,2</box><box>[3]</box><t>1</t></box>")
    ]


def test_boxes_are_clipped_to_the_frame() -> None:
    claims, _ = _parse(_thought("<obj>a</obj><box>[-50,-1e300,1e300,500]</box>at<t>1</t>s"), frame_hw=(360, 640))
    assert claims.claim_boxes(0) == [(0.0, 0.0, 640.0, 180.0)]


def test_boxes_come_in_pixels_of_the_frame_from_every_space() -> None:
    spaces = [CoordSpace(kind="norm1"), CoordSpace(kind="norm1000"), CoordSpace(kind="pixels", height=224, width=420)]
    texts = [
        _thought(f"<obj>a</obj><box>{box}</box>at<t>1</t>s")
        for box in ("[.25,.5,.75,1]", "[250,500,750,1000]", "[105,112,315,224]")
    ]
    claims, _ = parse_claims(texts, coord_space=spaces, frame_hw=(360, 640), duration_s=10)
    assert claims.box_xyxy.tolist() == [[160.0, 180.0, 480.0, 360.0]] * 3


def test_unicode_names_survive_and_spans_count_characters() -> None:
    names = ["犬と猫", "👩‍👩‍👧", "Größe", "e\u0301"]
    text = _thought("".join(f"é{CLAIM.replace('cat', name)}" for name in names) + "<obj>猫</obj>!")
    claims, report = _parse(text)
    assert [claims.name(c) for c in range(4)] == names
    (rejected,) = report.rejected_claims(0)
    assert rejected.text == "<obj>猫</obj>"
    assert text[rejected.begin : rejected.end] == rejected.text


def test_lone_surrogates_and_control_characters_do_no_harm() -> None:
    claims, report = _parse(
        _thought("<obj>a\ud800\x00b</obj><box>[1,2,300,400]</box>at<t>1</t>s<obj>\udfff</obj>"), "\ud800<think>"
    )
    assert claims.name(0) == "a\ufffd b"
    assert report.rejected_claims(0)[0].text == "<obj>\udfff</obj>"


def test_names_are_shared_between_claims() -> None:
    claims, _ = _parse(_thought(CLAIM * 2 + CLAIM.replace("cat", "dog")), _thought(CLAIM))
    assert claims.names == ("cat", "dog")
    assert claims.name_id.tolist() == [0, 0, 1, 0]


def test_blocks_and_balance() -> None:
    _, report = _parse(
        "<think>a</think><answer> b\u3000</answer>",
        "<think>a</think><answer>b",
        "a</think><answer>b</answer><answer>c</answer>",
        "<think><obj></think><answer>b</answer>",
        "<think>a</think><obj><answer>b</answer>",
    )
    assert report.answers == ("b", None, "b", "b", "b")
    assert report.has_think == (True, True, False, True, True)
    assert report.balanced == (True, False, False, False, True), "claim tags outside the think block do not matter"


def test_no_texts_and_empty_texts() -> None:
    for texts in ([], [""], ["", ""]):
        claims, report = parse_claims(texts, coord_space=THOUSANDTHS, frame_hw=(9, 9), duration_s=1.0)
        assert (claims.num_claims, len(report), len(claims.responses)) == (0, len(texts), len(texts))
        assert claims.box_xyxy.shape == (0, 4)
        assert claims.time_s.dtype == claims.box_xyxy.dtype == torch.float32


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"texts": ["a", b"b"]}, TypeError, r"texts\[1\]: expected a str, got bytes"),
        ({"profile": "lenient"}, ValueError, "profile: expected 'strict', got 'lenient'"),
        ({"duration_s": [1.0]}, ValueError, "duration_s: expected one value, or one for each of 2 texts, got 1"),
        ({"frame_hw": [(9, 9)] * 3}, ValueError, "frame_hw: expected one value, or one for each of 2 texts, got 3"),
        ({"duration_s": float("nan")}, ValueError, r"duration_s: expected numbers >= 0, got \[nan, nan\]"),
        ({"duration_s": [1.0, -1.0]}, ValueError, r"duration_s: expected numbers >= 0, got \[1.0, -1.0\]"),
        ({"coord_space": [THOUSANDTHS]}, ValueError, "coord_space: expected one value, or one for each of 2 texts, got 1"),
    ],
)
def test_errors(change: dict[str, object], error: type[Exception], message: str) -> None:
    arguments: dict[str, object] = {"texts": ["a", "b"], "coord_space": THOUSANDTHS, "frame_hw": (9, 9), "duration_s": 1.0}
    arguments |= change
    with pytest.raises(error, match=message):
        parse_claims(arguments.pop("texts"), **arguments)  # type: ignore[arg-type]


def test_rendering_is_the_inverse_of_parsing() -> None:
    texts = [
        _thought(CLAIM + CLAIM.replace("2.5", "7.25")),
        _thought("nothing"),
        _thought(CLAIM.replace("[100", "[1,2,30,40],[100").replace("]<", "]]<").replace("<box>[1", "<box>[[1")),
    ]
    claims, _ = _parse(*texts)
    for space in (THOUSANDTHS, CoordSpace(kind="norm1"), CoordSpace(kind="pixels", height=2000, width=3000)):
        again, report = parse_claims(
            [_thought(text) for text in render_claims(claims, coord_space=space, frame_hw=(1000, 1000))],
            coord_space=space,
            frame_hw=(1000, 1000),
            duration_s=10.0,
        )
        assert report.rejected.num_rows == 0
        assert (again.names, again.responses.lengths, again.boxes.lengths) == (
            claims.names,
            claims.responses.lengths,
            claims.boxes.lengths,
        )
        torch.testing.assert_close(again.box_xyxy, claims.box_xyxy, atol=0.5, rtol=0)
        torch.testing.assert_close(again.time_s, claims.time_s)


ORDINARY = (
    "<think>The question is what the woman does after she puts the cup down. First <obj>a woman in a light coat</obj>"
    "<box>[362,116,466,338]</box>at<t>9.0</t>s walks to the table, looks at the people around her, and reaches for the cup, "
    "while <obj>the other man</obj><box>[12, 40, 210, 338]</box>at<t>9.4</t>s turns away from the camera. Then she puts it "
    "down again and opens the door, so the answer must be the second one.</think><answer>B</answer>"
)
SIZE = 100_000

HOSTILE: dict[str, str] = {
    "open brackets": "<",
    "open names": "<obj>",
    "empty names": "<obj></obj>",
    "closed boxes": "<box>[1,2,3,4]</box>",
    "boxes of one claim": "<obj>a</obj>" + "<box>[10,20,30,40]</box>" * 4000,
    "good claims": "<think>" + "<obj>a</obj><box>[1,2,300,400]</box>at<t>1</t>s" * 2000 + "</think>",
    "think tags": "<think>",
    "answers": "<answer><obj>x",
    "times": "<t>",
    "broken boxes": "<think><obj>é</obj><box>[1,2,3",
    "one box of brackets": "<think><obj>a</obj><box>" + "[" * SIZE,
    "a list of boxes": "<think><obj>a</obj><box>[" + "[1,2,3,4]," * 10_000 + "[1,2,3,4]]</box>at<t>1</t>s</think>",
    "a long number": "<think><obj>a</obj><box>[" + "1" * SIZE + ",2,3,4]</box>at<t>1</t>s</think>",
    "a long exponent": "<think><obj>a</obj><box>[1e" + "9" * SIZE + ",2,3,4]</box>at<t>1</t>s</think>",
    "white space": "<think><obj>a</obj>" + " " * SIZE,
    "near tags": "<objj></bo><think <t></ t>",
    "surrogates": "<obj>\ud800",
    **{
        f"a name of {what}": f"<think><obj>{unit * (SIZE // len(unit.encode('utf-8', 'surrogatepass')))}</obj>"
        "<box>[1,2,300,400]</box>at<t>1</t>s</think>"
        for what, unit in {
            "control characters": "\x01",
            "letters and control characters": "a\x01",
            "Latin letters": "é",
            "late control characters": "\x85",
            "Chinese": "猫",
            "emoji": "👩‍👧",
            "surrogates": "\ud800",
        }.items()
    },
    "many odd names": "<think>"
    + "".join(f"<obj>{i}{chr(1) * 50}</obj><box>[1,2,300,400]</box>at<t>1</t>s" for i in range(1000))
    + "</think>",
}


def test_hostile_text_costs_little_more_than_ordinary_text(record_property: Callable[[str, object], None]) -> None:
    """CPU time per byte of 100 kB of each kind: at most 10 times that of 100 kB of ordinary completions."""
    ordinary = _seconds_per_byte([ORDINARY] * (SIZE // len(ORDINARY)))
    ratios = {name: _seconds_per_byte([unit * max(1, SIZE // len(unit))]) / ordinary for name, unit in HOSTILE.items()}
    worst = max(ratios, key=ratios.__getitem__)
    record_property("worst ratio", f"{ratios[worst]:.1f} ({worst})")
    assert ratios[worst] <= 10, ratios


@pytest.mark.parametrize("name", [name for name, unit in HOSTILE.items() if len(unit) < 100])
def test_parsing_is_linear(name: str) -> None:
    """Ten times the text takes ten times as long, caches aside; were it quadratic, a hundred times."""
    unit = HOSTILE[name]
    small, large = ([unit * (size // len(unit))] for size in (3 * SIZE, 30 * SIZE))
    assert _seconds_per_byte(large, rounds=2) <= 5 * _seconds_per_byte(small)


def _seconds_per_byte(texts: list[str], rounds: int = 5) -> float:
    """The best of several parses, in CPU time of this thread: other processes do not count."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.thread_time()
        _parse(*texts)
        best = min(best, time.thread_time() - begin)
    return best / sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def test_the_scanner_releases_the_gil() -> None:
    """Another thread goes on while a large batch is scanned."""
    from ser_fast import _native

    texts = [(ORDINARY * 20_000).encode()] * 4
    ticks: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    begin = time.perf_counter()
    _native.call("scan_claims", texts)
    end = time.perf_counter()
    done.set()
    thread.join()
    during = sum(begin < t < end for t in ticks)
    assert end - begin > 0.02, "the batch is too small to show anything"
    assert during >= 3
