"""`make toy-models`: makes the policy and the referee of the toy world from nothing, and compares them with those shipped.

The referee goes on from what the policy knows half-way; from there both are trained at once, a core each. What was begun goes
on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from ser_fast.assets import TOY_REFEREE
from ser_fast.errors import DecodeError, InputError
from ser_fast.referee import VLMReferee
from trainer.evaluate import measure
from trainer.policy import Policy
from trainer.progress import Progress
from trainer.run import stop_on_sigterm
from trainer.toy import POLICY
from trainer.toy.chains import measure_chains
from trainer.toy.evaluate import answer, answer_blind, ask, constant_when
from trainer.toy.lessons import seen_clip
from trainer.toy.measure_referee import figures_of, jittered_claims, measure_referee, policy_claims, swapped_claims
from trainer.toy.recipe import SEED, can_make_referee, make_policy, make_referee, write_data
from trainer.toy.world import Scene

NUM_CLAIMS = 2000
"""Half of them the policy's own, half jittered true boxes."""
NUM_SWAPPED = 1000


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the whole recipe, one model of it, or only the measurement of the shipped models."""
    parser = argparse.ArgumentParser(prog="python -m trainer.toy.build", description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("build/toy"), help="folder for videos, runs and models")
    parser.add_argument("--only", choices=("policy", "referee", "shipped"), help="one model, or the figures of those shipped")
    args = parser.parse_args(argv)
    try:
        return _build(args.work, args.only)
    except (InputError, DecodeError, OSError) as error:
        print(error, file=sys.stderr)
        return 2


def _build(work: Path, only: str | None) -> int:
    begin = time.perf_counter()
    train, held_out = write_data(work)
    _tell(f"videos: {time.perf_counter() - begin:.0f} s")
    if only in ("policy", "referee"):
        torch.set_num_threads(1)
        make = make_policy if only == "policy" else make_referee
        with Progress(bars=False) as progress:
            _tell(f"{only}: {make(work, train, on_step=progress)}")
        return 0
    tables = {}
    if only is None:
        if not _train(work):
            return 1
        _tell(f"trained: {time.perf_counter() - begin:.0f} s")
        tables["rebuilt"] = figures(work / "policy", work / "referee", work / "held-out", held_out)
    tables["shipped"] = figures(POLICY, TOY_REFEREE, work / "held-out", held_out)
    show(tables)
    _tell(f"all: {time.perf_counter() - begin:.0f} s")
    return 0


def _train(work: Path) -> bool:
    """Makes the policy, and the referee beside it as soon as that can begin; False if either fails. No child outlives it: at
    SIGTERM they are ended first."""
    command = [sys.executable, "-m", "trainer.toy.build", "--work", str(work), "--only"]
    with stop_on_sigterm() as stop:
        processes = [subprocess.Popen([*command, "policy"])]
        try:
            while not stop.asked and not can_make_referee(work) and processes[0].poll() is None:
                time.sleep(1.0)
            if not stop.asked:
                processes.append(subprocess.Popen([*command, "referee"]))
            while not stop.asked and None in [process.poll() for process in processes] and not _failed(processes):
                time.sleep(1.0)
        finally:
            for process in processes:
                process.kill()
                process.wait()
    if stop.asked:
        sys.exit(128 + signal.SIGTERM)
    return not _failed(processes)


def _failed(processes: Sequence[subprocess.Popen[bytes]]) -> bool:
    return any(process.returncode for process in processes)


def figures(policy: Path, referee: Path, folder: Path, scenes: Sequence[Scene]) -> dict[str, dict[str, Any]]:
    """The figures of both models on held-out clips. Beside them what keeps them honest: a policy that is shown the frames of
    another clip, the best constant time, and the referee on jittered true boxes alone, where places are as often right as
    wrong, and on good boxes of the wrong thing."""
    loaded = Policy.load(policy)
    clips = [seen_clip(folder, scene) for scene in scenes]
    asked = ask(scenes)
    judged = policy_claims(loaded, folder, [*scenes] * 4, NUM_CLAIMS // 2, seed=SEED)
    judged += jittered_claims(folder, scenes, NUM_CLAIMS // 2, seed=SEED)
    judge = VLMReferee(referee)
    scores = judge.score([j.request for j in judged])
    return {
        "policy": measure(answer(loaded, asked, clips)).to_json()
        | {"constant when": round(constant_when(asked), 4)}
        | measure_chains(loaded, clips, scenes, seed=SEED).to_json(),
        "policy, frames of another clip": measure(answer_blind(loaded, asked, clips)).to_json(),
        "referee": figures_of(scores, judged).to_json(),
        "referee, jittered boxes": figures_of(scores, judged, slice(NUM_CLAIMS // 2, None)).to_json(),
        "referee, boxes of another thing": measure_referee(
            judge, swapped_claims(folder, scenes, NUM_SWAPPED, seed=SEED)
        ).to_json(),
    }


def show(tables: dict[str, dict[str, dict[str, Any]]]) -> None:
    """One table a model, a column for each set of weights; and the same as JSON."""
    console = Console()
    first = next(iter(tables.values()))
    for model in first:
        table = Table(model, *tables)
        for name in first[model]:
            table.add_row(name, *(str(columns[model][name]) for columns in tables.values()))
        console.print(table)
    print(json.dumps(tables))


def _tell(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
