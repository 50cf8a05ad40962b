"""ser-fast: the commands of the library. Bad input ends with exit code 2 and one line that says what and where."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ser_fast.errors import BackendUnavailable, DecodeError, InputError

if TYPE_CHECKING:
    from ser_fast.types import Rollout

MAX_BATCH = 32
"""Rollouts scored together: a file of any length needs the frames of so many at a time."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code."""
    args = _parser().parse_args(argv)
    try:
        return int(args.run(args))
    except (InputError, DecodeError, BackendUnavailable) as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.filename or 'output'}: {error.strerror or error}")
    except KeyboardInterrupt:
        print("ser-fast: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ser-fast", description="Rewards for evidence in video reasoning.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    info = commands.add_parser("info", help="what this installation can do", description=_info.__doc__)
    info.add_argument("--json", action="store_true", help="for programs")
    info.set_defaults(run=_info)

    score = commands.add_parser(
        "score",
        help="completions and their videos -> evidence rewards",
        description=_score.__doc__,
        epilog="example: ser-fast score --rollouts rollouts.jsonl --videos videos/ --referee Qwen2.5-VL-7B/ --out scored.jsonl",
    )
    _add_inputs(score)
    score.add_argument(
        "--referee",
        required=True,
        metavar="PATH_OR_NAME",
        help="model folder or hub name: Qwen2-VL, Qwen2.5-VL, Qwen3-VL; toy: the one that ships with ser_fast, which knows"
        " coloured shapes and nothing else",
    )
    score.add_argument("--reward", default="ser", metavar="PRESET", help="default: %(default)s")
    score.add_argument("--out", metavar="FILE", help="scored lines, written whole or not at all; default: standard output")
    score.add_argument("--device", default="cpu", help="of the referee; default: %(default)s")
    score.add_argument(
        "--dtype",
        default="auto",
        choices=("auto", "float32", "bfloat16", "float16"),
        help="of the referee; auto is float32 on the CPU, the checkpoint's own elsewhere",
    )
    score.add_argument("--no-timings", action="store_true", help="leave out what differs from run to run")
    score.add_argument("--strict", action="store_true", help="exit with 2 if any response is not valid")
    score.set_defaults(run=_score)

    render = commands.add_parser(
        "render",
        help="draw scored evidence on the frames",
        description=_render.__doc__,
        epilog="example: ser-fast render --scored scored.jsonl --rollouts rollouts.jsonl --videos videos/ --out pages/",
    )
    render.add_argument("--scored", required=True, metavar="FILE", help="what ser-fast score wrote")
    _add_inputs(render)
    render.add_argument("--out", required=True, metavar="DIR", help="for index.html and the PNG files; made if missing")
    render.add_argument("--note", metavar="TEXT", help="a remark for the top of the page")
    render.set_defaults(run=_render)
    return parser


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rollouts", required=True, metavar="FILE", help="JSON lines, one completion each")
    parser.add_argument("--videos", required=True, metavar="DIR", help="folder that the names in the rollouts are below")


def _info(args: argparse.Namespace) -> int:
    """Every op and its kernels, versions and devices; what has not been measured on a GPU says so."""
    from ser_fast import info

    facts = info.collect()
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print("  ".join(f"{name} {version}" for name, version in facts["versions"].items()), highlight=False)
    console.print(f"compiled library: {facts['native']}; CPU threads: {facts['threads']}", highlight=False)
    for device, name in facts["devices"].items():
        console.print(f"device {device}: {name}", highlight=False)
    table = Table("op", "kernel", "cpu", "cuda")
    for op, kernels in facts["ops"].items():
        for kernel, devices in kernels.items():
            cuda = devices["cuda"]
            table.add_row(op, kernel, devices["cpu"], f"{cuda}, {info.UNVERIFIED}" if cuda == "available" else cuda)
    console.print(table)
    for setting, state in facts["gpu"].items():
        console.print(f"{setting}: {state}", highlight=False)
    return 0


def _score(args: argparse.Namespace) -> int:
    """Scores each completion by its answer, its format and its evidence: a referee model checks every claim in the frame."""
    from ser_fast.jsonl import read_rollouts, write_text

    rollouts = read_rollouts(args.rollouts)
    _check_out(args.out, inputs=[args.rollouts])

    from ser_fast.pipeline import score_rollouts
    from ser_fast.referee import VLMReferee
    from ser_fast.rewards import get_reward
    from ser_fast.video import MediaFolder

    reward = get_reward(args.reward)
    reward.check_questions([rollout.question for rollout in rollouts])
    videos = MediaFolder(args.videos, device=args.device)
    referee = VLMReferee(args.referee, device=args.device, dtype=args.dtype)
    lines: dict[int, str] = {}
    num_invalid = 0
    for batch in _with_progress(_batches(rollouts), len(rollouts)):
        scored = score_rollouts([rollouts[i] for i in batch], clips=videos, referee=referee, reward=reward)
        lines |= zip(batch, scored.to_json_lines(timings=not args.no_timings), strict=True)
        num_invalid += int((~scored.table.valid).sum())
    text = "".join(f"{lines[i]}\n" for i in range(len(rollouts)))
    if args.out:
        write_text(args.out, text)
    else:
        sys.stdout.buffer.write(text.encode("utf-8"))
        sys.stdout.buffer.flush()
    if num_invalid and args.strict:
        return _fail(f"{num_invalid} of {len(rollouts)} responses are not valid; each line says why")
    return 0


def _render(args: argparse.Namespace) -> int:
    """Draws every scored claim on its frame, in the colour of the referee's score: PNG files and one self-contained page."""
    from ser_fast.jsonl import read_rollouts

    rollouts = read_rollouts(args.rollouts)

    from ser_fast.render import render
    from ser_fast.video import MediaFolder

    print(render(args.scored, rollouts, MediaFolder(args.videos), args.out, note=args.note))
    return 0


def _batches(rollouts: Sequence[Rollout]) -> Iterator[list[int]]:
    """Row numbers in runs of at most MAX_BATCH, those of one video together, so that it is read once."""
    by_media: dict[tuple[str | None, str | None], list[int]] = {}
    for i, rollout in enumerate(rollouts):
        by_media.setdefault((rollout.question.video, rollout.question.image), []).append(i)
    batch: list[int] = []
    for rows in by_media.values():
        for i in rows:
            if len(batch) == MAX_BATCH:
                yield batch
                batch = []
            batch.append(i)
    yield batch


def _with_progress(batches: Iterator[list[int]], total: int) -> Iterator[list[int]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("scoring"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("scoring", total=total)
        for batch in batches:
            yield batch
            progress.advance(task, len(batch))


def _check_out(out: str | None, *, inputs: Sequence[str]) -> None:
    """Says before the work, not after it, that there is nowhere to put the result."""
    if out is None:
        return
    target = Path(out).resolve()
    writable = target if target.exists() else target.parent
    if target.is_dir() or not target.parent.is_dir() or not os.access(writable, os.W_OK):
        raise InputError(f"{out}: cannot be written")
    if any(target.exists() and target.samefile(path) for path in inputs):
        raise InputError(f"{out}: is an input of this command")


def _fail(message: str) -> int:
    print(f"ser-fast: {' '.join(message.split())}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
