"""A run as one page that needs nothing else: curves, what changed on held-out questions, and evidence drawn on their frames."""

from __future__ import annotations

import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ser_fast.jsonl import read_rollouts
from ser_fast.render import render
from ser_fast.video import MediaFolder
from trainer.metrics import read_rows

CURVES = (
    ("reward", ("reward", "answer", "format", "evidence")),
    ("what the referee thinks", ("relevance", "localization", "penalty")),
    ("held out", ("what", "when", "where", "am")),
    ("claims a response", ("claims",)),
    ("signs of reward hacking", ("whole_frame", "repeated", "truncated", "not_valid", "not_scored")),
    ("gradient norm", ("gradient_norm",)),
)
"""Title of each panel, and the figures drawn in it."""
CHANGES = ("what", "when", "where", "am", "lgm", "claims", "without_claims")
"""Rows of the table."""
SMOOTH = 0.8
"""Weight of the past in the drawn means."""


def write_report(run: Path, videos: Path, *, note: str | None = None) -> Path:
    """Writes `report/index.html` of a run.

    Args:
        run: its folder, with metrics.jsonl and, if it was evaluated, evaluations.jsonl and the held-out rollouts of its end.
        videos: what the held-out rollouts are about.
        note: a remark for the top of the page.
    """
    steps, evaluations = read_rows(run / "metrics.jsonl"), read_rows(run / "evaluations.jsonl")
    name = "held_out"
    if not (run / "scored" / "held_out.jsonl").exists():
        name = f"step_{[row['step'] for row in steps if row['claims'] is not None][-1]}"
    head = f"{_table(evaluations)}<h2>Curves</h2>{_curves(steps, evaluations)}<h2>Evidence at the end</h2>"
    return render(
        run / "scored" / f"{name}.jsonl",
        read_rollouts(run / "rollouts" / f"{name}.jsonl"),
        MediaFolder(videos),
        run / "report",
        title="Reinforcement by evidence",
        note=note,
        head=head,
    )


def change(evaluations: Sequence[Mapping[str, Any]]) -> list[tuple[str, float, float]]:
    """(name, first, last) of the figures that were measured."""
    if not evaluations:
        return []
    first, last = evaluations[0], evaluations[-1]
    return [(name, first[name], last[name]) for name in CHANGES if first[name] is not None and last[name] is not None]


def _table(evaluations: Sequence[Mapping[str, Any]]) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{before:.3f}</td><td>{after:.3f}</td><td>{after - before:+.3f}</td></tr>"
        for name, before, after in change(evaluations)
    )
    if not rows:
        return ""
    first, last = evaluations[0], evaluations[-1]
    heads = f"<th></th><th>step {first['step']}</th><th>step {last['step']}</th><th>change</th>"
    return f"<h2>On {last['num']} held-out questions</h2><table><tr>{heads}</tr>{rows}</table>"


def _curves(steps: Sequence[Mapping[str, Any]], evaluations: Sequence[Mapping[str, Any]]) -> str:
    """One SVG picture."""
    from matplotlib.figure import Figure  # not pyplot: that would look for a display

    figure = Figure(figsize=(11, 6), layout="constrained")
    panels = figure.subplots(2, 3).flat
    for panel, (title, names) in zip(panels, CURVES, strict=True):
        rows = evaluations if title == "held out" else steps
        for name in names:
            points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
            if points:
                x, y = zip(*points, strict=True)
                panel.plot(x, y if title == "held out" else _smooth(y), label=name.replace("_", " "))
        panel.set_title(title, fontsize=10)
        panel.grid(alpha=0.3)
        if panel.lines:
            panel.legend(fontsize=8)
    picture = io.StringIO()
    figure.savefig(picture, format="svg")
    return picture.getvalue()[picture.getvalue().index("<svg") :]


def _smooth(values: Sequence[float]) -> list[float]:
    """Exponential means, without the pull of the first value."""
    smoothed, total, weight = [], 0.0, 0.0
    for value in values:
        total, weight = SMOOTH * total + (1 - SMOOTH) * value, SMOOTH * weight + (1 - SMOOTH)
        smoothed.append(total / weight)
    return smoothed
