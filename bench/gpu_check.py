"""One script for a GPU machine: `make gpu-check`. Each stage has a time budget and writes its figures when it is done.

Imports torch, transformers, numpy and safetensors only. `--device cpu` runs the same stages at tiny sizes.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from ser_fast import _native
from ser_fast.referee import RefereeConfig, VLMReferee, prompt
from ser_fast.testing import byte_tokenizer, write_random_vlm
from ser_fast.types import Clip, RefereeRequest

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of the models and frames of a run."""

    model: dict[str, int]
    frame: int
    num_frames: int
    num_claims: int
    dtype: torch.dtype


TINY = Sizes(model={}, frame=112, num_frames=2, num_claims=4, dtype=torch.float32)
GPU = Sizes(
    model={"hidden_size": 1024, "num_layers": 16, "vision_size": 512, "vision_layers": 8},
    frame=448,
    num_frames=4,
    num_claims=32,
    dtype=torch.float32,
)


def packed_referee(device: str, sizes: Sizes) -> dict[str, Any]:
    """Packed scores equal those of one stock forward a claim and axis, in float32, for each family; and what packing saves."""
    torch.backends.cuda.matmul.allow_tf32 = False
    return {family: _packed_against_unpacked(family, device, sizes) for family in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")}


def _packed_against_unpacked(family: str, device: str, sizes: Sizes) -> dict[str, Any]:
    requests = _requests(sizes)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = byte_tokenizer([prompt.SYSTEM, prompt.ROOT, prompt.CLAIM, prompt.RELEVANCE, prompt.LOCALIZATION])
        write_random_vlm(folder, family=family, tokenizer=tokenizer, gain=1.4, **sizes.model)  # type: ignore[arg-type]
        referee = VLMReferee(folder, device=device, dtype=sizes.dtype, config=RefereeConfig(min_crop_side_px=56))
    packed, packed_s, packed_bytes = _measured(device, lambda: referee.score(requests))
    alone, alone_s, alone_bytes = _measured(device, lambda: referee.score_unpacked(requests))
    both = torch.stack([torch.stack([scores.relevance, scores.localization]) for scores in (packed, alone)])
    difference = float((both[0] - both[1]).abs().max())
    if not difference <= 1e-5:
        raise AssertionError(f"{family}: packed and unpacked scores differ by {difference:.2e}")
    return {
        "largest difference": difference,
        "spread of relevance": float(both[0, 0].max() - both[0, 0].min()),
        "time, one by one / packed": alone_s / packed_s,
        "peak memory, packed / one by one": packed_bytes / alone_bytes if alone_bytes else None,
    }


STAGES: dict[str, tuple[Callable[[str, Sizes], dict[str, Any]], float]] = {"packed referee": (packed_referee, 90.0)}
"""Name -> (stage, its budget in seconds)."""


def _requests(sizes: Sizes) -> list[RefereeRequest]:
    rng = random.Random(0)
    generator = torch.Generator().manual_seed(0)
    shape = (sizes.num_frames, sizes.frame, sizes.frame, 3)
    clip = Clip(
        frames=torch.randint(256, shape, dtype=torch.uint8, generator=generator),
        times=torch.arange(sizes.num_frames, dtype=torch.float64),
        start_s=0.0,
        duration=float(sizes.num_frames),
        source="noise",
        decoded_by="gpu-check",
    )
    side = sizes.frame / 3
    corners = [(rng.uniform(0, 2 * side), rng.uniform(0, 2 * side)) for _ in range(sizes.num_claims)]
    return [
        RefereeRequest(
            clip=clip,
            frame_idx=i % sizes.num_frames,
            boxes=((x, y, x + side, y + side),),
            name="thing " * (1 + i % 3),
            time_s=float(i),
            question="what is it?",
            answer="a cat",
        )
        for i, (x, y) in enumerate(corners)
    ]


def _measured(device: str, run: Callable[[], Any]) -> tuple[Any, float, int]:
    """(result, seconds of the second run, peak bytes on the device)."""
    run()
    is_cuda = device.startswith("cuda")
    if is_cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    result = run()
    if is_cuda:
        torch.cuda.synchronize()
    return result, time.perf_counter() - begin, torch.cuda.max_memory_allocated() if is_cuda else 0


def main() -> int:
    """Runs all stages; the exit code is the number of those that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, help="default: bench/results/gpu-check.json on a GPU, nowhere on a CPU")
    args = parser.parse_args()
    is_cuda = args.device.startswith("cuda")
    if is_cuda and not torch.cuda.is_available():
        print(f"gpu-check: no GPU for device {args.device!r}", file=sys.stderr)
        return 2
    out = args.out or (RESULTS / "gpu-check.json" if is_cuda else None)
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(args.device) if is_cuda else platform.machine(),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "native part": _native.why_unavailable() or "loaded",
        "stages": {},
    }
    num_failed = 0
    for name, (stage, budget_s) in STAGES.items():
        begin = time.perf_counter()
        try:
            figures = stage(args.device, GPU if is_cuda else TINY)
        except (AssertionError, RuntimeError) as error:  # a stage that fails does not cost the figures of the others
            figures = {"failed": f"{type(error).__name__}: {error}"}
            num_failed += 1
        seconds = time.perf_counter() - begin
        if "failed" not in figures and seconds > budget_s:
            figures["failed"] = f"took {seconds:.0f} s of a budget of {budget_s:.0f} s"
            num_failed += 1
        report["stages"][name] = {"seconds": round(seconds, 1), "budget_s": budget_s, **figures}
        print(json.dumps({name: report["stages"][name]}, indent=2), flush=True)
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return num_failed


if __name__ == "__main__":
    sys.exit(main())
