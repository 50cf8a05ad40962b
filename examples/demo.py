"""make demo: a small clip, good and bad completions, their evidence rewards, and a page that shows them.

The referee has random weights, so that nothing need be downloaded: what it thinks of a claim means nothing. Everything else is
what it will be with a real one: the parsing, the faults, the frames, the time penalty, the answer and format parts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ser_fast import cli
from ser_fast.testing import moving_square, write_clip, write_random_vlm

OUT = Path("demo-out")
NOTE = "The referee of this demo has random weights: its scores (relevance, localization, colours) mean nothing."
NUM_FRAMES, FPS, HEIGHT, WIDTH = 90, 30.0, 240, 320


def main() -> int:
    OUT.mkdir(exist_ok=True)
    frames, boxes = moving_square(NUM_FRAMES, height=HEIGHT, width=WIDTH)
    write_clip(OUT / "square.mp4", frames, fps=FPS)
    rollouts = OUT / "rollouts.jsonl"
    rollouts.write_text("".join(json.dumps(row) + "\n" for row in _rollouts(boxes)), encoding="utf-8")
    referee = write_random_vlm(OUT / "random-referee", gain=1.4)

    scored = OUT / "scored.jsonl"
    inputs = ["--rollouts", str(rollouts), "--videos", str(OUT)]
    code = cli.main(["score", *inputs, "--referee", str(referee), "--out", str(scored)])
    code = code or cli.main(["render", *inputs, "--scored", str(scored), "--out", str(OUT / "page"), "--note", NOTE])
    if code == 0:
        _show([json.loads(line) for line in scored.read_text("utf-8").splitlines()])
    return code


def _rollouts(boxes: list[tuple[int, int, int, int]]) -> list[dict[str, object]]:
    """One question, completions from right to hopeless."""

    def claim(name: str, second: float, box: object) -> str:
        return f"<obj>{name}</obj><box>{json.dumps(box)}</box>at<t>{second}</t>s"

    def at(second: float) -> list[int]:
        return list(boxes[round(second * FPS)])

    completions = {
        "right": f"<think>I see a {claim('red square', 1.0, at(1.0))} and later {claim('red square', 2.5, at(2.5))}.</think>"
        "<answer>a red square</answer>",
        "wrong place": f"<think>There is a {claim('red square', 1.0, [0, 0, 60, 60])}.</think><answer>a red square</answer>",
        "between frames": f"<think>There is a {claim('red square', 1.25, at(1.25))}.</think><answer>a red square</answer>",
        "wrong answer": f"<think>There is a {claim('red square', 1.0, at(1.0))}.</think><answer>a blue circle</answer>",
        "no evidence": "<think>It is obvious.</think><answer>a red square</answer>",
        "broken claims": f"<think>{claim('red square', 1.0, [90, 90, 30, 30])} {claim('red square', 77, at(1.0))} "
        "<obj>red square</obj><box>[1, 2, NaN, 4]</box>at<t>1</t>s</think><answer>a red square</answer>",
        "not finished": f"<think>There is a {claim('red square', 1.0, at(1.0))}",
    }
    return [
        {
            "schema": 1,
            "id": id_,
            "group": "demo",
            "video": "square.mp4",
            "question": "What moves across the picture?",
            "answer": "a red square",
            "task": "free-form",
            "coord_space": {"kind": "pixels", "height": HEIGHT, "width": WIDTH},
            "sampling": {"fps": 2.0},
            "completion": completion,
        }
        for id_, completion in completions.items()
    ]


def _show(lines: list[dict[str, object]]) -> None:
    console = Console()
    table = Table("completion", "total", "answer", "format", "evidence", "claims", "rejected", title="rewards")
    for line in lines:
        parts = line["parts"]
        numbers = [line["total"], parts["answer"], parts["format"], parts["evidence"]]  # type: ignore[index]
        rejected = ", ".join(claim["reason"] for claim in line["rejected"])  # type: ignore[attr-defined]
        table.add_row(str(line["id"]), *(f"{n:.2f}" for n in numbers), str(len(line["claims"])), rejected)  # type: ignore[arg-type]
    console.print(table)
    console.print(f"[bold]{NOTE}[/bold]")
    console.print(f"Frames with the claims drawn: {(OUT / 'page' / 'index.html').resolve()}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
