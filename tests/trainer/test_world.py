"""The toy world: the same from a seed, other in each split, and as true in its files as on paper."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from ser_fast.jsonl import read_questions
from ser_fast.video import load_clip
from trainer.toy.files import questions, write_split
from trainer.toy.tasks import CHAIN_TASKS, HABITS, Looseness, Seen, chain, evidence, lesson
from trainer.toy.world import COLORS, SECONDS, SIDE_PX, SPLITS, draw, make_scene


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve held-out clips."""
    folder = tmp_path_factory.mktemp("world")
    write_split(folder, split="held-out", seed=7, num_clips=12)
    return folder


def test_a_scene_is_a_function_of_its_seed() -> None:
    assert make_scene("train", 0, 5) == make_scene("train", 0, 5)
    assert np.array_equal(draw(make_scene("train", 0, 5)), draw(make_scene("train", 0, 5)))


def test_splits_and_seeds_share_no_scene() -> None:
    scenes = [make_scene(split, seed, i) for split in SPLITS for seed in (0, 1) for i in range(200)]
    assert len({scene.things for scene in scenes}) == len({scene.id for scene in scenes}) == len(scenes)
    with pytest.raises(ValueError, match="split: expected one of train, validation, held-out, got 'test'"):
        make_scene("test", 0, 0)


def test_things_differ_and_do_not_lie_on_one_another() -> None:
    for i in range(200):
        scene = make_scene("train", 3, i)
        assert len({thing.color for thing in scene.things}) == len({thing.shape for thing in scene.things}) == 3
        for time_s in np.linspace(0, SECONDS - 0.01, 61):
            boxes = [box for thing in scene.things if (box := thing.box(float(time_s))) is not None]
            assert all(-1e-6 <= v <= 1 + 1e-6 for box in boxes for v in box), "inside the frame"
            for a in range(len(boxes)):
                for b in range(a):
                    p, q = boxes[a], boxes[b]
                    width, height = min(p[2], q[2]) - max(p[0], q[0]), min(p[3], q[3]) - max(p[1], q[1])
                    area = min((p[2] - p[0]) ** 2, (q[2] - q[0]) ** 2)
                    assert max(width, 0) * max(height, 0) <= 0.06 * area


def test_each_thing_is_seen_at_some_whole_seconds_and_not_at_others() -> None:
    for i in range(200):
        for thing in make_scene("train", 4, i).things:
            seen = sum(thing.box(float(second)) is not None for second in range(SECONDS))
            assert 2 <= seen <= 5


def test_files_show_what_the_truth_says(folder: Path) -> None:
    """Decoded from each codec, at each rate and offset: the box of a thing holds its colour, in every frame that shows it."""
    codecs, rates, offsets = set(), set(), set()
    for line in (folder / "scenes.jsonl").read_text().splitlines():
        truth = json.loads(line)
        scene = make_scene("held-out", 7, int(truth["id"].rpartition("-")[2]))
        codecs.add(scene.codec)
        rates.add(scene.rate)
        offsets.add(scene.offset_s)
        clip = load_clip(folder / truth["video"])
        assert clip.frame_hw == (SIDE_PX, SIDE_PX)
        assert clip.times.tolist() == pytest.approx(scene.frame_times, abs=2e-3)
        assert clip.start_s == pytest.approx(scene.offset_s, abs=0.07)
        for thing in truth["things"]:
            times = [row["time_s"] for row in thing["boxes"]]
            inside = [t for t in scene.frame_times if thing["interval"][0] <= t < thing["interval"][1]]
            assert times == pytest.approx(inside, abs=1e-3)
            for row in thing["boxes"][::7]:
                frame = clip.frames[int((clip.times - row["time_s"]).abs().argmin())].numpy().astype(int)
                x1, y1, x2, y2 = (v * SIDE_PX for v in row["box"])
                close = np.abs(frame - COLORS[thing["color"]]).sum(-1) < 90  # the background is further off
                y, x = np.nonzero(close)
                near = (x >= x1 - 8) & (x <= x2 + 8) & (y >= y1 - 8) & (y <= y2 + 8)
                found = x[near].min(), y[near].min(), x[near].max() + 1, y[near].max() + 1
                assert found == pytest.approx((x1, y1, x2, y2), abs=4), (truth["id"], thing["name"], row)
    assert len(codecs) == 2
    assert len(rates) >= 3
    assert len(offsets) == 2


def test_question_lines_are_those_of_all_commands(folder: Path) -> None:
    rows = read_questions(folder / "questions.jsonl")
    assert len(rows) == 12 * 3 * 2
    assert len({row.id for row in rows}) == len(rows)
    for row in rows:
        assert (folder / row.media).is_file()
        assert row.interval is not None
        assert row.boxes
        for box in row.boxes:
            assert row.interval[0] <= box["time_s"] < row.interval[1]


def test_files_are_the_same_from_a_seed(tmp_path: Path) -> None:
    """To the byte, in every container."""
    for name in ("a", "b"):
        write_split(tmp_path / name, split="train", seed=3, num_clips=12)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert {Path(name).suffix for name in files} == {".mp4", ".mkv", ".webm", ".jsonl"}
    assert [name for name in files if (tmp_path / "a" / name).read_bytes() != (tmp_path / "b" / name).read_bytes()] == []


def test_an_interrupted_split_goes_on(tmp_path: Path) -> None:
    write_split(tmp_path, split="train", seed=1, num_clips=3)
    files = sorted(tmp_path.glob("train-*"))
    contents = [path.read_bytes() for path in files]
    files[1].unlink()
    (tmp_path / f".part-{files[1].name}").write_bytes(b"half")
    write_split(tmp_path, split="train", seed=1, num_clips=3)
    assert [path.read_bytes() for path in files] == contents


def test_videos_of_other_scenes_are_not_kept(tmp_path: Path) -> None:
    """As after a change of the world: a file of the right name does not show what `scenes.jsonl` says."""
    write_split(tmp_path, split="train", seed=1, num_clips=3)
    files = sorted(tmp_path.glob("train-*"))
    contents = [path.read_bytes() for path in files]
    truth = (tmp_path / "scenes.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "scenes.jsonl").write_text(truth[0].replace("[", "[0, ") + truth[2])
    for path in files:
        path.write_bytes(b"old")
    write_split(tmp_path, split="train", seed=1, num_clips=3)
    assert [path.read_bytes() for path in files] == [contents[0], contents[1], b"old"]


SEEN = Seen(scene=make_scene("train", 0, 3), times=(0.0, 1.0, 2.0, 2.96, 4.0, 5.0), size=(84, 84))


def test_an_exact_teacher_is_right() -> None:
    from ser_fast.claims import parse_claims
    from ser_fast.types import CoordSpace

    rng = random.Random(0)
    for thing in SEEN.scene.things:
        for asked in ("color", "shape"):
            shown = evidence(SEEN, thing, asked, rng)
            space = CoordSpace(kind="pixels", height=84, width=84)
            claims, report = parse_claims([shown.completion], coord_space=space, frame_hw=(84, 84), duration_s=6.0)
            assert report.answers == (getattr(thing, asked),)
            assert 1 <= claims.num_claims <= 3
            visible = SEEN.visible(thing)
            middle = SEEN.times[visible[(len(visible) - 1) // 2]]
            assert min(abs(time_s - middle) for time_s in claims.time_s.tolist()) < 0.01
            for c in range(claims.num_claims):
                assert claims.name(c) == thing.name
                truth = thing.box(round(float(claims.time_s[c]), 2))
                assert truth is not None
                assert claims.claim_boxes(c)[0] == pytest.approx([v * 84 for v in truth], abs=0.51)


def _share_in_view(visible: list[int], num_frames: int, loose: Looseness) -> float:
    """Of the frames that a loose teacher cites; where it cites one frame twice it counts twice, here."""
    shifts = range(-loose.time_frames, loose.time_frames + 1)
    near = [min(max(k + shift, 0), num_frames - 1) in visible for k in visible for shift in shifts]
    return sum(near) / len(near)


def test_a_loose_teacher_errs_as_often_as_it_should() -> None:
    """Of 600 demonstrations on each thing: words by habit, times and boxes at random; the exact teacher never errs."""
    rng = random.Random(1)
    for thing in SEEN.scene.things:
        for asked, word in (("color", thing.color), ("shape", thing.shape)):
            shown = [evidence(SEEN, thing, asked, rng, Looseness()) for _ in range(600)]
            right = sum(f"<answer>{word}</answer>" in d.completion for d in shown) / len(shown)
            assert right == pytest.approx(0.4 if word in HABITS else 1.0, abs=0.08)
            assert len({d.completion for d in shown}) > 500
            times = [float(part.split("</t>")[0]) for d in shown for part in d.completion.split("<t>")[1:]]
            assert 600 < len(times) < 1800
            in_view = sum(thing.box(time_s) is not None for time_s in times) / len(times)
            assert in_view == pytest.approx(_share_in_view(SEEN.visible(thing), len(SEEN.times), Looseness()), abs=0.06)


@pytest.mark.parametrize("task", CHAIN_TASKS)
def test_chain_tasks_read_as_meant(task: str) -> None:
    thing = SEEN.scene.things[0]
    shown = chain(SEEN, thing, task, random.Random(0))
    if task in ("when", "when-at"):
        begin, end = (float(part.split("</t>")[0]) for part in shown.completion.split("<t>")[1:])
        assert begin == pytest.approx(thing.appears, abs=1.0)
        assert end == pytest.approx(min(thing.vanishes, SECONDS), abs=1.0)
        assert begin < end
    else:
        assert shown.completion.count("<box>") == shown.completion.count("<t>") >= 1
    assert ("[" in shown.question) == (task == "when-at")
    assert (" s?" in shown.question) == (task == "where-at")


def test_a_lesson_has_all_it_should() -> None:
    tasks = [d.task for d in lesson(SEEN, random.Random(0), num=8)]
    assert tasks.count("evidence") == 6
    assert set(tasks) - {"evidence"} <= set(CHAIN_TASKS)
    assert {d.task for d in lesson(SEEN, random.Random(0), num=8, chains=False)} == {"evidence"}


def test_questions_of_a_scene_name_what_they_ask() -> None:
    scene = make_scene("train", 0, 0)
    for row in questions(scene):
        thing = next(t for t in scene.things if t.shape == row["id"].split("/")[1])
        assert row["answer"] in (thing.color, thing.shape)
        assert (thing.shape if row["answer"] == thing.color else thing.color) in row["question"]
        assert row["answer"] not in row["question"]
