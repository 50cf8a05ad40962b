"""Model folders -> models: the family, the tokenizer and the pixel settings, checked against each other before the first token.

The one file of the library that knows transformers' loaders; policies and referees come through here alike.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ser_fast.errors import ModelLoadError
from ser_fast.numbers import is_whole_number
from ser_fast.ops import PatchSpec
from ser_fast.referee.attention import use_tree_attention
from ser_fast.types import BoxConvention

logger = logging.getLogger("ser_fast")

FAMILIES: dict[str, BoxConvention] = {"qwen2_vl": "norm1000", "qwen2_5_vl": "pixels", "qwen3_vl": "norm1000"}
"""config.json's model_type -> how that family writes boxes."""

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")

NEEDED_FILES = {
    "config.json": ["config.json"],
    "tokenizer.json or vocab.json": ["tokenizer.json", "vocab.json"],
    "preprocessor_config.json": ["preprocessor_config.json", "processor_config.json"],
    "*.safetensors": ["*.safetensors"],
}

Encode = Callable[[str], list[int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedVLM:
    """A model with all that belongs to it."""

    name: str
    """Folder or hub name it came from."""
    model: Any
    """In evaluation mode, on its device."""
    tokenizer: Any
    chat_template: str
    spec: PatchSpec

    @property
    def convention(self) -> BoxConvention:
        """How it writes boxes."""
        return FAMILIES[self.model.config.model_type]


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptTokens:
    """The parts of prompts that depend on the tokenizer."""

    encode: Encode
    """Text -> ids, special tokens not parsed."""
    header: tuple[int, ...]
    """Chat template up to the user's first word, system text included."""
    trailer: tuple[int, ...]
    """Chat template from the user's last word to where the answer is due."""
    image_start: int
    image: int
    image_end: int


def load_vlm(name: str | os.PathLike[str], *, device: torch.device, dtype: torch.dtype | str = "auto") -> LoadedVLM:
    """Loads a folder in the published layout (config.json, tokenizer, chat template, preprocessor_config.json, safetensors).

    Args:
        name: the folder, or a name on the Hugging Face hub.
        device: where the model goes.
        dtype: of the weights; "auto" is float32 on the CPU and the checkpoint's own elsewhere.

    Raises:
        ModelLoadError: no such folder, a family that is not supported, missing files or weights, parts that do not belong
            together; one line.
    """
    name = os.fspath(name)
    is_folder = Path(name).is_dir()
    if is_folder:
        _check_files(Path(name))
    elif not HUB_NAME.fullmatch(name):
        raise ModelLoadError(f"{name}: no such folder")

    import transformers

    options: dict[str, Any] = {"local_files_only": is_folder, "trust_remote_code": False}
    if dtype == "auto" and device.type == "cpu":
        dtype = torch.float32
    what = "cannot be loaded" if is_folder else "no such folder, and not to be had from the hub"
    with _reading(name, what):
        config = transformers.AutoConfig.from_pretrained(name, **options)
    _check_family(name, config)
    with _reading(name, what):
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **options)
        settings = _read_json(name, "preprocessor_config.json", is_folder) or _read_json(
            name, "processor_config.json", is_folder
        ).get("image_processor")
        template = tokenizer.chat_template or _read_json(name, "chat_template.json", is_folder).get("chat_template")
    if not isinstance(settings, dict):
        raise ModelLoadError(f"{name}: preprocessor_config.json is missing")
    if isinstance(template, dict):
        template = template.get("default")
    if not isinstance(template, str):
        raise ModelLoadError(f"{name}: the tokenizer has no chat template")
    try:
        spec = PatchSpec.from_config(settings)
    except ValueError as error:
        raise ModelLoadError(f"{name}: preprocessor_config.json: {error}") from error
    _check_parts(name, config, tokenizer, spec)
    with _reading(name, what), quiet_transformers():
        model, info = transformers.AutoModelForImageTextToText.from_pretrained(
            name,
            dtype=dtype,
            attn_implementation="sdpa",
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # told below, by name
            output_loading_info=True,
            **options,
        )
    bad = sorted(info["missing_keys"]) or sorted(key for key, *_ in info["mismatched_keys"])
    if bad:
        raise ModelLoadError(f"{name}: {len(bad)} weights are missing or have another shape, {bad[0]} among them")
    if info["unexpected_keys"]:
        unused = sorted(info["unexpected_keys"])
        logger.warning("%s: %d weights have no place in the model, %s among them", name, len(unused), unused[0])
    model = model.to(device).eval()
    use_tree_attention(model)
    return LoadedVLM(name=name, model=model, tokenizer=tokenizer, chat_template=template, spec=spec)


def checked_device(device: torch.device | str) -> torch.device:
    """A device asked for and absent is an error, not a CPU run."""
    try:
        checked = torch.device(device)
    except RuntimeError:
        checked = torch.device("meta")
    if checked.type not in ("cpu", "cuda"):
        raise ModelLoadError(f"device: expected cpu, cuda or cuda:N, got {str(device)!r}")
    if checked.type == "cuda" and (checked.index or 0) >= torch.cuda.device_count():
        raise ModelLoadError(f"device: expected one that is there, got {str(device)!r} of {torch.cuda.device_count()} GPUs")
    return checked


def plain_encoder(tokenizer: Any) -> Encode:
    """Text -> ids by the tokenizer's model alone: without its added tokens there is no special token to be parsed."""
    from tokenizers import Tokenizer

    settings = json.loads(tokenizer.backend_tokenizer.to_str())
    settings["added_tokens"] = []
    settings["post_processor"] = None
    settings["truncation"] = settings["padding"] = None
    plain = Tokenizer.from_str(json.dumps(settings))
    return lambda text: plain.encode(text, add_special_tokens=False).ids


def prompt_tokens(loaded: LoadedVLM, *, system: str) -> PromptTokens:
    """Those of a model under a system text. Errors as `chat_frame`."""
    header, trailer = chat_frame(loaded, system=system)
    config = loaded.model.config
    return PromptTokens(
        encode=plain_encoder(loaded.tokenizer),
        header=header,
        trailer=trailer,
        image_start=config.vision_start_token_id,
        image=config.image_token_id,
        image_end=config.vision_end_token_id,
    )


def single_tokens(encode: Encode, texts: Sequence[str], name: str) -> list[int]:
    """The one token of each text; all must differ."""
    tokens: list[int] = []
    for text in texts:
        ids = encode(text)
        if len(ids) != 1:
            raise ModelLoadError(f"{name}: the level {text!r} is {len(ids)} tokens in this tokenizer, expected one")
        if ids[0] in tokens:
            raise ModelLoadError(f"{name}: the level {text!r} is the same token as another in this tokenizer")
        tokens += ids
    return tokens


def chat_frame(loaded: LoadedVLM, *, system: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The chat template around the user's words, as ids. A thought that the template opens for the model is closed again."""
    mark = "\u2402\u2403"
    messages = [{"role": "system", "content": system}, {"role": "user", "content": mark}]
    with _reading(loaded.name, "the chat template cannot be used"):
        text = loaded.tokenizer.apply_chat_template(
            messages, chat_template=loaded.chat_template, tokenize=False, add_generation_prompt=True
        )
    parts = text.split(mark)
    if len(parts) != 2:
        raise ModelLoadError(f"{loaded.name}: the chat template shows the user's words {len(parts) - 1} times, expected once")
    header, trailer = parts
    if system not in header:
        raise ModelLoadError(f"{loaded.name}: the chat template leaves out the system's words")
    if trailer.rstrip().endswith("<think>"):
        trailer += "\n</think>\n\n"
    first, last = (tuple(loaded.tokenizer(part, add_special_tokens=False)["input_ids"]) for part in (header, trailer))
    return first, last


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """A library loads in silence: no progress bar and no report; what matters is an error or a warning of ours."""
    from transformers.utils import logging as their_logging

    shown, verbosity = their_logging.is_progress_bar_enabled(), their_logging.get_verbosity()
    their_logging.disable_progress_bar()
    their_logging.set_verbosity_error()
    try:
        yield
    finally:
        their_logging.set_verbosity(verbosity)
        if shown:
            their_logging.enable_progress_bar()


@contextlib.contextmanager
def _reading(name: str, what: str) -> Iterator[None]:
    """Whatever transformers stumbles over in files that are not ours is their fault: one line, the cause chained."""
    from huggingface_hub.errors import StrictDataclassError
    from jinja2 import TemplateError
    from safetensors import SafetensorError

    wrong_files = (OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError, ImportError)
    try:
        yield
    except (*wrong_files, SafetensorError, StrictDataclassError, TemplateError) as error:
        reason = " ".join(str(error).split())
        raise ModelLoadError(f"{name}: {what}: {reason}") from error


def _check_files(folder: Path) -> None:
    """What is missing, by name, before anything is loaded."""
    for what, patterns in NEEDED_FILES.items():
        if not any(any(folder.glob(pattern)) for pattern in patterns):
            raise ModelLoadError(f"{folder}: not a model folder: {what} is missing")
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelLoadError(f"{folder}: config.json is not JSON: {error}") from error
    except OSError as error:
        raise ModelLoadError(f"{folder}: config.json: {error.strerror}") from error
    family = config.get("model_type") if isinstance(config, dict) else None
    if family not in FAMILIES:
        raise ModelLoadError(f"{folder}: model family {family!r} is not supported, expected {', '.join(FAMILIES)}")


def _check_family(name: str, config: Any) -> None:
    if config.model_type not in FAMILIES:
        raise ModelLoadError(f"{name}: model family {config.model_type!r} is not supported, expected {', '.join(FAMILIES)}")
    if "sliding_attention" in (getattr(config.text_config, "layer_types", None) or ()):
        raise ModelLoadError(f"{name}: sliding-window attention is not supported: a tree mask knows no window")


def _check_parts(name: str, config: Any, tokenizer: Any, spec: PatchSpec) -> None:
    """That model, tokenizer and pixel settings belong to each other."""
    vision, text = config.vision_config, config.text_config
    for ours, theirs in (("patch_size",) * 2, ("temporal_patch_size",) * 2, ("merge_size", "spatial_merge_size")):
        expected = getattr(vision, theirs)
        if getattr(spec, ours) != expected:
            got = getattr(spec, ours)
            raise ModelLoadError(f"{name}: preprocessor_config.json: {ours}: expected the model's {expected}, got {got}")
    for key in ("image_token_id", "vision_start_token_id", "vision_end_token_id"):
        token = getattr(config, key)
        if not is_whole_number(token) or token not in tokenizer.added_tokens_decoder or token >= text.vocab_size:
            raise ModelLoadError(f"{name}: {key}: expected a special token of the tokenizer, got {token}")
    rope = getattr(text, "rope_parameters", None) or {}
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    if 2 * sum(rope.get("mrope_section") or ()) != head_dim:
        section = rope.get("mrope_section")
        raise ModelLoadError(f"{name}: mrope_section: expected numbers that add up to {head_dim // 2}, got {section}")


def _read_json(name: str, file: str, is_folder: bool) -> dict[str, Any]:
    """The object in a JSON file; empty where there is no such file or no object in it."""
    from transformers.utils.hub import cached_file

    path = cached_file(name, file, local_files_only=is_folder, _raise_exceptions_for_missing_entries=False)
    content = json.loads(Path(path).read_text(encoding="utf-8")) if path is not None else {}
    return content if isinstance(content, dict) else {}
