"""Scored rollouts -> frames with their claims drawn, as PNG files and as one page that needs nothing else."""

from __future__ import annotations

import base64
import html
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from ser_fast.errors import DataError, DecodeError
from ser_fast.jsonl import read_json_lines, write_text
from ser_fast.numbers import is_finite_number
from ser_fast.text import replace_surrogates
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


Numbered = tuple[int, Mapping[str, Any]]
"""A claim and the number drawn beside its boxes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Figure:
    """One frame with the claims that cite it; without a picture, why there is none."""

    claims: Sequence[Numbered]
    file: str | None = None
    png: bytes | None = None
    time_s: float | None = None
    reason: str | None = None


def render(
    scored: str | os.PathLike[str],
    rollouts: Sequence[Rollout],
    videos: MediaFolder,
    out: str | os.PathLike[str],
    *,
    title: str = "Evidence",
    note: str | None = None,
    head: str = "",
) -> Path:
    """Draws every scored claim on its frame: green where the referee believes it, red where not, grey where it was not asked.

    A claim whose frame cannot be had is listed with the reason.

    Args:
        scored: what `ser-fast score` wrote.
        rollouts: what it read.
        videos: the same folder.
        out: folder for the PNG files and index.html; made if it is not there.
        title: of the page.
        note: a remark for the top of the page.
        head: HTML that goes before the evidence, as it is.

    Returns:
        The page.

    Raises:
        DataError: a line that is not a scored response or does not fit its video, one without its rollout, or two rollouts with
            one id.
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
            if figure.file is not None and figure.png is not None:
                (out / figure.file).write_bytes(figure.png)
        heading = (rollout.question.media, rollout.question.question, rollout.question.answer)
        if heading != question:
            sections.append(_question_html(*heading))
            question = heading
        sections.append(_response_html(line, rollout, figures))
    page = out / "index.html"
    write_text(page, _page_html(sections, title, note, head))
    return page


def score_color(score: float) -> tuple[int, int, int]:
    """Red for 0 over amber to green for 1."""
    low, middle, high = (200, 40, 40), (235, 170, 30), (40, 160, 70)
    a, b, share = (low, middle, score * 2) if score < 0.5 else (middle, high, score * 2 - 1)
    red, green, blue = (round(x + (y - x) * min(1.0, max(0.0, share))) for x, y in zip(a, b, strict=True))
    return red, green, blue


def draw_claims(image: Image.Image, claims: Sequence[Numbered]) -> Image.Image:
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
    claims: list[Numbered] = list(enumerate(line["claims"], start=1))
    if not claims:
        return []
    try:
        clip, frames = videos.load(rollout.question, [claim["time_s"] for _, claim in claims])
    except DecodeError as error:
        return [_Figure(claims=claims, reason=str(error))]
    except ValueError as error:
        raise DataError(f"line {number}, {rollout.id!r}: does not fit {rollout.question.media}: {error}") from error
    by_frame: dict[int | None, list[Numbered]] = {}
    for claim, frame in zip(claims, frames, strict=True):
        by_frame.setdefault(frame, []).append(claim)
    missing = by_frame.pop(None, [])
    figures = [_drawn(number, rollout, clip, frame, members) for frame, members in by_frame.items() if frame is not None]
    return [*figures, _Figure(claims=missing, reason="the video does not have these frames")] if missing else figures


def _drawn(number: int, rollout: Rollout, clip: Clip, frame: int, claims: Sequence[Numbered]) -> _Figure:
    time_s = float(clip.times[frame])
    image = draw_claims(Image.fromarray(clip.frames[frame].cpu().numpy()), claims)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    name = re.sub(r"[^\w.-]+", "_", rollout.id).encode("utf-8")[:80].decode("utf-8", "ignore")
    return _Figure(claims=claims, file=f"{number:04d}_{name}_{time_s:.3f}s.png", png=buffer.getvalue(), time_s=time_s)


def _page_html(sections: Sequence[str], title: str, note: str | None, head: str) -> str:
    remark = f'<p class="note">{_escape(note)}</p>' if note else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_escape(title)}</title><style>{STYLE}</style></head><body><h1>{_escape(title)}</h1>{remark}{head}"
        f"<p>{_legend()}</p>{''.join(sections)}</body></html>"
    )


def _legend() -> str:
    entries = [(score_color(0.0), "not believed"), (score_color(0.5), "in between"), (score_color(1.0), "believed")]
    return " ".join(f"{_swatch(color)}{text}" for color, text in [*entries, (UNSCORED, "not put to the referee")])


def _swatch(color: tuple[int, int, int]) -> str:
    return f'<span class="swatch" style="background: rgb{color}"></span>'


def _question_html(media: str, question: str, answer: str) -> str:
    return f'<h2>{_escape(question)}</h2><p class="parts">{_escape(media)}, reference answer: {_escape(answer)}</p>'


def _response_html(line: Mapping[str, Any], rollout: Rollout, figures: Sequence[_Figure]) -> str:
    total = "not valid" if line["total"] is None else f"reward {line['total']:.3f}"
    parts = ", ".join(f"{name} {_number(value)}" for name, value in line["parts"].items())
    reason = f"<p>{_escape(line['reason'])}</p>" if line["reason"] else ""
    rejected = "".join(
        f'<li class="rejected">{_escape(str(claim["reason"]))}: <code>{_escape(claim["text"])}</code></li>'
        for claim in line["rejected"]
    )
    return (
        f'<div class="response{"" if line["valid"] else " invalid"}"><p><span class="total">{_escape(rollout.id)}: {total}'
        f'</span> <span class="parts">{_escape(parts)}</span></p>{reason}<pre>{_escape(rollout.completion)}</pre>'
        f"{''.join(map(_figure_html, figures))}<ul>{rejected}</ul></div>"
    )


def _figure_html(figure: _Figure) -> str:
    rows = "".join(
        f"<tr><td>{_swatch(_claim_color(claim))}{number}</td><td>{_escape(claim['name'])}</td>"
        f"<td>{_number(claim['relevance'])}</td><td>{_number(claim['localization'])}</td><td>{_number(claim['penalty'])}</td>"
        f"<td>{_number(claim['reward'])}</td><td>{_escape(claim['fault'] or '')}</td></tr>"
        for number, claim in figure.claims
    )
    heads = "".join(f"<th>{h}</th>" for h in ("", "claim", "relevance", "localization", "time penalty", "reward", "fault"))
    table = f"<table><tr>{heads}</tr>{rows}</table>"
    if figure.png is None:
        return f'<figure><figcaption><p class="rejected">{_escape(figure.reason or "")}</p>{table}</figcaption></figure>'
    data = base64.b64encode(figure.png).decode("ascii")
    return (
        f'<figure><img alt="frame at {figure.time_s:.2f} s" src="data:image/png;base64,{data}">'
        f"<figcaption>{figure.time_s:.2f} s{table}</figcaption></figure>"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _escape(text: str) -> str:
    return html.escape(replace_surrogates(text))


def _check_scored(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """Checks a scored line as far as the page needs it; raises ValueError by field."""
    _need(line, "id", lambda v: isinstance(v, str), "a text")
    _need(line, "valid", lambda v: isinstance(v, bool), "true or false")
    _need(line, "total", _is_number_or_none, "a number or null")
    _need(line, "reason", _is_text_or_none, "a text or null")
    _need(line, "parts", lambda v: isinstance(v, dict) and all(map(_is_number_or_none, v.values())), "numbers by name")
    for key in ("claims", "rejected"):
        _need(line, key, lambda v: isinstance(v, list) and all(isinstance(item, dict) for item in v), "a list of objects")
    for claim in line["claims"]:
        _need(claim, "name", lambda v: isinstance(v, str), "a text")
        _need(claim, "time_s", is_finite_number, "a number")
        _need(claim, "fault", _is_text_or_none, "a text or null")
        for key in ("relevance", "localization", "penalty", "reward"):
            _need(claim, key, _is_number_or_none, "a number or null")
        _need(claim, "boxes", lambda v: isinstance(v, list) and all(map(_is_box, v)), "lists of four numbers")
    for claim in line["rejected"]:
        for key in ("reason", "text"):
            _need(claim, key, lambda v: isinstance(v, str), "a text")
    return line


def _need(row: Mapping[str, Any], key: str, is_right: Callable[[Any], bool], expected: str) -> None:
    if key not in row:
        raise ValueError(f"{key}: missing")
    if not is_right(row[key]):
        raise ValueError(f"{key}: expected {expected}, got {row[key]!r:.80}")


def _is_number_or_none(value: object) -> bool:
    return value is None or is_finite_number(value)


def _is_text_or_none(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_box(value: object) -> bool:
    return isinstance(value, list) and len(value) == 4 and all(map(is_finite_number, value))
