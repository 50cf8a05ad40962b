"""Reinforcement by evidence, read from top to bottom: answer, check, compare within the group, learn."""

from __future__ import annotations

import functools
import itertools
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ser_fast.errors import InputError
from ser_fast.jsonl import read_questions, rollout_to_json, write_json_lines, write_text
from ser_fast.pipeline import score_rollouts
from ser_fast.referee import Referee, VLMReferee
from ser_fast.rewards import RewardConfig, get_reward
from ser_fast.types import Question, ScoredRollouts
from trainer import checkpoint
from trainer.evaluate import mean, measure
from trainer.frames import Frames
from trainer.learn import add_gradient, groups_not_valid, lessons_of
from trainer.metrics import Board, Metrics
from trainer.optimizer import MasterAdamW
from trainer.order import Order
from trainer.policy import Policy, write_folder
from trainer.presets import Grpo
from trainer.progress import Progress
from trainer.report import write_report
from trainer.rollout import Group, roll_out
from trainer.run import open_run, stop_on_sigterm
from trainer.supervised import clip_gradient
from trainer.watch import figures_of_step

MAX_STEPS = 1_000_000
"""Seeds of a run lie so far apart from those of the next."""
NUM_SHOWN = 12
"""Held-out answers on the page of the report."""
TOLD = ("reward", "answer", "relevance", "localization", "claims")
"""What a run tells of each step while it goes."""
STAGES = ("generate", "score", "learn")
COLD_STEPS, COLD_SHARE = 4, 0.05
"""A policy of which so few completions cite anything in its first steps has nothing that reinforcement could prefer; and when
nothing can be scored for so many steps, at any time, something is broken."""


def train(config: Grpo, *, referee: Referee | None = None) -> Path:
    """Runs from where the folder was left to the end; returns the folder of the trained policy, or of the run if it was
    stopped by SIGTERM.

    Args:
        config: of the run.
        referee: judges instead of the one that config names.

    Raises:
        InputError: something that config names cannot be used, or the policy cites nothing.
    """
    reward = get_reward(config.reward)
    questions = read_questions(config.data)
    reward.check_questions(questions)
    held_out = read_questions(config.held_out) if config.held_out is not None else []
    for name, rows in (("data", questions), ("held_out", held_out)):
        if twice := [id for id, num in Counter(question.id for question in rows).items() if num > 1]:
            raise InputError(f"{name}: two questions have the id {twice[0]!r}")
    policy = Policy.load(config.model, device=config.device, prompt=config.prompt)
    reference = Policy.load(config.model, device=config.device, prompt=config.prompt) if config.loss.kl else None
    referee = referee or VLMReferee(config.referee, device=config.device)
    frames_of = functools.partial(Frames, fps=config.fps, max_frames=config.max_frames)
    shown_videos = (config.held_out_videos if held_out else None) or config.videos
    frames, held_out_frames = frames_of(config.videos), frames_of(shown_videos)
    with (
        open_run(config, may_differ=("num_steps",)) as folder,
        stop_on_sigterm() as stop,
        Progress() as progress,
    ):
        optimizer = MasterAdamW(policy.model.parameters(), learning_rate=config.learning_rate)
        first = checkpoint.resume(folder, model=policy.model, optimizer=optimizer)
        if first > config.num_steps:
            raise InputError(f"num_steps: the run has come to step {first} already, expected as many, got {config.num_steps}")
        metrics, evaluations = Metrics(folder, first_step=first), Metrics(folder, first_step=first, name="evaluations.jsonl")
        board = Board(folder, first_step=first)
        order = Order(len(questions), config.num_prompts, config.seed)

        def look(step: int) -> None:
            """Measures the policy on the held-out questions."""
            figures = measure(answers(policy, held_out, held_out_frames, config)).to_json()
            evaluations.write(step, **figures)
            board.write(step, "held out", figures)

        for step in range(first, config.num_steps):
            if held_out and step % config.evaluate_every == 0:
                look(step)

            clock = [time.perf_counter()]
            asked, unreadable = frames.readable([questions[i] for i in order.batch(step)])
            groups = roll_out(
                policy,
                [question for question, _ in asked],
                [clip for _, clip in asked],
                num=config.group_size,
                max_new_tokens=config.max_new_tokens,
                temperature=config.temperature,
                seed=config.seed * MAX_STEPS + step,
                batch_size=config.prompts_at_once,
            )
            clock.append(time.perf_counter())
            scored = score(groups, referee, reward)
            clock.append(time.perf_counter())
            lessons = lessons_of(groups, scored.table)
            learnt = add_gradient(
                policy,
                lessons,
                config.loss,
                temperature=config.temperature,
                groups_at_once=config.prompts_at_once,
                reference=reference,
            )
            norm = clip_gradient(policy.model, config.clip_norm)
            if lessons:
                optimizer.step(config.learning_rate * min(1.0, (step + 1) / max(1, config.num_warmup_steps)))
            clock.append(time.perf_counter())

            figures = figures_of_step(groups, scored) | {
                "loss": learnt.loss,
                "clipped": learnt.clipped,
                "kl": learnt.kl,
                "gradient_norm": norm if lessons else None,
                "groups_without_variance": len(groups) - len(lessons) - groups_not_valid(groups, scored.table),
                "groups_not_valid": groups_not_valid(groups, scored.table),
                "unreadable": len(unreadable),
                "seconds": dict(zip(STAGES, (b - a for a, b in itertools.pairwise(clock)), strict=True)),
            }
            write_rollouts(folder, f"step_{step}", scored)
            metrics.write(step, **figures)
            board.write(step, "train", figures)
            progress("grpo", step, config.num_steps, **{name: figures.get(name) for name in TOLD})
            reasons = (*map(str, unreadable), *scored.reasons)
            _check(metrics.rows(), reasons, at_end=step + 1 == config.num_steps)
            if stop.asked or (step + 1) % config.save_every == 0 or step + 1 == config.num_steps:
                checkpoint.save(folder, step + 1, model=policy.model.state_dict(), optimizer=optimizer.state_dict())
            if stop.asked:
                return folder
        if held_out:
            look(config.num_steps)
            shown = list(answers(policy, held_out[:NUM_SHOWN], held_out_frames, config))
            write_rollouts(folder, "held_out", score(shown, referee, reward))
        model = write_folder(folder / "model", policy.model, like=policy.name, prompt=policy.prompts.config)
        write_report(folder, shown_videos)
        return model


def score(groups: Sequence[Group], referee: Referee, reward: RewardConfig) -> ScoredRollouts:
    """Claims are judged in the frames that the policy saw."""
    return score_rollouts(
        [rollout for group in groups for rollout in group.rollouts],
        clips=[group.clip for group in groups for _ in group.rollouts],
        referee=referee,
        reward=reward,
    )


def answers(policy: Policy, questions: Sequence[Question], frames: Frames, config: Grpo) -> Iterator[Group]:
    """What the policy answers greedily, as many prompts at once as the config allows."""
    for first in range(0, len(questions), config.prompts_at_once):
        asked = questions[first : first + config.prompts_at_once]
        clips = [frames.of(question) for question in asked]
        yield from roll_out(policy, asked, clips, num=1, max_new_tokens=config.max_new_tokens, temperature=0.0)


def write_rollouts(folder: Path, name: str, scored: ScoredRollouts) -> None:
    """`rollouts/<name>.jsonl` and `scored/<name>.jsonl`: `ser-fast score` and `render` take them as they are."""
    for kind in ("rollouts", "scored"):
        (folder / kind).mkdir(exist_ok=True)
    write_json_lines(folder / "rollouts" / f"{name}.jsonl", map(rollout_to_json, scored.rollouts))
    lines = scored.to_json_lines(timings=False)
    write_text(folder / "scored" / f"{name}.jsonl", "".join(f"{line}\n" for line in lines))


def _check(rows: Sequence[Mapping[str, Any]], reasons: Iterable[str | None], *, at_end: bool) -> None:
    """Raises InputError where going on would teach nothing."""
    last = rows[-COLD_STEPS:]
    dead = [row["not_scored"] == 1 or row["not_valid"] in (1, None) for row in last]
    if all(dead) and (len(dead) == COLD_STEPS or at_end):
        reason = next((reason for reason in reasons if reason), "no reason is known")
        raise InputError(f"nothing could be scored since step {last[0]['step']}: {reason}")
    if len(rows) == COLD_STEPS:
        share = mean([row["with_claims"] for row in rows if row["with_claims"] is not None])
        if share < COLD_SHARE:
            raise InputError(
                f"model: {share:.1%} of the completions of the first {COLD_STEPS} steps cite evidence, too few to learn from:"
                " begin with the supervised stage (ser-train sft)"
            )
