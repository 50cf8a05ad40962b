"""Fixtures and options for all tests."""

from __future__ import annotations

import os
import platform
import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from ser_fast.testing import write_random_vlm

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"
FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full-report", metavar="FILE", help="write a summary of the run as Markdown")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("needs_cuda") and not torch.cuda.is_available():
        if os.environ.get("SER_FAST_REQUIRE_CUDA") == "1":
            pytest.fail("SER_FAST_REQUIRE_CUDA=1, but there is no GPU", pytrace=False)
        pytest.skip("needs a GPU")


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(1)  # the models here are tiny: threads would only wait for one another
    if path := config.getoption("--full-report"):
        config.pluginmanager.register(_Summary(Path(path)))


class _Summary:
    """Writes what ran, what was skipped and why, and every figure that a test recorded with record_property."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.started = time.time()
        self.reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)

    def pytest_sessionfinish(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(_to_markdown(self.reports, time.time() - self.started), encoding="utf-8")


def _to_markdown(reports: list[pytest.TestReport], seconds: float) -> str:
    calls = [report for report in reports if report.when == "call" or report.outcome != "passed"]
    counts = {outcome: sum(r.outcome == outcome for r in calls) for outcome in ("passed", "failed", "skipped")}
    lines = [
        "# make test-full",
        "",
        f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped in {seconds / 60:.1f} minutes; "
        f"Python {platform.python_version()}, torch {torch.__version__}, {os.cpu_count()} cores.",
        "",
        "| test | seconds | figures |",
        "|---|---|---|",
    ]
    for report in calls:
        if report.user_properties or report.outcome == "failed":
            figures = "; ".join(f"{name}: {value}" for name, value in report.user_properties)
            lines.append(f"| `{report.nodeid}` {report.outcome} | {report.duration:.1f} | {figures} |")
    skipped = sorted({f"- `{r.nodeid.partition('[')[0]}`: {r.longrepr[2]}" for r in calls if isinstance(r.longrepr, tuple)})
    if skipped:
        lines += ["", "Skipped:", "", *skipped]
    return "\n".join(lines) + "\n"


@pytest.fixture(autouse=True)
def _seeds() -> Iterator[None]:
    """Every test starts from the same random state and leaves the state as it was."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    torch.set_rng_state(states[2])


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real clips and golden files that stand beside the checkout."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no {SHARED_DATA}")
    return SHARED_DATA


@pytest.fixture(scope="session")
def random_vlm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A random-weight model folder of each family; weights scaled so that scores spread."""
    root = tmp_path_factory.mktemp("models")
    return {family: write_random_vlm(root / family, family=family, seed=6, gain=1.4) for family in FAMILIES}
