"""The commands, run as a user runs them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from ser_fast import cli
from ser_fast.testing import moving_square, write_clip

COMPLETION = "<think><obj>red square</obj><box>[0,45,30,75]</box>at<t>0.0</t>s</think><answer>red</answer>"


def _row(**changes: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "id": "r0",
        "group": "g",
        "video": "clip.mp4",
        "question": "What colour is the square?",
        "answer": "red",
        "task": "free-form",
        "coord_space": {"kind": "pixels", "height": 120, "width": 160},
        "completion": COMPLETION,
        "sampling": {"fps": 2.0, "max_frames": 16},
    } | changes


class Workplace:
    """A folder with a clip, rollouts and a referee, and the score command on them."""

    def __init__(self, root: Path, referee: Path) -> None:
        self.root, self.referee = root, referee
        self.videos = root / "videos"
        self.videos.mkdir()
        frames, _ = moving_square(30)
        write_clip(self.videos / "clip.mp4", frames)
        self.rollouts = root / "rollouts.jsonl"
        self.out = root / "scored.jsonl"
        self.write(_row())

    def write(self, *rows: dict[str, Any]) -> None:
        self.rollouts.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def score(self, *options: str) -> int:
        arguments = ["--rollouts", str(self.rollouts), "--videos", str(self.videos), "--referee", str(self.referee)]
        return cli.main(["score", *arguments, "--no-timings", "--out", str(self.out), *options])

    def render_command(self, *options: str) -> list[str]:
        inputs = ["--scored", str(self.out), "--rollouts", str(self.rollouts), "--videos", str(self.videos)]
        return ["render", *inputs, "--out", str(self.root / "pages"), *options]

    def render(self, *options: str) -> str:
        """The page."""
        assert cli.main(self.render_command(*options)) == 0
        return (self.root / "pages" / "index.html").read_text("utf-8")

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.read_text("utf-8").splitlines()]


@pytest.fixture
def place(tmp_path: Path, random_vlm: dict[str, Path]) -> Workplace:
    return Workplace(tmp_path, random_vlm["qwen2_5_vl"])


def test_real_rollouts_as_a_user_runs_them(shared_data: Path, random_vlm: dict[str, Path], tmp_path: Path) -> None:
    """Six lines, the malformed claims with their reasons, two runs in two processes byte-equal."""
    command = [Path(sys.executable).parent / "ser-fast", "score", "--no-timings"]
    command += ["--rollouts", shared_data / "rollouts_real.jsonl", "--videos", shared_data / "videos"]
    command += ["--referee", random_vlm["qwen2_5_vl"]]
    runs = [subprocess.run(command, capture_output=True, cwd=tmp_path) for _ in range(2)]
    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr.decode()
    assert runs[0].stdout == runs[1].stdout
    assert runs[0].stderr == b"", "nothing but the result"
    lines = [json.loads(line) for line in runs[0].stdout.splitlines()]
    assert [line["id"] for line in lines] == ["a0", "a1", "a2", "a3", "b0", "b1"]
    assert all(line["valid"] for line in lines)
    assert [len(line["claims"]) for line in lines] == [2, 1, 0, 0, 2, 1]
    reasons = [claim["reason"] for claim in lines[3]["rejected"]]
    assert reasons == ["inverted_box", "out_of_clip", "non_finite"]
    assert lines[3]["parts"] == {"answer": 0.0, "format": 0.0, "evidence": 0.0}
    assert lines[5]["claims"][0]["boxes"] == [[139.52, 127.68, 289.28, 478.08]], "thousandths of a 640 x 480 frame"
    assert lines[4]["parts"]["answer"] == 1.0
    assert all(0 <= claim[axis] <= 1 for line in lines for claim in line["claims"] for axis in ("relevance", "localization"))


def test_lines_keep_the_order_of_the_file_whatever_their_video(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    write_clip(place.videos / "other.mp4", moving_square(5)[0])
    rows = [_row(id=str(i), video=["clip.mp4", "other.mp4", "gone.mp4"][i % 3]) for i in range(9)]
    place.write(*rows)
    monkeypatch.setattr(cli, "MAX_BATCH", 2)
    assert place.score() == 0
    assert [line["id"] for line in place.lines()] == [str(i) for i in range(9)]
    assert [line["valid"] for line in place.lines()] == [True, True, False] * 3


def test_strict_is_content_when_all_lines_are_valid(place: Workplace) -> None:
    assert place.score("--strict") == 0


def test_a_result_goes_where_it_is_sent(place: Workplace) -> None:
    """Through links, into pipes, with the mode that stands there; nothing else is left behind."""
    real = place.root / "real.jsonl"
    real.write_text("old\n")
    real.chmod(0o600)
    place.out.symlink_to(real)
    assert place.score() == 0
    assert (place.out.is_symlink(), real.stat().st_mode & 0o777, len(real.read_text().splitlines())) == (True, 0o600, 1)
    pipe = place.root / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
    place.out = pipe
    assert place.score() == 0
    assert reader.communicate(timeout=60)[0] == real.read_bytes()
    assert pipe.is_fifo()
    place.out = place.root / ("x" * 250)
    assert place.score() == 0
    assert not list(place.root.glob(".*"))


def test_standard_output_is_utf_8_whatever_the_locale(place: Workplace) -> None:
    place.write(_row(completion=COMPLETION.replace("red square", "\u732b \ud800"), id="a\ud800"))
    command = [sys.executable, "-m", "ser_fast.cli", "score", "--rollouts", place.rollouts, "--videos", place.videos]
    command += ["--referee", place.referee]
    run = subprocess.run(command, capture_output=True, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert run.returncode == 0, run.stderr
    line = json.loads(run.stdout.decode("utf-8"))
    assert (line["id"], line["claims"][0]["name"]) == ("a\ud800", "\u732b \ufffd")


def test_an_interrupt_is_one_line(
    place: Workplace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ser_fast.pipeline.score_rollouts", interrupt)
    assert place.score() == 130
    assert capsys.readouterr().err == "ser-fast: interrupted\n"
    assert not place.out.exists()


def _text(place: Workplace) -> None:
    (place.videos / "clip.mp4").write_text("no video at all\n" * 99)


def _cut(place: Workplace) -> None:
    path = place.videos / "clip.mp4"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


UNREADABLE: dict[str, tuple[Callable[[Workplace], Any], str]] = {
    "missing": (lambda p: (p.videos / "clip.mp4").unlink(), "media_error: .*clip.mp4: open: no such file"),
    "text": (_text, "media_error: .*clip.mp4: open: invalid data"),
    "empty": (lambda p: (p.videos / "clip.mp4").write_bytes(b""), "media_error: .*clip.mp4: open: the file is empty"),
    "cut before its index": (_cut, "media_error: .*clip.mp4: open: invalid data"),
    "out of the folder": (lambda p: p.write(_row(video="../clip.mp4")), "media_error: .*the name leads out of the folder"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_unreadable_videos_make_their_lines_not_valid(case: str, place: Workplace, capsys: pytest.CaptureFixture[str]) -> None:
    spoil, reason = UNREADABLE[case]
    spoil(place)
    assert place.score() == 0
    (line,) = place.lines()
    assert (line["valid"], line["total"], line["claims"]) == (False, None, [])
    assert set(line["parts"].values()) == {None}
    assert re.match(reason, line["reason"], re.IGNORECASE)
    assert place.score("--strict") == 2
    assert capsys.readouterr().err == "ser-fast: 1 of 1 responses are not valid; each line says why\n"
    assert len(place.lines()) == 1, "the lines are written all the same"


def _playlist(place: Workplace) -> None:
    (place.videos / "clip.mp4").write_text(
        "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n"
    )


def _concat(place: Workplace) -> None:
    (place.videos / "clip.mp4").rename(place.videos / "real.mp4")
    (place.videos / "clip.mp4").write_text("ffconcat version 1.0\nfile real.mp4\n")


def _drop(key: str) -> Callable[[Workplace], None]:
    return lambda p: p.write({k: v for k, v in _row().items() if k != key})


BAD_INPUT: dict[str, tuple[Callable[[Workplace], Any], str]] = {
    "playlist": (_playlist, r"clip.mp4: open: a playlist or a script, not a media file"),
    "concat script": (_concat, r"clip.mp4: open: a playlist or a script, not a media file"),
    "picture as video": (
        lambda p: Image.new("RGB", (9, 9)).save(p.videos / "clip.mp4", "PNG"),
        "clip.mp4: open: the container is not one of those that are opened",
    ),
    "no rollouts file": (lambda p: p.rollouts.unlink(), "rollouts.jsonl: cannot be read: No such file or directory"),
    "empty rollouts file": (lambda p: p.rollouts.write_text(""), "rollouts.jsonl: no lines"),
    "blank rollouts file": (lambda p: p.rollouts.write_text("\n \n"), "rollouts.jsonl: no lines"),
    "no JSON": (
        lambda p: p.rollouts.write_text(json.dumps(_row()) + "\n{oops\n"),
        r"rollouts.jsonl:2: not JSON: .*\(column 2\)",
    ),
    "JSON but no object": (lambda p: p.rollouts.write_text("[1]\n"), "rollouts.jsonl:1: expected a JSON object, got list"),
    "no UTF-8": (lambda p: p.rollouts.write_bytes(b"\xff\xfe{}"), "rollouts.jsonl: not UTF-8 text"),
    "rollouts is a folder": (lambda p: (p.rollouts.unlink(), p.rollouts.mkdir()), "rollouts.jsonl: cannot be read"),
    **{
        f"no {key}": (_drop(key), f"rollouts.jsonl:1: {message}")
        for key, message in {
            "schema": "schema: expected 1, got None",
            "id": "id: missing",
            "group": "group: missing",
            "video": "video, image: expected exactly one of the two",
            "question": "question: missing",
            "answer": "answer: missing",
            "task": "task: missing",
            "coord_space": "coord_space: missing",
            "completion": "completion: missing",
            "sampling": "frame_times, sampling: expected exactly one of the two",
        }.items()
    },
    "task without an answer rule": (
        lambda p: p.write(_row(task="temporal")),
        "task of question 'r0': 'temporal' has no answer",
    ),
    "window behind the end": (
        lambda p: p.write(_row(sampling={"fps": 1.0, "start": 60.0})),
        "sampling of rollout 'r0': start, end: expected a window that begins in",
    ),
    "letter task without a letter": (
        lambda p: (p.write(_row(), _row(task="mcq")), setattr(p, "referee", p.root / "nothing")),
        "answer of question 'r0': expected a letter, got 'red'",  # found before the referee is looked for
    ),
    "monstrous frame": (
        lambda p: p.write(_row(coord_space={"kind": "pixels", "height": 10**400, "width": 9})),
        "coord_space.height: expected a whole number > 0",
    ),
    "result over its own input": (lambda p: setattr(p, "out", p.rollouts), "rollouts.jsonl: is an input of this command"),
    "no videos folder": (lambda p: p.videos.rename(p.root / "moved"), "root: expected a folder, got '.*videos'"),
    "referee is no folder": (lambda p: setattr(p, "referee", p.root / "nothing"), "nothing: no such folder"),
    "referee is another folder": (lambda p: setattr(p, "referee", p.videos), "not a model folder: config.json is missing"),
    "referee is a file": (lambda p: setattr(p, "referee", p.rollouts), "no such folder"),
    "nowhere to write": (lambda p: setattr(p, "out", p.root / "no" / "out.jsonl"), "out.jsonl: cannot be written"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_ends_with_one_line_and_no_output(case: str, place: Workplace, capsys: pytest.CaptureFixture[str]) -> None:
    spoil, message = BAD_INPUT[case]
    spoil(place)
    before = {path.name for path in place.root.iterdir()}
    assert place.score() == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ser-fast: ")
    assert err.count("\n") == 1
    assert re.search(message, err), err
    assert {path.name for path in place.root.iterdir()} == before, "no output, not even in part"


def test_an_existing_result_survives_bad_input(place: Workplace) -> None:
    place.out.write_text("old\n")
    _playlist(place)
    assert place.score() == 2
    assert place.out.read_text() == "old\n"


def test_unknown_presets_are_named(place: Workplace, capsys: pytest.CaptureFixture[str]) -> None:
    assert place.score("--reward", "sor") == 2
    assert capsys.readouterr().err == "ser-fast: reward: expected a RewardConfig or one of ser, answer, got 'sor'\n"


def test_render_draws_every_claim_and_needs_nothing_else(place: Workplace, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = COMPLETION.replace("red square", "<script>alert(1)</script>&amp;")
    rows = [_row(), _row(id="r/1 \u732b", completion=hostile), _row(id="r2", completion=COMPLETION.replace("[0,", "[NaN,"))]
    place.write(*rows, _row(id="r3", video="gone.mp4"))
    assert place.score() == 0
    pages = place.root / "pages"
    assert cli.main(place.render_command("--note", "a <remark>")) == 0
    assert capsys.readouterr().out == f"{pages / 'index.html'}\n"
    page = (pages / "index.html").read_text("utf-8")
    assert sorted(path.name for path in pages.iterdir()) == ["0001_r0_0.000s.png", "0002_r_1_猫_0.000s.png", "index.html"]
    assert "a &lt;remark&gt;" in page
    assert "<script" not in page
    assert not re.search(r"(src|href)=\"(?!data:)", page), "self-contained"
    assert "non_finite: <code>" in page
    assert "not valid" in page
    with Image.open(pages / "0001_r0_0.000s.png") as image:
        claim = place.lines()[0]["claims"][0]
        from ser_fast.render import score_color

        assert image.getpixel((15, 74)) == score_color(claim["relevance"] * claim["localization"]), "the lower edge of the box"


def test_every_text_on_the_page_is_escaped(place: Workplace) -> None:
    mark = "<img src=x>"
    texts = {key: f"{mark}{key}" for key in ("id", "question", "answer", "video")}
    rejected = COMPLETION.replace("[0,", "[NaN,").replace("red square", f"{mark}rejected")
    rows = [_row(**(texts | {"video": "clip.mp4"}), completion=rejected + f"{mark}completion"), _row(**texts)]
    rows[1]["id"] += "2"
    place.write(*rows)
    assert place.score() == 0
    line, other = place.lines()
    claim = {"name": f"{mark}name", "time_s": 0.0, "boxes": [[0, 0, 9, 9]], "fault": f"{mark}fault"}
    claim |= dict.fromkeys(("relevance", "localization", "penalty", "reward"), 0.5)
    line |= {"claims": [claim], "parts": {f"{mark}part": 1.0}, "reason": f"{mark}reason"}
    line |= {"rejected": [{"reason": f"{mark}why", "text": f"{mark}text"}]}
    place.out.write_text(f"{json.dumps(line)}\n{json.dumps(other)}\n")
    page = place.render("--note", f"{mark}note")
    assert "<img src=x" not in page
    texts_shown = ("id", "question", "answer", "video", "completion", "name", "fault", "part", "reason", "why", "text", "note")
    for what in texts_shown:
        assert f"&lt;img src=x&gt;{what}" in page, what


def test_render_says_why_there_is_no_picture(place: Workplace) -> None:
    assert place.score() == 0
    place.videos.rename(place.root / "moved")
    place.videos.mkdir()
    page = place.render()
    assert "clip.mp4: open: No such file or directory" in page
    assert "red square" in page, "the claims are listed all the same"


def test_render_reads_what_score_writes_whatever_the_texts(place: Workplace) -> None:
    names = ["\ud800", "\u732b" * 100, "a/b\\c", ".", ""]
    place.write(*(_row(id=name, completion=COMPLETION.replace("red square", f"a{name[:50]}")) for name in names))
    assert place.score() == 0
    assert place.render().count("<figure>") == len(names)


WRONG_LINES: list[tuple[dict[str, Any], str]] = [
    ({"total": "x"}, "total: expected a number or null, got 'x'"),
    ({"id": [1]}, r"id: expected a text, got \[1\]"),
    ({"parts": [1]}, "parts: expected numbers by name"),
    ({"reason": 5}, "reason: expected a text or null, got 5"),
    ({"claims": None}, "claims: expected a list of objects, got None"),
    ({"claims": [{}]}, "name: missing"),
    ({"rejected": [1]}, "rejected: expected a list of objects"),
    ({"claims": [{"boxes": [[1, 2]]}]}, "boxes: expected lists of four numbers"),
    ({"claims": [{"time_s": 500}]}, "does not fit clip.mp4: times: expected seconds in"),
]


@pytest.mark.parametrize(("change", "message"), WRONG_LINES, ids=range(len(WRONG_LINES)))
def test_render_refuses_lines_of_the_wrong_form(
    change: dict[str, Any], message: str, place: Workplace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.score() == 0
    (line,) = place.lines()
    if change.get("claims") and change["claims"][0]:
        change = {"claims": [line["claims"][0] | change["claims"][0]]}
    place.out.write_text(json.dumps(line | change) + "\n")
    assert cli.main(place.render_command()) == 2
    err = capsys.readouterr().err
    assert re.search(message, err), err
    assert err.count("\n") == 1


def test_render_names_lines_without_a_rollout(place: Workplace, capsys: pytest.CaptureFixture[str]) -> None:
    assert place.score() == 0
    place.write(_row(id="another"))
    assert cli.main(place.render_command()) == 2
    assert "scored.jsonl:1: no rollout has the id 'r0'" in capsys.readouterr().err
    place.write(_row(), _row())
    assert cli.main(place.render_command()) == 2
    assert "rollouts: two have the id 'r0'" in capsys.readouterr().err


def test_score_color_goes_from_red_to_green() -> None:
    from ser_fast.render import score_color

    red, green = score_color(0.0), score_color(1.0)
    assert red[0] > red[1]
    assert green[1] > green[0]
    assert score_color(2.0) == green


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--device", "meta"), "device: expected cpu, cuda or cuda:N, got 'meta'"),
        (("--device", "cuda:77"), "device: expected one that is there, got 'cuda:77' of"),
    ],
)
def test_devices_that_are_none(
    options: tuple[str, str], message: str, place: Workplace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.score(*options) == 2
    assert message in capsys.readouterr().err


def test_a_backend_that_an_op_lacks_is_one_line(
    place: Workplace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SER_FAST_BACKEND", "cpu")
    assert place.score() == 2
    assert capsys.readouterr().err.startswith("ser-fast: temporal_penalty: no backend 'cpu' for cpu tensors")


def test_info_lists_every_op_with_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["ops"]["crop_patchify"]["cpu"] == {"cpu": "available", "cuda": "runs on cpu, not on cuda"}
    assert facts["ops"]["box_iou"]["reference"]["cpu"] == "available"
    assert facts["versions"]["torch"].startswith("2.")
    assert set(facts["gpu"].values()) == {"unverified on GPU"}
    assert cli.main(["info"]) == 0
    text = capsys.readouterr().out
    assert "crop_patchify" in text
    assert "unverified on GPU" in text.replace("\n", " ")


def test_gpu_figures_are_committed_files() -> None:
    from ser_fast.info import GPU_FIGURES, GPU_SETTINGS
    from tests.conftest import ROOT

    for setting, file in GPU_FIGURES.items():
        assert setting in GPU_SETTINGS
        assert (ROOT / "bench" / "results" / file).is_file()


@pytest.mark.parametrize("command", [[], ["score"], ["render"], ["info"]])
def test_help_is_there(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([*command, "--help"])
    assert caught.value.code == 0
    assert "usage: ser-fast" in capsys.readouterr().out


def test_help_and_bad_input_do_not_wait_for_torch(place: Workplace) -> None:
    """The answer to a typing error comes before the heavy imports."""
    place.rollouts.write_text("oops\n")
    code = (
        "import sys\nfrom ser_fast import cli\n"
        f"code = cli.main(['score', '--rollouts', {str(place.rollouts)!r}, '--videos', 'v', '--referee', 'r'])\n"
        "print(code, 'torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert run.stdout == "2 False\n", run.stderr
