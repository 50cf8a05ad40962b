"""The wheel, installed outside the checkout: nothing of the checkout is needed."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as pip builds it: in an environment of its own."""
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", out, ROOT], check=True, capture_output=True)
    (path,) = out.glob("ser_fast-*.whl")
    return path


def test_it_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"ser_fast", "trainer"}
    assert sum(name.startswith("ser_fast/_core") for name in names) == 1
    assert {"ser_fast/py.typed", "ser_fast/assets/toy_referee/model.safetensors", "trainer/toy/policy/model.safetensors"} <= {
        *names
    }


def test_it_works_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    """A venv that sees the dependencies installed here, but not the project itself."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    site = Path(subprocess.check_output([python, "-c", "import site; print(site.getsitepackages()[0])"], text=True).strip())
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")  # .pth files inside it are not read
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site, wheel]
    subprocess.run(command, check=True, capture_output=True)
    code = (
        "import sys, ser_fast, ser_fast._core\n"
        "from ser_fast.testing import moving_square, write_clip\n"
        "from ser_fast.jsonl import rollout_from_json\n"
        "from ser_fast.pipeline import score_rollouts\n"
        "from ser_fast.referee import VLMReferee\n"
        "from ser_fast.video import MediaFolder\n"
        "write_clip('clip.mp4', moving_square(12)[0])\n"
        "row = dict(schema=1, id='r', group='g', video='clip.mp4', question='?', answer='red', task='free-form',\n"
        "    coord_space=dict(kind='norm1'), sampling=dict(fps=2.0),\n"
        "    completion='<think><obj>a</obj><box>[0,0,.5,1]</box>at<t>0</t>s</think><answer>red</answer>')\n"
        "referee = VLMReferee('toy')\n"
        "scored = score_rollouts([rollout_from_json(row)], clips=MediaFolder('.'), referee=referee)\n"
        "print(ser_fast.__file__, bool(scored.table.valid.all()))\n"
    )
    run = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout == f"{site / 'ser_fast' / '__init__.py'} True\n"
    assert not run.stdout.startswith(str(ROOT))
