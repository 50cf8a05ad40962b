"""Rung 0: layers, formatting, types. The same tools as `make lint` and pre-commit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

BIN = Path(sys.executable).parent
CPP = sorted(map(str, [*(ROOT / "csrc").rglob("*.cpp"), *(ROOT / "csrc").rglob("*.h")]))

TOOLS = {
    "import-linter": ["lint-imports", "--no-cache"],
    "ruff check": ["ruff", "check", "."],
    "ruff format": ["ruff", "format", "--check", "."],
    "mypy": ["mypy"],
    "clang-format": ["clang-format", "--dry-run", "--Werror", *CPP],
}


@pytest.mark.parametrize("tool", TOOLS)
def test_lint(tool: str) -> None:
    command, *arguments = TOOLS[tool]
    run = subprocess.run([BIN / command, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


VIOLATIONS = {
    "a sibling imports a sibling": ("video/clip.py", "import layered.claims", "layered.video.clip -> layered.claims"),
    "a lower layer imports a higher one": ("types/media.py", "import layered.ops", "layered.types.media -> layered.ops"),
    "transformers away from home": ("referee/prompt.py", "import transformers", "layered.referee.prompt -> transformers"),
    "PyAV away from home": ("video/clip.py", "import av", "layered.video.clip -> av"),
    "numpy where clients look": ("jsonl.py", "import numpy", "layered.jsonl -> numpy"),
}


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_the_contracts_can_fail(violation: str, tmp_path: Path) -> None:
    """Each on a copy of the package, under another name, with one bad import."""
    file, line, finding = VIOLATIONS[violation]
    for path in (ROOT / "ser_fast").rglob("*.py"):
        copy = tmp_path / "layered" / path.relative_to(ROOT / "ser_fast")
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8").replace("ser_fast", "layered")
        copy.write_text(text.replace("annotations\n", f"annotations\n{line}\n", 1) if copy.match(f"layered/{file}") else text)
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text().replace("ser_fast", "layered"))
    run = subprocess.run([BIN / "lint-imports", "--no-cache"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 1, run.stdout + run.stderr
    assert finding in run.stdout
