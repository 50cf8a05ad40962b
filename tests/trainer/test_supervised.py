"""The supervised loss against an eager textbook, and a run that is stopped against one that is not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ser_fast.errors import InputError
from tests.conftest import FAMILIES, ROOT
from tests.support.policy import textbook_logprobs
from tests.support.referee import make_clip
from trainer import checkpoint
from trainer.batch import Branch, ClipTree, make_batch
from trainer.order import Order
from trainer.policy import Policy
from trainer.supervised import SupervisedConfig, fit, learning_rate_share

QUESTIONS = ("What color is the ring?", "What shape is the red thing?", "\u72ac?")
COMPLETIONS = (
    "<think><obj>red ring</obj><box>[1,2,30,40]</box>at<t>1.00</t>s</think><answer>red</answer>",
    "<think></think><answer>ring</answer>",
    "x",
)


def _trees(policy: Policy, num: int = 2) -> list[ClipTree]:
    """Clips of uneven length, with one to three examples each."""
    trees = []
    for i in range(num):
        clip = policy.prompts.clip(make_clip(2 + i, height=96 + 40 * i, width=130))
        branches = tuple(
            Branch(question=policy.prompts.question(q), completions=(policy.completion_ids(c),))
            for q, c in zip(QUESTIONS[: 1 + (i + 1) % 3], COMPLETIONS, strict=False)
        )
        trees.append(ClipTree(clip=clip, branches=branches))
    return trees


def _textbook(policy: Policy, trees: list[ClipTree]) -> torch.Tensor:
    """One sequence an example, its completion tokens alone."""
    examples = [(tree.clip, branch) for tree in trees for branch in tree.branches]
    return -torch.cat(
        [textbook_logprobs(policy, (clip, branch.question), branch.completions[0]) for clip, branch in examples]
    ).mean()


@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_gradients_equal_the_textbook(family: str, random_vlm: dict[str, Path]) -> None:
    """For each family: completion tokens only, each given its own clip, question and past."""
    policy = Policy.load(random_vlm[family])
    trees = _trees(policy, 3)
    parameters = [p for p in policy.model.parameters() if p.requires_grad]
    loss = -policy.logprobs(make_batch(trees, policy.prompts)).mean()
    packed = torch.autograd.grad(loss, parameters, allow_unused=True)
    expected = _textbook(policy, trees)
    plain = torch.autograd.grad(expected, parameters, allow_unused=True)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    for got, want in zip(packed, plain, strict=True):
        assert (got is None) == (want is None)
        if got is not None and want is not None:
            assert float((got - want).abs().max()) <= 1e-5 * max(1.0, float(want.abs().max()))


def test_nothing_but_completions_is_learnt(policy: Policy) -> None:
    """Another question elsewhere in the row, or another order of the branches, changes no log-probability."""
    trees = _trees(policy, 2)
    (tree,) = [t for t in trees if len(t.branches) == 3]
    batch = make_batch([tree], policy.prompts)
    assert len(batch.targets) == sum(len(c) for b in tree.branches for c in b.completions)
    assert batch.targets.tolist() == [i for b in tree.branches for c in b.completions for i in c]
    together = policy.logprobs(batch)
    turned = make_batch([ClipTree(clip=tree.clip, branches=tree.branches[::-1])], policy.prompts)
    alone = make_batch([ClipTree(clip=tree.clip, branches=tree.branches[:1])], policy.prompts)
    num = len(tree.branches[0].completions[0])
    torch.testing.assert_close(policy.logprobs(turned)[-num:], together[:num], atol=1e-5, rtol=0)
    torch.testing.assert_close(policy.logprobs(alone), together[:num], atol=1e-5, rtol=0)
    assert batch.owners.tolist() == [i for i, b in enumerate(tree.branches) for _ in b.completions[0]]


def test_a_small_policy_learns_what_it_is_shown(policy: Policy, tmp_path: Path) -> None:
    trees = _trees(policy, 2)
    batch = make_batch(trees, policy.prompts)
    losses: list[float] = []
    fit(
        policy.model,
        lambda _: -policy.logprobs(batch).mean(),
        run=tmp_path,
        config=SupervisedConfig(num_steps=40, learning_rate=3e-3, num_warmup_steps=5),
        on_step=lambda _, loss: losses.append(loss),
    )
    assert losses[-1] < losses[0] / 4


def test_muon_moves_the_matrices_of_blocks_and_nothing_else(policy: Policy, tmp_path: Path) -> None:
    batch = make_batch(_trees(policy, 2), policy.prompts)
    before = {name: weights.detach().clone() for name, weights in policy.model.named_parameters()}
    config = SupervisedConfig(num_steps=1, learning_rate=0.0, muon_learning_rate=1e-3, num_warmup_steps=1)
    fit(policy.model, lambda _: -policy.logprobs(batch).mean(), run=tmp_path, config=config)
    moved = {name for name, weights in policy.model.named_parameters() if not torch.equal(weights, before[name])}
    assert all(before[name].ndim == 2 for name in moved)
    assert any("self_attn.q_proj.weight" in name for name in moved)
    assert any("visual" in name for name in moved)
    assert not any(word in name for name in moved for word in ("embed", "lm_head", "norm", "bias"))


SCRIPT = """
import random, sys, time
from pathlib import Path
import torch

from ser_fast.errors import InputError
from trainer.supervised import SupervisedConfig, fit

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))

def loss_at(step):
    x = torch.tensor([[random.Random(f"{step}/{i}/{j}").gauss(0, 1) for j in range(8)] for i in range(4)])
    return (model(x) - x.sum(1, keepdim=True)).pow(2).mean()

def on_step(step, loss):
    print(step, flush=True)
    time.sleep(0.02)

config = SupervisedConfig(num_steps=30, learning_rate=1e-2, muon_learning_rate=1e-2, save_every=4)
fit(model, loss_at, run=Path(sys.argv[1]), config=config, on_step=on_step)
"""


def _losses(run: Path) -> list[tuple[int, float, float]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], row["loss"], row["gradient_norm"]) for row in rows]


def test_a_run_that_was_killed_goes_on_to_the_same_losses(tmp_path: Path) -> None:
    """SIGKILL at three random steps, then the same command again."""
    command = [sys.executable, "-c", SCRIPT]
    subprocess.run([*command, tmp_path / "whole"], cwd=ROOT, check=True, capture_output=True)
    rng = random.Random(os.environ.get("PYTEST_SEED", "3"))
    for _ in range(3):
        part = subprocess.Popen([*command, tmp_path / "killed"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert part.stdout is not None
        for _ in range(rng.randint(2, 8)):
            part.stdout.readline()
        part.send_signal(signal.SIGKILL)
        part.wait()
    subprocess.run([*command, tmp_path / "killed"], cwd=ROOT, check=True, capture_output=True)
    assert _losses(tmp_path / "killed") == _losses(tmp_path / "whole")
    assert [step for step, *_ in _losses(tmp_path / "killed")] == list(range(30))


def test_a_checkpoint_is_whole_or_not_there(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 4, model={"w": torch.ones(2)})
    (tmp_path / ".part-checkpoint-000008").mkdir()
    (tmp_path / ".part-checkpoint-000008" / "state.pt").write_bytes(b"half")
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert (found[0], found[1]["model"]["w"].tolist()) == (4, [1.0, 1.0])
    checkpoint.save(tmp_path, 8, model={"w": torch.zeros(2)})
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000008"]
    assert checkpoint.latest(tmp_path / "elsewhere") is None
    (tmp_path / "checkpoint-000009").mkdir()
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert found[0] == 8, "an empty folder is no checkpoint"


def test_learning_rate_by_hand() -> None:
    config = SupervisedConfig(num_steps=30, learning_rate=1e-3, num_warmup_steps=10, final_share=0.2)
    assert [learning_rate_share(step, config) for step in (0, 4, 9)] == pytest.approx([0.1, 0.5, 1.0])
    assert [learning_rate_share(step, config) for step in (10, 20, 30)] == pytest.approx([1.0, 0.6, 0.2])


def test_order_sees_each_row_once_an_epoch() -> None:
    order = Order(10, 4, seed=0)
    rows = [row for step in range(5) for row in order.batch(step)]
    assert sorted(rows[:10]) == sorted(rows[10:]) == list(range(10))
    assert rows[:10] != rows[10:]
    assert Order(10, 4, seed=0).batch(3) == order.batch(3), "whatever was asked before"
    assert Order(10, 4, seed=1).batch(0) != order.batch(0)
    with pytest.raises(ValueError, match="num_rows, batch_size: expected numbers > 0, got 0, 4"):
        Order(0, 4, seed=0)


def test_a_loss_that_is_no_number_stops_the_run(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 1)
    with pytest.raises(InputError, match=r"learning_rate: the gradient is not finite any more \(norm nan\)"):
        fit(
            model,
            lambda _: model(torch.full((1, 2), torch.nan)).mean(),
            run=tmp_path,
            config=SupervisedConfig(num_steps=2, learning_rate=1e-3),
        )
    assert checkpoint.latest(tmp_path) is None
