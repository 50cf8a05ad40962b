"""A small world of moving shapes: real video files, questions with complete truth, and models that learn it on a CPU."""

from pathlib import Path

POLICY = Path(__file__).parent / "policy"
"""The shipped policy."""
