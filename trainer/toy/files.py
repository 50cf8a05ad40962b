"""Scenes -> video files, question lines and the complete truth, in one folder that every command reads like other data."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ser_fast.errors import InputError
from ser_fast.jsonl import write_json_lines
from trainer.checks import check_counts
from trainer.toy.tasks import question_about
from trainer.toy.world import SECONDS, Scene, Thing, draw, make_scene

OPTIONS = {
    "libx264": {"preset": "veryfast", "crf": "20", "threads": "1", "mbtree": "0"},  # with mbtree, runs differ now and then
    "libvpx-vp9": {"deadline": "realtime", "cpu-used": "8", "crf": "24", "b": "0", "threads": "1"},
}


def write_split(folder: str | os.PathLike[str], *, split: str, seed: int, num_clips: int) -> list[Scene]:
    """Writes `num_clips` videos, `questions.jsonl` (the schema of all commands) and `scenes.jsonl` (box of each thing in every
    frame) into a folder. Videos that are there already, of the same scenes, are kept: an interrupted run goes on."""
    check_counts(num_clips=num_clips)
    folder = Path(folder)
    if (folder / "questions.jsonl").exists() and not (folder / "scenes.jsonl").exists():
        raise InputError(f"{folder}: holds other questions than those of the toy world")
    folder.mkdir(parents=True, exist_ok=True)
    scenes = [make_scene(split, seed, i) for i in range(num_clips)]
    truth = folder / "scenes.jsonl"
    known = set(truth.read_text(encoding="utf-8").splitlines()) if truth.exists() else set()
    rows = [scene.to_json() for scene in scenes]
    for scene, row in zip(scenes, rows, strict=True):
        if json.dumps(row) not in known:
            (folder / scene.file).unlink(missing_ok=True)
    write_json_lines(truth, rows)
    write_json_lines(folder / "questions.jsonl", (row for scene in scenes for row in questions(scene)))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda scene: _write_video(folder / scene.file, scene), scenes))
    return scenes


def questions(scene: Scene) -> Iterator[dict[str, Any]]:
    """Two question lines a thing: its colour by its shape, and its shape by its colour."""
    for thing in scene.things:
        for asked in ("color", "shape"):
            yield question_line(scene, thing, asked)


def question_line(scene: Scene, thing: Thing, asked: str) -> dict[str, Any]:
    """The question about an attribute ("color" or "shape") of a thing."""
    return {
        "schema": 1,
        "id": f"{scene.id}/{thing.shape}/{asked}",
        "video": scene.file,
        "question": question_about(thing, asked),
        "answer": getattr(thing, asked),
        "task": "free-form",
        "interval": [thing.appears, min(thing.vanishes, float(SECONDS))],
        "boxes": list(_boxes(thing)),
    }


def _boxes(thing: Thing) -> Iterator[dict[str, Any]]:
    """Its box at every whole second at which it is in view."""
    for second in range(SECONDS):
        if (box := thing.box(float(second))) is not None:
            yield {"time_s": float(second), "box": [round(v, 4) for v in box], "name": thing.name}


def _write_video(path: Path, scene: Scene) -> None:
    if path.exists():
        return
    part = path.with_name(f".part-{path.name}")
    _encode(part, draw(scene), scene)
    part.replace(path)


def _encode(path: Path, frames: np.ndarray, scene: Scene) -> None:
    import av

    rate = Fraction(*scene.rate)
    first = round(scene.offset_s * rate)
    with av.open(os.fspath(path), "w", options={"fflags": "+bitexact"}) as container:
        stream: Any = container.add_stream(scene.codec, rate=rate, options=OPTIONS[scene.codec])
        stream.height, stream.width, stream.pix_fmt = *frames.shape[1:3], "yuv420p"
        for i, image in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = first + i, 1 / rate
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
