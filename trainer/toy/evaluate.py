"""What, when and where of a policy's claims on held-out clips, against the simulator's truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ser_fast.claims import parse_claims
from ser_fast.jsonl import question_from_json, write_json_lines
from ser_fast.types import ClaimBatch, Clip, ParseReport, Question
from trainer.evaluate import Figures, evidence_figures
from trainer.policy import Policy
from trainer.toy.files import question_line
from trainer.toy.tasks import question_about
from trainer.toy.world import SIDE_PX, Scene, Thing

MAX_NEW_TOKENS = 112


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One held-out question."""

    scene: Scene
    thing: Thing
    attribute: str
    """"color" or "shape"."""

    @property
    def question(self) -> str:
        """As it is put to the policy."""
        return question_about(self.thing, self.attribute)

    @property
    def answer(self) -> str:
        """The one right word."""
        return str(getattr(self.thing, self.attribute))

    @property
    def line(self) -> dict[str, Any]:
        """As it stands in `questions.jsonl`."""
        return question_line(self.scene, self.thing, self.attribute)

    @property
    def row(self) -> Question:
        """As it is read from there."""
        return question_from_json(self.line)


def ask(scenes: Sequence[Scene]) -> list[Asked]:
    """One question a scene: its things and attributes take turns."""
    return [
        Asked(scene=scene, thing=scene.things[i % len(scene.things)], attribute=("color", "shape")[i // len(scene.things) % 2])
        for i, scene in enumerate(scenes)
    ]


def write_asked(path: Path, scenes: Sequence[Scene]) -> None:
    """The question lines of `ask`."""
    write_json_lines(path, (question.line for question in ask(scenes)))


def complete(
    policy: Policy, clips: Sequence[Clip], questions: Sequence[str], *, temperature: float = 0.0, seed: int = 0
) -> list[str]:
    """Free-running completions, each of a question on its clip; greedy unless there is a temperature."""
    prompts = [
        (policy.prompts.clip(clip), policy.prompts.question(question)) for clip, question in zip(clips, questions, strict=True)
    ]
    completions = policy.generate(prompts, max_new_tokens=MAX_NEW_TOKENS, temperature=temperature, seed=seed)
    return [completion.text for completion in completions]


def read_claims(policy: Policy, completions: Sequence[str], durations: Sequence[float]) -> tuple[ClaimBatch, ParseReport]:
    """The claims of completions, boxes in pixels of the world's frames."""
    size = policy.spec.fit(SIDE_PX, SIDE_PX, max_pixels=policy.prompts.config.max_frame_pixels)
    return parse_claims(
        completions, coord_space=policy.prompts.coord_space(size), frame_hw=(SIDE_PX, SIDE_PX), duration_s=list(durations)
    )


def measure(policy: Policy, asked: Sequence[Asked], completions: Sequence[str], durations: Sequence[float]) -> Figures:
    """The figures of completions."""
    claims, report = read_claims(policy, completions, durations)
    return evidence_figures(
        [question.row for question in asked],
        claims,
        report,
        frame_hw=[(SIDE_PX, SIDE_PX)] * len(asked),
        truncated=["</answer>" not in text for text in completions],
    )
