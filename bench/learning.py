"""Does the reward teach? GRPO on the toy world under three rewards, some seeds each: a table with mean and spread, and curves.

    python bench/learning.py --out bench/results

| arm | reward |
|---|---|
| answer | answer and format: nobody looks at the evidence |
| boxes | answer, format, and the IoU of each cited box with the true one at that time: the upper bound, from labels |
| ser | answer, format, and what the toy referee says of the evidence |

All arms begin with the shipped policy, see the same questions in the same order, and take as many steps. The figures are those
of greedy answers on held-out clips. A run that was stopped goes on where it was.

Beside the standard error over seeds stands the interval that a bootstrap gives, which draws clips and seeds again, the same
clips for both sides: a figure that hangs on a few clips shows there.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from ser_fast.jsonl import read_questions
from ser_fast.types import Question, RefereeRequest, RefereeScores, hull
from trainer.evaluate import Marks, figures_of, label_iou, mark, mean
from trainer.frames import Frames
from trainer.loop import answers, train
from trainer.metrics import read_rows
from trainer.policy import Policy
from trainer.presets import Toy
from trainer.toy.evaluate import write_world

ARMS = ("answer", "boxes", "ser")
FIGURES = ("what", "when", "where", "am", "lgm")
SHOWN = ("when", "where", "am", "lgm")
NUM_DRAWS = 1000


class TrueBoxes:
    """A referee that knows the labels: relevance is 1, localization the IoU with the true box in the judged frame."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self._questions = {(question.media, question.question): question for question in questions}

    def score(self, requests: Sequence[RefereeRequest]) -> RefereeScores:
        """Of every request; all are valid."""
        num = len(requests)
        return RefereeScores(
            relevance=torch.ones(num),
            localization=torch.tensor([self._iou(request) for request in requests]),
            level_mass=torch.ones(num),
            valid=torch.ones(num, dtype=torch.bool),
            reasons=(None,) * num,
        )

    def _iou(self, request: RefereeRequest) -> float:
        clip = request.clip
        question = self._questions[Path(clip.source).name, request.question]
        return label_iou(question, round(float(clip.times[request.frame_idx]), 4), hull(request.boxes), clip.frame_hw)


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the runs that are missing, then the table and the curves of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("build/learning"), help="folder of videos and runs")
    parser.add_argument("--out", type=Path, help="folder for learning.md and learning.png; the run's folder if not given")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--clips", type=int, default=512, help="held-out clips")
    parser.add_argument("--at-once", type=int, default=2, help="runs, a core each")
    parser.add_argument("--only", nargs=2, metavar=("ARM", "SEED"), help="one run, in this process")
    args = parser.parse_args(argv)
    if args.only:
        _run(args, args.only[0], int(args.only[1]))
        return 0
    write_world(_config(args, "ser", 0))
    runs = [(arm, seed) for seed in range(args.seeds) for arm in ARMS]
    if not _run_all(runs, args):
        return 1
    marks = {arm: [_marks(args, arm, seed) for seed in range(args.seeds)] for arm in ARMS}
    marks["start"] = [_marks(args, "start", 0)]
    results = {arm: [read_rows(_folder(args, arm, seed) / "evaluations.jsonl") for seed in range(args.seeds)] for arm in ARMS}
    out = args.out or args.work
    out.mkdir(parents=True, exist_ok=True)
    text = _report(results, marks, args)
    print(text)
    (out / "learning.md").write_text(text, encoding="utf-8")
    _draw(results, out / "learning.png")
    return 0


def _folder(args: argparse.Namespace, arm: str, seed: int) -> Path:
    return Path(args.work) / f"{arm}-{seed}"


def _config(args: argparse.Namespace, arm: str, seed: int) -> Toy:
    return Toy(
        data=args.work / "train" / "questions.jsonl",
        videos=args.work / "train",
        held_out=args.work / "held-out" / "asked.jsonl",
        held_out_videos=args.work / "held-out",
        run=_folder(args, arm, seed),
        reward="answer" if arm == "answer" else "ser",
        num_steps=args.steps,
        evaluate_every=max(1, args.steps // 4),
        num_held_out=args.clips,
        seed=seed,
    )


def _run(args: argparse.Namespace, arm: str, seed: int) -> None:
    torch.set_num_threads(1)
    config = _config(args, arm, seed)
    assert config.held_out is not None
    train(config, referee=TrueBoxes(read_questions(config.data) + read_questions(config.held_out)) if arm == "boxes" else None)
    _marks(args, arm, seed)


def _marks(args: argparse.Namespace, arm: str, seed: int) -> list[Marks]:
    """Of each held-out answer of a trained policy, or of the start; kept in a file."""
    path = _folder(args, arm, seed).with_suffix(".json")
    if not path.exists():
        torch.set_num_threads(1)
        config = _config(args, arm, seed)
        assert config.held_out is not None
        policy = Policy.load("toy" if arm == "start" else config.run / "model")
        frames = Frames(config.held_out_videos or config.videos, fps=config.fps, max_frames=config.max_frames)
        marks = [mark(group) for group in answers(policy, read_questions(config.held_out), frames, config)]
        path.write_text(json.dumps([dataclasses.asdict(m) for m in marks]), encoding="utf-8")
    return [Marks(**row) for row in json.loads(path.read_text(encoding="utf-8"))]


def _run_all(runs: Sequence[tuple[str, int]], args: argparse.Namespace) -> bool:
    """Some at once, each in a process of its own with a log in its folder; False as soon as one fails."""
    waiting, going = list(runs), {}
    try:
        while waiting or going:
            while waiting and len(going) < args.at_once:
                arm, seed = waiting.pop(0)
                log = (Path(args.work) / f"{arm}-{seed}.log").open("a", encoding="utf-8")
                settings = ["--work", args.work, "--steps", args.steps, "--clips", args.clips, "--only", arm, seed]
                command = [sys.executable, __file__, *map(str, settings)]
                going[arm, seed] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            time.sleep(1.0)
            for run in [run for run, process in going.items() if process.poll() is not None]:
                code = going.pop(run).returncode
                name = f"{run[0]}-{run[1]}"
                print(f"{name}: {'done' if code == 0 else f'failed, see {args.work}/{name}.log'}", flush=True)
                if code:
                    return False
    finally:
        for process in going.values():
            process.kill()
    return True


def spread(values: Sequence[float]) -> float:
    """Standard error of the mean."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def interval(ours: Sequence[Sequence[Marks]], theirs: Sequence[Sequence[Marks]], figure: str) -> tuple[float, float]:
    """Where 95 % of the differences of a figure lie when the answered questions and the runs are drawn again, with replacement
    and the same questions on both sides."""
    rng = random.Random(0)
    gains = []
    for _ in range(NUM_DRAWS):
        drawn = rng.choices(range(len(ours[0])), k=len(ours[0]))
        means = [
            mean([getattr(figures_of([run[i] for i in drawn]), figure) for run in rng.choices(runs, k=len(runs))])
            for runs in (ours, theirs)
        ]
        gains.append(means[0] - means[1])
    cuts = statistics.quantiles(gains, n=40)
    return cuts[0], cuts[-1]


def _report(
    results: dict[str, list[list[dict[str, float]]]], marks: dict[str, list[list[Marks]]], args: argparse.Namespace
) -> str:
    start = results["ser"][0][0]
    lines = [
        "# Does the reward teach?",
        "",
        f"`python bench/learning.py --steps {args.steps} --seeds {args.seeds} --clips {args.clips}`: greedy answers on",
        f"{start['num']} held-out clips after {args.steps} steps of {Toy.num_prompts} questions x {Toy.group_size} answers;",
        f"mean and standard error over {args.seeds} seeds; intervals from {NUM_DRAWS} draws of clips and seeds.",
        f"Each mean within LGM is capped at {start['cap']}.",
        "",
        f"| arm | {' | '.join(FIGURES)} |",
        f"|---|{'---|' * len(FIGURES)}",
        f"| start | {' | '.join(f'{start[name]:.3f}' for name in FIGURES)} |",
    ]
    last = {arm: {name: [rows[-1][name] for rows in runs] for name in FIGURES} for arm, runs in results.items()}
    for arm, figures in last.items():
        lines.append(f"| {arm} | {' | '.join(f'{mean(v):.3f} +- {spread(v):.3f}' for v in figures.values())} |")
    heads = [f"by {figure}, {what}" for figure in ("AM", "LGM") for what in ("mean", "in standard errors", "95 % interval")]
    lines += ["", f"| SER exceeds | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    last["start"] = {key: [start[key]] for key in FIGURES}
    for name, arm in (("the start", "start"), ("the answer arm", "answer")):
        other = last[arm]
        cells = []
        for figure in ("am", "lgm"):
            gain = mean(last["ser"][figure]) - mean(other[figure])
            error = math.hypot(spread(last["ser"][figure]), spread(other[figure]) if len(other[figure]) > 1 else 0.0)
            low, high = interval(marks["ser"], marks[arm], figure)
            cells += [f"{gain:+.3f}", f"{gain / error:.1f}" if error > 0 else "-", f"{low:+.3f} to {high:+.3f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", "![curves](learning.png)", ""])


def _draw(results: dict[str, list[list[dict[str, float]]]], path: Path) -> None:
    """A panel a figure, a colour an arm: the mean, and each seed thinly."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.2), layout="constrained")
    for panel, name in zip(figure.subplots(1, len(SHOWN)), SHOWN, strict=True):
        for color, (arm, runs) in zip(("tab:gray", "tab:green", "tab:blue"), results.items(), strict=True):
            steps = [row["step"] for row in runs[0]]
            for rows in runs:
                panel.plot(steps, [row[name] for row in rows], color=color, alpha=0.3, linewidth=0.8)
            panel.plot(steps, [mean([rows[i][name] for rows in runs]) for i in range(len(steps))], color=color, label=arm)
        panel.set_title(f"{name}, held out", fontsize=10)
        panel.set_xlabel("step")
        panel.grid(alpha=0.3)
    panel.legend(fontsize=8)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    sys.exit(main())
