"""What ships with the library: a referee of a toy world of coloured shapes, small enough for a CPU."""

from __future__ import annotations

from pathlib import Path

TOY_REFEREE = Path(__file__).parent / "toy_referee"
"""A Qwen2.5-VL folder of about two million parameters; `--referee toy`. It knows coloured shapes and nothing else."""
