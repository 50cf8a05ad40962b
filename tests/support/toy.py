"""Things and scenes of the toy world, made by hand."""

from __future__ import annotations

from trainer.toy.world import Scene, Thing, make_scene


def make_toy_thing(**changes: object) -> Thing:
    """A red circle in the upper left quarter of the frame, in view from 1 s to 4 s."""
    fields = {
        "color": "red",
        "shape": "circle",
        "size": "small",
        "side": 0.5,
        "appears": 1.0,
        "vanishes": 4.0,
        "begin": (0.25, 0.25),
        "end": (0.25, 0.25),
    }
    return Thing(**(fields | changes))  # type: ignore[arg-type]


def make_toy_scene(*things: Thing) -> Scene:
    """One frame a second."""
    return Scene(
        id="x",
        things=things,
        rate=(1, 1),
        container="mp4",
        codec="libx264",
        offset_s=0.0,
        background_seed=make_scene("validation", 0, 0).background_seed,
    )
