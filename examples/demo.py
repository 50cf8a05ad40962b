"""make demo: the toy policy answers questions about clips that it has never seen, the toy referee checks its evidence, and a
page shows what was cited.

Both models ship with the project: two million parameters each, for a world of coloured shapes. The clips are made here, from
seeds that no training has used, so that the truth is known: the table puts the referee's opinion beside it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ser_fast import cli
from ser_fast.jsonl import write_json_lines
from trainer.policy import Policy
from trainer.toy import POLICY
from trainer.toy.boxes import true_iou
from trainer.toy.evaluate import Asked, ask, complete
from trainer.toy.files import write_split
from trainer.toy.lessons import seen_clip
from trainer.toy.models import PROMPT

OUT = Path("demo-out")
NUM_CLIPS, SEED = 12, 1
NOTE = "Policy and referee are the toy models of this project; they know coloured shapes and nothing else."


def main() -> int:
    asked = ask(write_split(OUT, split="held-out", seed=SEED, num_clips=NUM_CLIPS))
    rollouts, scored = OUT / "rollouts.jsonl", OUT / "scored.jsonl"
    write_json_lines(rollouts, _rollouts(asked))
    inputs = ["--rollouts", str(rollouts), "--videos", str(OUT)]
    code = cli.main(["score", *inputs, "--referee", "toy", "--out", str(scored)])
    code = code or cli.main(["render", *inputs, "--scored", str(scored), "--out", str(OUT / "page"), "--note", NOTE])
    if code == 0:
        _show(asked, [json.loads(line) for line in scored.read_text("utf-8").splitlines()])
    return code


def _rollouts(asked: list[Asked]) -> list[dict[str, Any]]:
    """What the policy writes, as rollout lines."""
    policy = Policy.load(POLICY, prompt=PROMPT)
    clips = [seen_clip(OUT, question.scene) for question in asked]
    space = policy.prompts.coord_space(policy.prompts.clip(clips[0]).size).to_json()
    completions = complete(policy, clips, [question.question for question in asked])
    return [
        {
            "schema": 1,
            "id": question.scene.id,
            "group": question.scene.id,
            "video": question.scene.file,
            "question": question.question,
            "answer": question.answer,
            "task": "free-form",
            "coord_space": space,
            "frame_times": clip.times.tolist(),
            "completion": completion,
        }
        for question, clip, completion in zip(asked, clips, completions, strict=True)
    ]


def _show(asked: list[Asked], lines: list[dict[str, Any]]) -> None:
    console = Console()
    table = Table(title="what the referee thinks of each claim, and the truth")
    table.add_column("question and claims", no_wrap=True)
    for name in ("relevance", "place", "true IoU", "reward"):
        table.add_column(name, justify="right")
    for question, line in zip(asked, lines, strict=True):
        table.add_section()
        answer = "right" if line["parts"]["answer"] > 0 else f"not {question.answer}"
        table.add_row(f"{question.question} {answer}", "", "", "", f"{line['total']:.2f}")
        for claim in line["claims"]:
            iou = true_iou(question.thing, claim["time_s"], tuple(claim["boxes"][0]))
            numbers = (claim["relevance"], claim["localization"], iou)
            table.add_row(f"  {claim['name']} at {claim['time_s']:.2f} s", *(f"{number:.2f}" for number in numbers), "")
    console.print(table)
    console.print(NOTE)
    console.print(f"Frames with the claims drawn: {(OUT / 'page' / 'index.html').resolve()}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
