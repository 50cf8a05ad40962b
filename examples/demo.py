"""make demo: a policy learns to cite evidence, on a CPU, in minutes.

The toy policy answers questions about clips of moving shapes and cites what it has seen: an object, a box, a time. It comes
with bad habits. For some steps it is reinforced by SER: the toy referee looks at each cited box and says whether it shows what
is asked for. No true box or time is read. Then the same held-out questions are asked again, the simulator says what is true,
and a page shows the evidence.

Both models ship with the project: two million parameters each, for a world of coloured shapes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from trainer.loop import NUM_SHOWN, train
from trainer.metrics import read_rows
from trainer.presets import Toy
from trainer.report import change
from trainer.toy.boxes import true_iou
from trainer.toy.evaluate import Asked, write_world

OUT = Path("demo-out")
CONFIG = Toy(
    data=OUT / "train" / "questions.jsonl",
    videos=OUT / "train",
    held_out=OUT / "held-out" / "asked.jsonl",
    held_out_videos=OUT / "held-out",
    run=OUT / "run",
    num_steps=24,
    evaluate_every=12,
    num_held_out=128,
    fresh=True,
)
MEANINGS = {
    "what": "right word",
    "when": "cited times at which the thing is in view",
    "where": "IoU of cited boxes with the true ones",
    "am": "mean of the three",
    "lgm": "-mean ln(1 - x) of the three",
    "claims": "claims an answer",
    "without_claims": "answers without evidence",
}


def main() -> int:
    torch.set_num_threads(1)  # more gain nothing on models so small, and lose much where cores are shared
    console = Console()
    console.print(f"Videos of {CONFIG.num_clips} train and {CONFIG.num_held_out} held-out clips in {OUT} ...")
    asked = write_world(CONFIG)
    console.print(f"{CONFIG.num_steps} steps of {CONFIG.num_prompts} questions, {CONFIG.group_size} answers each ...")
    train(CONFIG)
    if not (CONFIG.run / "scored" / "held_out.jsonl").exists():
        console.print("Stopped before its end.")
        return 1
    console.print(_evidence(asked[:NUM_SHOWN]))
    console.print(_change())
    page = (CONFIG.run / "report" / "index.html").resolve()
    console.print(f"Curves, and held-out frames with the claims drawn: {page}", soft_wrap=True)
    return 0


def _change() -> Table:
    rows = read_rows(CONFIG.run / "evaluations.jsonl")
    table = Table("", "before", "after", title=f"greedy answers to {rows[0]['num']} held-out questions")
    for name, before, after in change(rows):
        table.add_row(f"{name}: {MEANINGS[name]}", f"{before:.3f}", f"{after:.3f}")
    return table


def _evidence(asked: list[Asked]) -> Table:
    table = Table(title="after training: what the referee thinks of each claim, and the truth")
    table.add_column("question and claims", no_wrap=True)
    for name in ("relevance", "place", "true IoU", "reward"):
        table.add_column(name, justify="right")
    for question, line in zip(asked, read_rows(CONFIG.run / "scored" / "held_out.jsonl"), strict=True):
        table.add_section()
        answer = "right" if line["parts"]["answer"] > 0 else f"not {question.answer}"
        table.add_row(f"{question.row.question} {answer}", "", "", "", f"{line['total']:.2f}")
        for claim in line["claims"]:
            iou = true_iou(question.thing, claim["time_s"], tuple(claim["boxes"][0]))
            numbers = (claim["relevance"], claim["localization"], iou)
            table.add_row(
                f"  {claim['name']} at {claim['time_s']:.2f} s",
                *("-" if number is None else f"{number:.2f}" for number in numbers),
                "",
            )
    return table


if __name__ == "__main__":
    sys.exit(main())
