"""The command `ser-train`: one preset a run, every field an option."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

from ser_fast.errors import InputError
from trainer.presets import Sft, SftToy


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a preset; returns the exit code: 0, or 2 for input that cannot be used, with one line on standard error."""
    import tyro

    presets = Annotated[Sft, tyro.conf.subcommand("sft")] | Annotated[SftToy, tyro.conf.subcommand("sft-toy")]
    config = tyro.cli(presets, prog="ser-train", description="Train a policy.", args=argv)
    try:
        if isinstance(config, SftToy):
            _sft_toy(config)
        else:
            _sft(config)
    except InputError as error:
        print(f"ser-train: {error}", file=sys.stderr)
        return 2
    return 0


def _sft(config: Sft) -> None:
    from trainer.policy import Policy, write_folder
    from trainer.progress import Progress
    from trainer.sft import Examples, read_examples
    from trainer.supervised import fit

    examples = read_examples(config.data)
    policy = Policy.load(config.model, device=config.device, prompt=config.prompt)
    batches = Examples(
        policy,
        examples,
        config.videos,
        fps=config.fps,
        max_frames=config.max_frames,
        num_clips=config.num_clips,
        seed=config.seed,
    )
    if config.show_prompt:
        print(batches.show(0))
        return
    print(f"boxes are written in {policy.prompts.unit()}")
    progress = Progress()
    fit(
        policy.model,
        batches.loss_at,
        run=config.run,
        config=config.steps,
        on_step=lambda step, loss: progress("sft", step, config.steps.num_steps, loss),
    )
    print(write_folder(config.run / "model", policy.model, like=config.model))


def _sft_toy(config: SftToy) -> None:
    from trainer.policy import Policy
    from trainer.progress import Progress
    from trainer.toy.evaluate import ask
    from trainer.toy.lessons import seen_clip
    from trainer.toy.models import PROMPT, new_policy
    from trainer.toy.recipe import SEED, make_policy, write_data

    scenes, held_out = write_data(config.run)
    if config.show_prompt:
        policy = Policy.load(new_policy(config.run / "policy-start", seed=SEED), prompt=PROMPT)
        question = ask(held_out)[0]
        clip = policy.prompts.clip(seen_clip(config.run / "held-out", question.scene))
        print(policy.show(clip, policy.prompts.question(question.question)))
        return
    print(make_policy(config.run, scenes, on_step=Progress()))


if __name__ == "__main__":
    sys.exit(main())
