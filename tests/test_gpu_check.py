"""The script for the GPU machine: its stages at tiny sizes, with nothing but what that machine has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT

ABSENT = ("av", "PIL", "pytest")

CODE = f"""
import runpy, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
sys.argv = ["gpu_check.py", *sys.argv[1:]]
runpy.run_path({str(ROOT / "bench" / "gpu_check.py")!r}, run_name="__main__")
"""


def test_all_stages_run_on_a_cpu(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    run = subprocess.run([sys.executable, "-c", CODE, "--device", "cpu", "--out", out], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads(out.read_text())
    assert list(report["stages"]) == ["packed referee"]
    for family in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl"):
        assert 0 <= report["stages"]["packed referee"][family]["largest difference"] <= 1e-5


def test_a_stage_that_fails_is_reported_and_counted(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    broken = CODE.replace(
        "runpy.run_path(",
        "import torch, ser_fast.referee.vlm as v\n"
        "v.VLMReferee.score_unpacked = lambda self, requests: v._to_scores(torch.zeros(len(requests), 2, 5))\nrunpy.run_path(",
    )
    run = subprocess.run([sys.executable, "-c", broken, "--device", "cpu", "--out", out], capture_output=True, text=True)
    assert run.returncode == 1, run.stderr
    assert "packed and unpacked scores differ by" in json.loads(out.read_text())["stages"]["packed referee"]["failed"]


def test_a_stage_beyond_its_budget_has_failed(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from bench import gpu_check
gpu_check.STAGES = {{"slow": (lambda device, sizes: {{}}, -1.0)}}
sys.argv = ["gpu_check.py", "--device", "cpu", "--out", {str(out)!r}]
sys.exit(gpu_check.main())
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 1, run.stderr
    assert json.loads(out.read_text())["stages"]["slow"]["failed"] == "took 0 s of a budget of -1 s"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so() -> None:
    run = subprocess.run([sys.executable, ROOT / "bench" / "gpu_check.py", "--device", "cuda"], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (2, "gpu-check: no GPU for device 'cuda'\n")
