"""Every row of the table of ops: what belongs to it is there, and each kernel is right on each case."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import ser_fast.ops
from ser_fast.errors import BackendUnavailable
from ser_fast.ops.registry import OPS, Case, Kernel, Op
from tests.conftest import ROOT
from tests.support.poison import poisoned_allocations
from tests.support.tolerance import exact

EXPECTED = {
    "box_iou",
    "crop_patchify",
    "crop_resize",
    "evidence_reward",
    "group_advantage",
    "interval_iou",
    "temporal_penalty",
    "token_logprob",
}

ROWS = [
    pytest.param(op, kernel, case, id=f"{op.name}-{kernel.name}-{case.id}")
    for op in OPS.values()
    for kernel in op.kernels
    for case in op.cases()
]


def test_the_table_holds_all_public_ops() -> None:
    assert {op.public for op in OPS.values()} == EXPECTED


@pytest.mark.parametrize("op", OPS.values(), ids=OPS.keys())
def test_each_op_has_all_that_belongs_to_it(op: Op) -> None:
    assert op.kernels[-1].name == "reference", "the reference comes last"
    assert len({case.id for case in op.cases()}) == len(list(op.cases())) > 0
    function = getattr(ser_fast.ops, op.public)
    for section in ("Args:", "Returns:", "Raises:", "Source:"):
        assert section in function.__doc__, f"{op.public}: no {section} in the docstring"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| `{op.public}`", readme, re.MULTILINE), f"{op.public}: no row in the README's table of ops"
    benchmarks = (ROOT / "bench" / "test_ops.py").read_text(encoding="utf-8")
    assert op.public in benchmarks, f"{op.public}: no benchmark"


@pytest.mark.parametrize(("op", "kernel", "case"), ROWS)
def test_opcheck(op: Op, kernel: Kernel, case: Case) -> None:
    torch.library.opcheck(getattr(torch.ops.ser_fast, op.name).default, (*case.args, kernel.name))


@pytest.mark.parametrize(("op", "kernel", "case"), ROWS)
def test_values_equal_the_reference(op: Op, kernel: Kernel, case: Case) -> None:
    expected = _run(op, op.kernels[-1], case.args)
    with poisoned_allocations():
        actual = _run(op, kernel, case.args)
    assert len(actual) == len(expected) > 0
    for got, want in zip(actual, expected, strict=True):
        exact(got, want)


@pytest.mark.needs_cuda
@pytest.mark.parametrize(("op", "kernel", "case"), [row for row in ROWS if "cuda" in row.values[1].devices])
def test_values_on_cuda_equal_the_cpu(op: Op, kernel: Kernel, case: Case) -> None:
    on_host = {"frame_idx", "boxes"}  # of the crop ops
    names = re.findall(r"Tensor\S* (\w+)", op.signature.partition("->")[0])
    tensors = iter(names)
    args = [
        arg.cuda() if isinstance(arg, torch.Tensor) and not (op.public.startswith("crop") and next(tensors) in on_host) else arg
        for arg in case.args
    ]
    for got, want in zip(_run(op, kernel, tuple(args)), _run(op, kernel, case.args), strict=True):
        torch.testing.assert_close(got.cpu(), want, equal_nan=True)


def test_an_unknown_backend_is_refused_with_every_reason() -> None:
    box = torch.zeros(1, 4)
    with pytest.raises(BackendUnavailable, match=r"box_iou: no backend 'triton' for cpu tensors \(reference: available\)"):
        ser_fast.ops.box_iou(box, box, backend="triton")


def test_a_backend_for_another_device_is_refused() -> None:
    frames = torch.zeros(1, 4, 4, 3, dtype=torch.uint8, device="meta")
    box = torch.tensor([[0, 0, 4, 4]])
    message = r"crop_resize: no backend 'cpu' for meta tensors \(cpu: runs on cpu, not on meta; reference: runs on cpu and cuda"
    with pytest.raises(BackendUnavailable, match=message):
        OPS["crop_resize"].select("cpu", "meta")
    assert ser_fast.ops.crop_resize(frames, torch.tensor([0]), box, out_hw=(2, 3)).shape == (1, 2, 3, 3)  # the fake


def test_the_environment_chooses_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    assert OPS["crop_resize"].select("auto", "cpu").name == "cpu"
    monkeypatch.setenv("SER_FAST_BACKEND", "reference")
    assert OPS["crop_resize"].select("auto", "cpu").name == "reference"
    assert OPS["crop_resize"].select("cpu", "cpu").name == "cpu", "a named backend wins"
    monkeypatch.setenv("SER_FAST_BACKEND", "nonsense")
    with pytest.raises(BackendUnavailable, match="no backend 'nonsense'"):
        OPS["crop_resize"].select("auto", "cpu")


def _run(op: Op, kernel: Kernel, args: tuple[Any, ...]) -> list[torch.Tensor]:
    """All results of a kernel, those written into arguments included."""
    args = tuple(arg.detach().clone() if isinstance(arg, torch.Tensor) and "(a!)" in op.signature else arg for arg in args)
    result = kernel.run(*args)
    if result is None:
        return [args[-1]]
    return [r.detach() for r in result] if isinstance(result, tuple) else [result.detach()]
