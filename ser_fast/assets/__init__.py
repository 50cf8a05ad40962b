"""Files that ship with the package."""

from pathlib import Path

TOY_REFEREE = Path(__file__).parent / "toy_referee"
"""A referee for the toy world of `trainer.toy`, in the published layout: two million parameters."""
