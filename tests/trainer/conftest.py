"""A small policy that knows nothing, and clips of noise."""

from __future__ import annotations

from pathlib import Path

import pytest

from ser_fast.testing import write_random_vlm
from trainer.policy import Policy
from trainer.toy.tokenizer import toy_tokenizer


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers, images of nine tokens."""
    folder = tmp_path_factory.mktemp("policy")
    return write_random_vlm(
        folder, hidden_size=64, num_layers=2, vision_size=32, vision_layers=2, max_tokens=9, tokenizer=toy_tokenizer()
    )


@pytest.fixture
def policy(tiny_folder: Path) -> Policy:
    return Policy.load(tiny_folder)
