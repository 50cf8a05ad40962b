"""What a policy is shown and asked: frames as images, each behind its time, the length of the video, and the question."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path

from ser_fast.errors import InputError
from ser_fast.ops import PatchSpec
from ser_fast.packing import Segment
from ser_fast.referee.loading import PromptTokens
from ser_fast.referee.views import View
from ser_fast.text import clean
from ser_fast.types import BoxConvention, Clip, CoordSpace

SYSTEM = (
    "You answer questions about videos. First think between <think> and </think>, and cite what you see as evidence: the"
    " object, its box as [x1,y1,x2,y2] in {unit}, and the second. Then give a short answer between <answer> and </answer>."
    " Example: <think><obj>woman in a coat</obj><box>[{example}]</box>at<t>9.00</t>s opens the door.</think><answer>the"
    " door</answer>"
)

UNITS: dict[BoxConvention, tuple[str, str]] = {
    "pixels": ("pixels of the frame as you see it", "36,12,61,80"),
    "norm1000": ("thousandths of the frame", "360,120,610,800"),
}
"""How the numbers of a box are explained, and those of the example."""


FILE = "policy_prompt.json"
"""In the folder of a model: the prompt that it was taught with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptConfig:
    """The wording; every text is formatted with the fields named in it.

    Raises:
        InputError: a text with another field or a stray brace, not one image a frame, times that cannot be read back.
    """

    system: str = SYSTEM
    """With {unit} and {example}."""
    frame: str = "Frame {number} at {time} s: {image}\n"
    length: str = "The video is {duration} s long.\n"
    time_format: str = ".2f"
    max_frame_pixels: int = 128 * 28 * 28

    def __post_init__(self) -> None:
        _check_text("system", self.system, unit="", example="")
        if _check_text("frame", self.frame, number=1, time="0", image="\0").count("\0") != 1:
            raise InputError(f"prompt.frame: expected {{image}} once, got {self.frame!r}")
        _check_text("length", self.length, duration="0")
        try:
            readable = abs(float(format(1234.5, self.time_format)) - 1234.5) <= 0.5
        except ValueError:
            readable = False
        if not readable:
            raise InputError(f"prompt.time_format: expected the format of a number such as .2f, got {self.time_format!r}")
        if self.max_frame_pixels < 1:
            raise InputError(f"prompt.max_frame_pixels: expected a number > 0, got {self.max_frame_pixels}")


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptOptions:
    """What is to differ from the prompt that a model was taught with."""

    system: str | None = None
    frame: str | None = None
    length: str | None = None
    time_format: str | None = None
    max_frame_pixels: int | None = None

    def over(self, taught: PromptConfig) -> PromptConfig:
        """The prompt with what is given here put into its place."""
        given = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        return dataclasses.replace(taught, **given)


def write_prompt(folder: Path, config: PromptConfig) -> None:
    """Puts the prompt beside the model that was taught with it."""
    (folder / FILE).write_text(json.dumps(dataclasses.asdict(config), indent=1) + "\n", encoding="utf-8")


def read_prompt(path: str | os.PathLike[str]) -> PromptConfig:
    """Reads a file of `write_prompt`.

    Raises:
        InputError: it is not such a file.
    """
    try:
        fields = json.loads(Path(path).read_text(encoding="utf-8"))
        kinds = {field.name: type(field.default) for field in dataclasses.fields(PromptConfig)}
        if not isinstance(fields, dict) or any(type(value) is not kinds.get(name) for name, value in fields.items()):
            raise InputError(f"expected an object with some of {', '.join(kinds)}, texts and a whole number, got {fields!r}")
        return PromptConfig(**fields)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{os.fspath(path)}: {error}") from error


def _check_text(name: str, text: str, **fields: object) -> str:
    """The text with fields filled in."""
    try:
        text.encode()  # no lone surrogates
        return text.format(**fields)
    except (LookupError, ValueError, AttributeError, TypeError) as error:
        names = ", ".join(f"{{{field}}}" for field in fields)
        raise InputError(f"prompt.{name}: expected no fields but {names}, got {text!r}") from error


def system_text(config: PromptConfig, convention: BoxConvention) -> str:
    """The system text with the model's own way to write boxes."""
    unit, example = UNITS[convention]
    return config.system.format(unit=unit, example=example)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClipPrompt:
    """All of a prompt that does not depend on the question."""

    segment: Segment
    views: tuple[View, ...]
    frame_times: tuple[float, ...]
    size: tuple[int, int]
    """(height, width) of the frames as the policy sees them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyPrompts:
    """Clips and questions -> token segments, for one model."""

    tokens: PromptTokens
    """With the chat template around `system_text`."""
    spec: PatchSpec
    convention: BoxConvention
    config: PromptConfig

    def clip(self, clip: Clip) -> ClipPrompt:
        """System text, frames with their times, length of the video."""
        height, width = clip.frame_hw
        size = self.spec.fit(height, width, max_pixels=self.config.max_frame_pixels)
        tokens = self.tokens
        ids, grids, views = list(tokens.header), [], []
        times = [format(time_s, self.config.time_format) for time_s in clip.times.tolist()]
        for k, time in enumerate(times):
            before, after = self.config.frame.format(number=k + 1, time=time, image="\0").split("\0")
            image = [tokens.image_start, *[tokens.image] * self.spec.num_tokens(*size), tokens.image_end]
            ids += [*tokens.encode(before), *image, *tokens.encode(after)]
            grids.append(self.spec.grid(*size))
            views.append(View(clip=clip, frame_idx=k, box=(0, 0, width, height), size=size))
        ids += tokens.encode(self.config.length.format(duration=format(clip.duration, self.config.time_format)))
        return ClipPrompt(
            segment=Segment(ids=tuple(ids), grids=tuple(grids)),
            views=tuple(views),
            frame_times=tuple(map(float, times)),
            size=size,
        )

    def question(self, text: str) -> tuple[int, ...]:
        """The question up to where the completion begins; it continues the clip's segment."""
        return (*self.tokens.encode(clean(text)), *self.tokens.trailer)

    def unit(self) -> str:
        """What the numbers of a box are."""
        return UNITS[self.convention][0]

    def coord_space(self, size: tuple[int, int]) -> CoordSpace:
        """What the numbers of a completion mean, given the size at which the frames were seen."""
        if self.convention == "norm1000":
            return CoordSpace(kind="norm1000")
        return CoordSpace(kind="pixels", height=size[0], width=size[1])
