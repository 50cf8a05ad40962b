"""What a new process sees: silent and light imports, the library without its compiled part, the first call."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "torch",
    "numpy",
    "transformers",
    "tokenizers",
    "av",
    "PIL",
    "triton",
    "numba",
    "nvidia.dali",
    "rich",
    "jinja2",
    "httpx",
)


def _run(code: str, *flags: str) -> str:
    run = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stderr == "", "imports are silent"
    return run.stdout


@pytest.mark.parametrize(
    "module", ["ser_fast", "ser_fast.types", "ser_fast.errors", "ser_fast.text", "ser_fast.jsonl", "ser_fast.cli"]
)
def test_what_a_client_needs_loads_nothing_heavy(module: str) -> None:
    loaded = _run(f"import sys, {module}; print(*[name for name in {HEAVY} if name in sys.modules])", "-W", "error")
    assert loaded.split() == []


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("ser_fast.ops", ("transformers", "av", "PIL")),
        ("ser_fast.claims", ("transformers", "av", "PIL")),
        ("ser_fast.referee", ("transformers", "tokenizers", "av", "PIL")),
        ("ser_fast.video", ("torch", "av", "PIL", "transformers")),
        ("ser_fast.rewards", ("transformers", "av", "PIL")),
        ("ser_fast.pipeline", ("transformers", "tokenizers", "av", "PIL")),
    ],
)
def test_heavy_packages_wait_until_they_are_used(module: str, absent: tuple[str, ...]) -> None:
    assert _run(f"import sys, {module}; print(*[name for name in {absent} if name in sys.modules])").split() == []


WITHOUT_NATIVE = "import sys; sys.modules['ser_fast._core'] = None\n"


def test_without_the_compiled_part_ops_say_so_and_use_the_reference() -> None:
    code = WITHOUT_NATIVE + (
        "import logging; logging.basicConfig(stream=sys.stdout, format='%(name)s %(message)s')\n"
        "import torch\nfrom ser_fast.ops import crop_resize\n"
        "args = torch.zeros(1, 4, 4, 3, dtype=torch.uint8), torch.tensor([0]), torch.tensor([[0, 0, 4, 4]])\n"
        "print(crop_resize(*args, out_hw=(2, 2)).shape, crop_resize(*args, out_hw=(2, 2)).shape)\n"
        "try: crop_resize(*args, out_hw=(2, 2), backend='cpu')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    warning, shapes, refusal = _run(code).splitlines()
    assert warning.startswith("ser_fast crop_resize: cpu kernel skipped: the compiled library ser_fast._core cannot be loaded")
    assert shapes == "torch.Size([1, 2, 2, 3]) torch.Size([1, 2, 2, 3])", "and warns once"
    assert refusal.startswith("BackendUnavailable crop_resize: no backend 'cpu' for cpu tensors (cpu: the compiled library")
    assert "reinstall with `pip install .`" in refusal


def test_without_the_compiled_part_parsing_raises_with_the_remedy() -> None:
    code = WITHOUT_NATIVE + (
        "from ser_fast.claims import parse_claims\nfrom ser_fast.types import CoordSpace\n"
        "try: parse_claims(['x'], coord_space=CoordSpace(kind='norm1'), frame_hw=(1, 1), duration_s=1.0)\n"
        "except ImportError as error: print(error)\n"
    )
    assert "reinstall with `pip install .`" in _run(code)


def test_the_first_call_may_be_a_compiled_one() -> None:
    code = (
        "import torch\nfrom ser_fast.ops import box_iou, group_advantage\nfrom ser_fast.types import Segments\n"
        "segments = Segments.from_lengths([2, 3])\n"
        "@torch.compile(fullgraph=True, dynamic=True, backend='aot_eager')\n"
        "def f(a, b): return box_iou(a, b).amax(1), group_advantage(a[:, 0], segments)\n"
        "a = torch.rand(5, 4).sort(1).values\n"
        "print([r.shape for r in f(a, a)], torch.equal(f(a, a)[0], torch.ones(5)))\n"
    )
    assert _run(code) == "[torch.Size([5]), torch.Size([5])] True\n"
