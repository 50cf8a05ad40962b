"""The command `ser-train`: one preset a run, every field an option."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ser_fast.errors import DecodeError, InputError
from trainer.presets import Grpo, Sft, SftToy, Toy

if TYPE_CHECKING:
    from trainer.policy import Policy


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a preset; returns the exit code: 0, or with one line on standard error 2 for input that cannot be used and 130
    for an interrupt."""
    try:
        config = _parse(argv)
        if isinstance(config, Toy):
            _toy(config)
        elif isinstance(config, Grpo):
            _grpo(config)
        elif isinstance(config, Sft):
            _sft(config)
        else:
            _sft_toy(config)
    except (InputError, DecodeError) as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.filename or 'output'}: {error.strerror or error}")
    except KeyboardInterrupt:
        print("ser-train: interrupted", file=sys.stderr)
        return 130
    return 0


def _parse(argv: Sequence[str] | None) -> Toy | Grpo | Sft | SftToy:
    """Raises InputError with what the parser would show as a box."""
    import tyro

    presets = (
        Annotated[Toy, tyro.conf.subcommand("toy")]
        | Annotated[Grpo, tyro.conf.subcommand("grpo")]
        | Annotated[Sft, tyro.conf.subcommand("sft")]
        | Annotated[SftToy, tyro.conf.subcommand("sft-toy")]
    )
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(presets, prog="ser-train", description="Train a policy.", args=argv)
    except SystemExit as stop:
        if not stop.code:
            raise
    raise InputError(_first_part(said.getvalue()))


def _first_part(box: str) -> str:
    """What stands between the title of a box of text and its first rule, as one line."""
    rows = [row.strip(" │") for row in box.splitlines()[1:]]
    parts = " ".join("" if set(row) <= set("─-╭╮╰╯") else row for row in rows).split("  ")
    message = next((part for part in parts if part.strip()), "arguments: expected a preset").strip()
    return re.sub(r"^(Error parsing )?((__tyro-dummy-inner__[^ :]*|Toy|Grpo|Sft|SftToy): )?", "", message)


def _toy(config: Toy) -> None:
    import torch

    from trainer.toy.evaluate import write_world

    torch.set_num_threads(1)  # more gain nothing on models so small, and lose much where cores are shared
    write_world(config)
    _grpo(config)


def _grpo(config: Grpo) -> None:
    from trainer.loop import train

    if config.show_prompt or config.dry_run:
        from trainer.preview import preview

        print(preview(config))
    else:
        print(train(config))


def _sft(config: Sft) -> None:
    from trainer.policy import Policy, write_folder
    from trainer.progress import Progress
    from trainer.run import open_run
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
    print(f"boxes are written in {policy.prompts.unit()}")
    if config.show_prompt:
        print(batches.show(0))
        return
    with open_run(config), Progress() as progress:
        fit(
            policy.model,
            batches.loss_at,
            run=config.run,
            config=config.steps,
            on_step=lambda step, loss: progress("sft", step, config.steps.num_steps, loss),
        )
        print(write_folder(config.run / "model", policy.model, like=policy.name, prompt=policy.prompts.config))


def _sft_toy(config: SftToy) -> None:
    from trainer.policy import Policy
    from trainer.progress import Progress
    from trainer.toy import POLICY
    from trainer.toy.recipe import make_policy, write_data

    shipped = Policy.load(POLICY)
    print(f"boxes are written in {shipped.prompts.unit()}")
    if config.show_prompt:
        print(_toy_prompt(shipped))
        return
    scenes, _ = write_data(config.run)
    with Progress() as progress:
        folder = make_policy(config.run, scenes, on_step=progress)
    print(folder)


def _toy_prompt(policy: Policy) -> str:
    """What the toy policy is shown of one clip."""
    from trainer.toy.evaluate import ask
    from trainer.toy.files import write_split
    from trainer.toy.lessons import seen_clip

    with tempfile.TemporaryDirectory() as folder:
        (question,) = ask(write_split(folder, split="held-out", seed=0, num_clips=1))
        clip = policy.prompts.clip(seen_clip(Path(folder), question.scene))
    return policy.show(clip, policy.prompts.question(question.row.question))


def _fail(text: str) -> int:
    print(f"ser-train: {' '.join(text.split())}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
