"""Model folders: what loads, and what is refused in one line before the first token."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from ser_fast.errors import ModelLoadError
from ser_fast.referee import RefereeConfig, VLMReferee
from ser_fast.referee.loading import single_tokens
from ser_fast.testing import SPECIAL_TOKENS, write_random_vlm
from tests.support.referee import make_clip, make_requests

SMALL = RefereeConfig(min_crop_side_px=56, max_frame_pixels=64 * 28 * 28, max_crop_pixels=16 * 28 * 28)


def test_levels_are_single_tokens_of_their_own() -> None:
    assert single_tokens(lambda text: [10 + int(text)], ["0", "1", "2"], "folder") == [10, 11, 12]
    with pytest.raises(ModelLoadError, match="folder: the level '4' is 2 tokens in this tokenizer, expected one"):
        single_tokens(lambda _: [1, 2], ["4"], "folder")
    with pytest.raises(ModelLoadError, match="folder: the level '1' is the same token as another in this tokenizer"):
        single_tokens(lambda _: [7], ["0", "1"], "folder")


@pytest.fixture
def folder(random_vlm: dict[str, Path], tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(random_vlm["qwen2_5_vl"], tmp_path / "model"))


def _edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _break_weights(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _edit_part(part: str, folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    config[part] |= changes
    (folder / "config.json").write_text(json.dumps(config))


def _add_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"stray": torch.ones(2)}, folder / "model.safetensors", metadata={"format": "pt"})


def _template(folder: Path, text: str) -> None:
    (folder / "chat_template.jinja").write_text(text)


def _pixels(folder: Path, **changes: object) -> None:
    _edit(folder / "preprocessor_config.json", **changes)


BREAKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), "not a model folder: config.json is missing"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "not a model folder: tokenizer.json or vocab.json is missing"),
    "no pixel settings": (lambda f: (f / "preprocessor_config.json").unlink(), "preprocessor_config.json is missing"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), r"\*.safetensors is missing"),
    "one weight missing": (_break_weights, "1 weights are missing or have another shape, lm_head.weight among them"),
    "cut weights": (lambda f: (f / "model.safetensors").write_bytes(b"\x10\x00"), "cannot be loaded: "),
    "another family": (lambda f: _edit(f / "config.json", model_type="llama"), "model family 'llama' is not supported"),
    "recurrent layers": (lambda f: _edit(f / "config.json", model_type="qwen3_5"), "model family 'qwen3_5' is not supported"),
    "config no JSON": (lambda f: (f / "config.json").write_text("{"), "config.json is not JSON"),
    "no chat template": (lambda f: (f / "chat_template.jinja").unlink(), "the tokenizer has no chat template"),
    "odd pixels": (lambda f: _pixels(f, resample=2), "preprocessor_config.json: resample: expected 3"),
    "config a folder": (lambda f: (f / "config.json").unlink() or (f / "config.json").mkdir(), "config.json: Is a directory"),
    "config of another encoding": (lambda f: (f / "config.json").write_bytes(b"\xff\xfe{"), "config.json is not JSON"),
    "another width": (lambda f: _edit_part("text_config", f, intermediate_size=96), "9 weights are missing or have another"),
    "a width of words": (lambda f: _edit_part("text_config", f, hidden_size="big"), "cannot be loaded: "),
    "more layers": (lambda f: _edit_part("text_config", f, num_hidden_layers=5), "cannot be loaded: "),
    "vision no object": (lambda f: _edit(f / "config.json", vision_config=[1]), "cannot be loaded: "),
    "unknown activation": (lambda f: _edit_part("text_config", f, hidden_act="nope"), "cannot be loaded: 'nope'"),
    "unknown dtype": (lambda f: _edit(f / "config.json", dtype="bogus"), "cannot be loaded: "),
    "quantized": (
        lambda f: _edit(f / "config.json", quantization_config={"quant_method": "awq", "bits": 4}),
        "cannot be loaded: ",
    ),
    "sliding window": (
        lambda f: _edit_part("text_config", f, layer_types=["sliding_attention"] * 3, sliding_window=64),
        "sliding-window attention is not supported",
    ),
    "one-dimensional positions": (
        lambda f: _edit_part("text_config", f, rope_parameters={"rope_type": "default", "rope_theta": 1e4}),
        "mrope_section: expected numbers that add up to 16, got None",
    ),
    "another patch": (lambda f: _pixels(f, patch_size=16), "json: patch_size: expected the model's 14, got 16"),
    "another depth": (lambda f: _pixels(f, temporal_patch_size=1), "json: temporal_patch_size: expected the model's 2, got 1"),
    "another merge": (lambda f: _pixels(f, merge_size=4), "json: merge_size: expected the model's 2, got 4"),
    "no deviation": (lambda f: _pixels(f, image_std=[0, 0, 0]), r"json: image_std: expected numbers > 0, got \(0, 0, 0\)"),
    "one mean": (lambda f: _pixels(f, image_mean=5), "json: image_mean: expected three numbers, got 5"),
    "no limits": (
        lambda f: _pixels(f, min_pixels=None, size=[1, 2]),
        "min_pixels: expected a whole number > 0, got None",
    ),
    "pixels no object": (lambda f: (f / "preprocessor_config.json").write_text("[]"), "preprocessor_config.json is missing"),
    "image token of text": (
        lambda f: _edit(f / "config.json", image_token_id=7),
        "image_token_id: expected a special token of the tokenizer, got 7",
    ),
    "token out of range": (
        lambda f: _edit(f / "config.json", vision_start_token_id=10**6),
        "vision_start_token_id: expected a special token of the tokenizer, got 1000000",
    ),
    "tokenizer no JSON": (lambda f: (f / "tokenizer.json").write_text("{nope"), "cannot be loaded: "),
    "tokenizer empty": (lambda f: (f / "tokenizer.json").write_text("{}"), "cannot be loaded: 'added_tokens'"),
    "template no template": (lambda f: _template(f, "{% for %}"), "the chat template cannot be used: "),
    "template that raises": (lambda f: _template(f, "{{ raise_exception('no system') }}"), "cannot be used: no system"),
    "template without the user": (lambda f: _template(f, "hi"), "shows the user's words 0 times, expected once"),
    "template without the system": (
        lambda f: _template(f, "{{ messages[1]['content'] }}"),
        "the chat template leaves out the system's words",
    ),
}


@pytest.mark.parametrize("case", BREAKS)
def test_folders_that_are_none_are_refused_in_one_line(case: str, folder: Path) -> None:
    spoil, message = BREAKS[case]
    spoil(folder)
    with pytest.raises(ModelLoadError, match=message) as caught:
        VLMReferee(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_weights_without_a_place_are_told(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    _add_weight(folder)
    with caplog.at_level(logging.WARNING, logger="ser_fast"):
        VLMReferee(folder)
    assert caplog.messages == [f"{folder}: 1 weights have no place in the model, stray among them"]


def test_remote_code_is_not_run(folder: Path) -> None:
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    _edit(folder / "config.json", auto_map={"AutoConfig": "evil.Config"})
    assert VLMReferee(folder).model.config.model_type == "qwen2_5_vl"


def _scores(folder: Path, **kwargs: Any) -> torch.Tensor:
    requests = make_requests(make_clip(), 4)
    return VLMReferee(folder, config=SMALL, **kwargs).score(requests).localization


def test_the_template_in_its_other_place(folder: Path) -> None:
    expected = _scores(folder)
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    assert torch.equal(_scores(folder), expected)


def test_a_thought_that_the_template_opens_is_closed(folder: Path) -> None:
    template = (folder / "chat_template.jinja").read_text()
    _template(folder, template.replace("assistant\\n'", "assistant\\n<think>\\n'"))
    referee = VLMReferee(folder)
    assert referee.tokenizer.decode(referee.prompts.tokens.trailer).endswith("assistant\n<think>\n\n</think>\n\n")


def test_half_precision_weights_in_shards(folder: Path) -> None:
    """Published checkpoints are bfloat16, in several files; on the CPU "auto" computes in float32 all the same."""
    import transformers

    expected = _scores(folder)
    model = transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.bfloat16)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="100KB")
    assert (folder / "model.safetensors.index.json").exists()
    torch.testing.assert_close(_scores(folder), expected, atol=0.05, rtol=0)
    assert VLMReferee(folder).model.dtype == torch.float32
    torch.testing.assert_close(_scores(folder, dtype=torch.bfloat16), expected, atol=0.1, rtol=0)


def test_the_flat_layout_of_published_configs(folder: Path) -> None:
    """Qwen2-VL and Qwen2.5-VL were published with the language model's settings at the top level."""
    expected = _scores(folder)
    config = json.loads((folder / "config.json").read_text())
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    text |= {"rope_theta": rope["rope_theta"], "rope_scaling": {"type": "mrope", "mrope_section": rope["mrope_section"]}}
    text = {key: value for key, value in text.items() if key not in ("model_type", "layer_types", "dtype")}
    (folder / "config.json").write_text(json.dumps(text | config))
    assert torch.equal(_scores(folder), expected)


def test_no_such_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelLoadError, match=r"no such folder$"):
        VLMReferee(tmp_path / "missing")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelLoadError, match="nobody/nothing: no such folder, and not to be had from the hub: "):
        VLMReferee("nobody/nothing")


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cuda:99", r"device: expected one that is there, got 'cuda:99' of [0-9]+ GPUs"),
        ("gpu", "device: expected cpu, cuda or cuda:N, got 'gpu'"),
    ],
)
def test_an_absent_device_is_an_error_not_a_cpu_run(device: str, message: str, random_vlm: dict[str, Path]) -> None:
    with pytest.raises(ModelLoadError, match=message):
        VLMReferee(random_vlm["qwen2_vl"], device=device)


def test_pixel_settings_in_the_newer_place(folder: Path) -> None:
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    size = {"shortest_edge": settings.pop("min_pixels"), "longest_edge": settings.pop("max_pixels")}
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": settings | {"size": size}}))
    spec = VLMReferee(folder).spec
    (folder / "preprocessor_config.json").unlink()
    assert VLMReferee(folder).spec == spec


def test_special_tokens_of_the_random_folders_are_those_of_qwen(tmp_path: Path) -> None:
    folder = write_random_vlm(tmp_path / "m", family="qwen3_vl")
    config = json.loads((folder / "config.json").read_text())
    added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    ids = {token["content"]: token["id"] for token in added}
    assert set(SPECIAL_TOKENS) <= set(ids)
    assert config["image_token_id"] == ids["<|image_pad|>"]
