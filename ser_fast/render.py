"""Scored rollouts -> frames with their claims drawn, as PNG files and as one page that needs nothing else."""

from __future__ import annotations

import base64
import html
import io
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from ser_fast.errors import DataError, DecodeError
from ser_fast.jsonl import read_json_lines, write_text
from ser_fast.types import Clip, Rollout
from ser_fast.video import MediaFolder

MAX_WIDTH = 960
UNSCORED = (150, 150, 150)

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
.note { background: #fff4d6; border-left: 4px solid #e0a800; padding: .6rem 1rem; }
.response { border: 1px solid #ddd; border-radius: 8px; padding: 1rem; margin: 1rem 0; }
.invalid { border-color: #c0392b; }
.parts { color: #555; } .total { font-weight: 600; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f6f6f6; padding: .6rem; border-radius: 6px; }
figure { margin: .8rem 0; } figure img { max-width: 100%; border-radius: 6px; }
table { border-collapse: collapse; margin: .4rem 0; } td, th { padding: .15rem .7rem .15rem 0; text-align: left; }
.swatch { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em; }
.rejected { color: #8a3b2b; }
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Figure:
    """One frame with the claims that cite it."""

    file: str
    png: bytes
    time_s: float
    claims: Sequence[tuple[int, Mapping[str, Any]]]
    """(number drawn beside the box, claim)."""


def render(
    scored: str | os.PathLike[str],
    rollouts: Sequence[Rollout],
    videos: MediaFolder,
    out: str | os.PathLike[str],
    *,
    note: str | None = None,
) -> Path:
    """Draws every scored claim on its frame: green where the referee believes it, red where not, grey where it was not asked.

    Args:
        scored: what `ser-fast score` wrote.
        rollouts: what it read.
        videos: the same folder.
        out: folder for the PNG files and index.html; made if it is not there.
        note: a remark for the top of the page.

    Returns:
        The page.

    Raises:
        DataError: a line that is not a scored response, one without its rollout, or two rollouts with one id.
    """
    by_id: dict[str, Rollout] = {}
    for rollout in rollouts:
        if rollout.id in by_id:
            raise DataError(f"rollouts: two have the id {rollout.id!r}")
        by_id[rollout.id] = rollout
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    sections = []
    question = None
    for number, line in enumerate(read_json_lines(scored, _check_scored), start=1):
        if line["id"] not in by_id:
            raise DataError(f"{os.fspath(scored)}:{number}: no rollout has the id {line['id']!r}")
        rollout = by_id[line["id"]]
        figures = _figures(number, line, rollout, videos)
        for figure in figures:
            (out / figure.file).write_bytes(figure.png)
        heading = (rollout.question.media, rollout.question.question, rollout.question.answer)
        if heading != question:
            sections.append(_question_html(*heading))
            question = heading
        sections.append(_response_html(line, rollout, figures))
    page = out / "index.html"
    write_text(page, _page_html(sections, note))
    return page


def score_color(score: float) -> tuple[int, int, int]:
    """Red for 0 over amber to green for 1."""
    low, middle, high = (200, 40, 40), (235, 170, 30), (40, 160, 70)
    a, b, share = (low, middle, score * 2) if score < 0.5 else (middle, high, score * 2 - 1)
    red, green, blue = (round(x + (y - x) * min(1.0, max(0.0, share))) for x, y in zip(a, b, strict=True))
    return red, green, blue


def draw_claims(image: Image.Image, claims: Sequence[tuple[int, Mapping[str, Any]]]) -> Image.Image:
    """Boxes in the colour of their claim's score (relevance x localization), each with its number; at most MAX_WIDTH wide."""
    scale = min(1.0, MAX_WIDTH / image.width)
    canvas = image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))))
    draw = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(size=max(12, canvas.width // 45))
    line = max(2, canvas.width // 250)
    for number, claim in claims:
        color = _claim_color(claim)
        for box in claim["boxes"]:
            x1, y1, x2, y2 = (value * scale for value in box)
            draw.rectangle((x1, y1, max(x1 + 1, x2 - 1), max(y1 + 1, y2 - 1)), outline=color, width=line)
            label = f" {number} "
            left, top, right, bottom = draw.textbbox((0, 0), label, font=font)
            at = min(x1, canvas.width - right), max(0.0, y1 - (bottom - top) - 6)
            draw.rectangle((at[0], at[1], at[0] + right - left, at[1] + bottom - top + 6), fill=color)
            draw.text((at[0], at[1] - top + 3), label, fill=(255, 255, 255), font=font)
    return canvas


def _claim_color(claim: Mapping[str, Any]) -> tuple[int, int, int]:
    relevance, localization = claim["relevance"], claim["localization"]
    return UNSCORED if relevance is None or localization is None else score_color(relevance * localization)


def _figures(number: int, line: Mapping[str, Any], rollout: Rollout, videos: MediaFolder) -> list[_Figure]:
    claims = list(enumerate(line["claims"], start=1))
    if not claims:
        return []
    try:
        clip, frames = videos.load(rollout.question, [claim["time_s"] for _, claim in claims])
    except DecodeError:
        return []  # the line itself says that the media cannot be read
    by_frame: dict[int, list[tuple[int, Mapping[str, Any]]]] = {}
    for claim, frame in zip(claims, frames, strict=True):
        if frame is not None:
            by_frame.setdefault(frame, []).append(claim)
    figures = []
    for frame, members in sorted(by_frame.items()):
        time_s = float(clip.times[frame])
        name = re.sub(r"[^\w.-]+", "_", rollout.id)[:80]
        figures.append(
            _Figure(
                file=f"{number:04d}_{name}_{time_s:.3f}s.png", png=_png(clip, frame, members), time_s=time_s, claims=members
            )
        )
    return figures


def _png(clip: Clip, frame: int, claims: Sequence[tuple[int, Mapping[str, Any]]]) -> bytes:
    image = draw_claims(Image.fromarray(clip.frames[frame].cpu().numpy()), claims)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def _page_html(sections: Sequence[str], note: str | None) -> str:
    remark = f'<p class="note">{html.escape(note)}</p>' if note else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Evidence</title><style>{STYLE}</style></head><body><h1>Evidence</h1>{remark}"
        f"<p>{_legend()}</p>{''.join(sections)}</body></html>"
    )


def _legend() -> str:
    entries = [(score_color(0.0), "not believed"), (score_color(0.5), "in between"), (score_color(1.0), "believed")]
    return " ".join(f"{_swatch(color)}{text}" for color, text in [*entries, (UNSCORED, "not put to the referee")])


def _swatch(color: tuple[int, int, int]) -> str:
    return f'<span class="swatch" style="background: rgb{color}"></span>'


def _question_html(media: str, question: str, answer: str) -> str:
    return f'<h2>{html.escape(question)}</h2><p class="parts">{html.escape(media)}, reference answer: {html.escape(answer)}</p>'


def _response_html(line: Mapping[str, Any], rollout: Rollout, figures: Sequence[_Figure]) -> str:
    total = "not valid" if line["total"] is None else f"reward {line['total']:.3f}"
    parts = ", ".join(f"{name} {_number(value)}" for name, value in line["parts"].items())
    reason = f"<p>{html.escape(line['reason'])}</p>" if line["reason"] else ""
    rejected = "".join(
        f'<li class="rejected">{html.escape(str(claim["reason"]))}: <code>{html.escape(claim["text"])}</code></li>'
        for claim in line["rejected"]
    )
    return (
        f'<div class="response{"" if line["valid"] else " invalid"}"><p><span class="total">{html.escape(rollout.id)}: {total}'
        f'</span> <span class="parts">{html.escape(parts)}</span></p>{reason}<pre>{html.escape(rollout.completion)}</pre>'
        f"{''.join(map(_figure_html, figures))}<ul>{rejected}</ul></div>"
    )


def _figure_html(figure: _Figure) -> str:
    data = base64.b64encode(figure.png).decode("ascii")
    rows = "".join(
        f"<tr><td>{_swatch(_claim_color(claim))}{number}</td><td>{html.escape(claim['name'])}</td>"
        f"<td>{_number(claim['relevance'])}</td><td>{_number(claim['localization'])}</td><td>{_number(claim['penalty'])}</td>"
        f"<td>{_number(claim['reward'])}</td><td>{html.escape(claim['fault'] or '')}</td></tr>"
        for number, claim in figure.claims
    )
    heads = "".join(f"<th>{h}</th>" for h in ("", "claim", "relevance", "localization", "time penalty", "reward", "fault"))
    return (
        f'<figure><img alt="frame at {figure.time_s:.2f} s" src="data:image/png;base64,{data}">'
        f"<figcaption>{figure.time_s:.2f} s<table><tr>{heads}</tr>{rows}</table></figcaption></figure>"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _check_scored(line: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in ("id", "valid", "total", "parts", "reason", "claims", "rejected"):
        if key not in line:
            raise ValueError(f"{key}: missing")
    return line
