"""What a run would do, before it does it: its settings, the tokens of a step, the memory that they need; or its prompt."""

from __future__ import annotations

import dataclasses
import json

import torch

from ser_fast.jsonl import read_questions
from ser_fast.rewards import get_reward
from trainer.frames import Frames
from trainer.order import Order
from trainer.policy import Policy
from trainer.presets import Grpo

GIB = 2**30


def preview(config: Grpo) -> str:
    """The prompt of the first question, or, for a dry run, the figures of the first step's questions.

    Raises:
        InputError: something that config names cannot be used.
        DecodeError: a video of the first step cannot be read.
    """
    questions = read_questions(config.data)
    get_reward(config.reward).check_questions(questions)
    policy = Policy.load(config.model, device=config.device, prompt=config.prompt)
    frames = Frames(config.videos, fps=config.fps, max_frames=config.max_frames)
    asked = [questions[i] for i in Order(len(questions), config.num_prompts, config.seed).batch(0)]
    if not config.dry_run:
        prompt = policy.show(policy.prompts.clip(frames.of(asked[0])), policy.prompts.question(asked[0].question))
        return f"boxes are written in {policy.prompts.unit()}\n{prompt}"

    lengths = [
        len(policy.prompts.clip(frames.of(question)).segment.ids) + len(policy.prompts.question(question.question))
        for question in asked
    ]
    weights = sum(p.numel() * p.element_size() for p in policy.model.parameters())
    moments = sum(p.numel() * 4 * (2 if p.dtype == torch.float32 else 3) for p in policy.model.parameters())
    rows = config.prompts_at_once * config.group_size
    cache = rows * (max(lengths) + config.max_new_tokens) * policy.cache_bytes()
    settings = json.dumps(dataclasses.asdict(config), default=str, indent=1)
    lines = {
        "questions": f"{len(questions)}, {config.num_prompts} a step, {config.group_size} completions each",
        "tokens of a prompt": f"{sum(lengths) / len(lengths):.0f} on average, {max(lengths)} at most, in the first step",
        "tokens of a step, at most": f"{sum(lengths) + config.num_prompts * config.group_size * config.max_new_tokens}",
        "weights": f"{weights / GIB:.2f} GiB, and as much for gradients"
        + (", and once more for the reference" if config.loss.kl else ""),
        "AdamW": f"{moments / GIB:.2f} GiB: two moments, and a copy of weights that are not float32, in float32",
        "keys and values while writing": f"{cache / GIB:.2f} GiB, if all completions get as long as they may",
        "not counted": "activations, the referee, decoded frames",
    }
    return "\n".join([settings, *(f"{name}: {value}" for name, value in lines.items())])
