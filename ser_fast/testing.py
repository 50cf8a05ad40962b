"""Small stand-ins for tests and demos without downloads: random-weight model folders and synthetic clips."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
ORDINARY_ADDED_TOKENS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
"""Real Qwen tokenizers have such: added, but not special."""

CHAT_TEMPLATE = """{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' -}}
{%- if message['content'] is string -%}
{{- message['content'] -}}
{%- else -%}
{%- for part in message['content'] -%}
{%- if part['type'] == 'image' -%}
{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- else -%}
{{- part['text'] -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""


def write_random_vlm(
    folder: str | os.PathLike[str],
    *,
    family: str = "qwen2_5_vl",
    seed: int = 0,
    hidden_size: int = 64,
    num_layers: int = 3,
    vision_size: int = 32,
    vision_layers: int = 2,
    gain: float = 1.0,
    rope_theta: float = 10000.0,
    max_tokens: int = 1280,
    window: int = 4,
    tokenizer: Any = None,
) -> Path:
    """Writes a random-weight model folder in the published layout; it loads like a real checkpoint and knows nothing.

    Args:
        folder: is made; existing files are overwritten.
        family: "qwen2_vl", "qwen2_5_vl" or "qwen3_vl".
        seed: of the weights.
        hidden_size: of the language model, a multiple of 64; vision_size: of the vision tower, a multiple of 16.
        num_layers, vision_layers: depth of the two.
        gain: weights are drawn with std gain / sqrt(fan in): larger values make bolder answers.
        rope_theta: base of the rotary positions: the smaller, the further apart near positions.
        max_tokens: of an image.
        window: patches a side within which all but the last layer of a Qwen2.5-VL vision tower attend.
        tokenizer: a transformers tokenizer with Qwen's special tokens; byte-level without merges if not given.

    Returns:
        The folder.
    """
    import torch
    import transformers

    from ser_fast.referee.loading import quiet_transformers

    folder = Path(folder)
    tokenizer = tokenizer if tokenizer is not None else byte_tokenizer()
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}
    config_class = {
        "qwen2_vl": transformers.Qwen2VLConfig,
        "qwen2_5_vl": transformers.Qwen2_5_VLConfig,
        "qwen3_vl": transformers.Qwen3VLConfig,
    }[family]
    patch = 16 if family == "qwen3_vl" else 14
    head_dim, vision_heads = 32, vision_size // 16
    vision: dict[str, Any] = {"depth": vision_layers, "num_heads": vision_heads, "patch_size": patch}
    if family == "qwen2_vl":
        vision |= {"embed_dim": vision_size, "hidden_size": hidden_size}
    else:
        vision |= {"hidden_size": vision_size, "intermediate_size": 2 * vision_size, "out_hidden_size": hidden_size}
    if family == "qwen2_5_vl":
        vision |= {"window_size": window * patch, "fullatt_block_indexes": [vision_layers - 1]}
    if family == "qwen3_vl":
        vision |= {"num_position_embeddings": 64, "deepstack_visual_indexes": [0]}
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": hidden_size,
        "intermediate_size": 2 * hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": hidden_size // head_dim,
        "num_key_value_heads": hidden_size // head_dim // 2,
        "max_position_embeddings": 32768,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": rope_theta,
            "mrope_section": [6, 5, 5] if family == "qwen3_vl" else [4, 6, 6],
        },
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
    }
    if family == "qwen3_vl":
        text |= {"head_dim": head_dim}
    config = config_class(
        text_config=text,
        vision_config=vision,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModelForImageTextToText.from_config(config)
        for parameter in model.parameters():
            if parameter.ndim > 1:
                fan_in = math.prod(parameter.shape[1:])
                torch.nn.init.normal_(parameter, std=gain / math.sqrt(fan_in))
    with quiet_transformers():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    mean, std = ((0.5,) * 3, (0.5,) * 3) if family == "qwen3_vl" else (None, None)
    settings = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": True,
        "do_convert_rgb": True,
        "resample": 3,
        "rescale_factor": 1 / 255,
        "image_mean": mean or (0.48145466, 0.4578275, 0.40821073),
        "image_std": std or (0.26862954, 0.26130258, 0.27577711),
        "patch_size": patch,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "min_pixels": 4 * (2 * patch) ** 2,
        "max_pixels": max_tokens * (2 * patch) ** 2,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")
    return folder


def byte_tokenizer(corpus: Sequence[str] = ()) -> Any:
    """A transformers tokenizer with Qwen's special tokens and chat template: of single bytes, and of the words of a corpus."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    if corpus:
        trainer = trainers.BpeTrainer(vocab_size=4096, min_frequency=1, initial_alphabet=alphabet, show_progress=False)
        backend.train_from_iterator(corpus, trainer)
    return qwen_tokenizer(backend)


def qwen_tokenizer(backend: Any, *, added: Sequence[str] = ORDINARY_ADDED_TOKENS) -> Any:
    """A `tokenizers.Tokenizer` as a transformers tokenizer with Qwen's special tokens, chat template and added tokens."""
    import transformers
    from tokenizers import AddedToken

    backend.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    backend.add_tokens([AddedToken(token, special=False) for token in added])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
    )


def moving_square(
    num_frames: int, *, height: int = 120, width: int = 160, seed: int = 0
) -> tuple[Any, Sequence[tuple[int, int, int, int]]]:
    """uint8[F,H,W,3] frames of a red square that crosses a still, noisy background, and its box in each."""
    import numpy as np

    rng = np.random.default_rng(seed)
    side = height // 4
    frames = np.repeat(rng.integers(60, 140, (1, height, width, 3), dtype=np.uint8), num_frames, axis=0)
    boxes = []
    for i in range(num_frames):
        x = round(i * (width - side) / max(1, num_frames - 1))
        y = (height - side) // 2
        frames[i, y : y + side, x : x + side] = (220, 40, 30)
        boxes.append((x, y, x + side, y + side))
    return frames, boxes


def write_clip(
    path: str | os.PathLike[str],
    frames: Any,
    *,
    codec: str = "libx264",
    fps: float = 30.0,
    pixel_format: str = "yuv420p",
    options: dict[str, str] | None = None,
) -> Path:
    """Encodes uint8[F,H,W,3] frames into a file; its ending decides the container."""
    from fractions import Fraction

    import av

    with av.open(os.fspath(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=Fraction(fps).limit_denominator(10_000), options=options or {})
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = pixel_format
        for image in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    return Path(path)
