"""Claim tables -> text: the inverse of parsing."""

from __future__ import annotations

from ser_fast.numbers import shortest_float32
from ser_fast.types import ClaimBatch, CoordSpace


def render_claims(claims: ClaimBatch, *, coord_space: CoordSpace, frame_hw: tuple[int, int]) -> list[str]:
    """One text a response, its claims in the grammar one after another.

    Boxes go from pixels of the frame into coord_space: whole numbers for pixels and thousandths, four decimals for fractions.
    Parsing the text inside think tags gives the claims back, up to that rounding (which may make a very small box empty).
    """
    height, width = frame_hw
    scale_x, scale_y = (extent / side for extent, side in zip(coord_space.extent(), (width, height), strict=True))
    digits = 4 if coord_space.kind == "norm1" else None
    texts = []
    for r in range(len(claims.responses)):
        parts = []
        for c in claims.responses.rows(r):
            boxes = "".join(
                f"<box>[{', '.join(str(round(v * s, digits)) for v, s in zip(box, (scale_x, scale_y) * 2, strict=True))}]</box>"
                for box in claims.claim_boxes(c)
            )
            parts.append(f"<obj>{claims.name(c)}</obj>{boxes}at<t>{shortest_float32(float(claims.time_s[c]))}</t>s")
        texts.append(" ".join(parts))
    return texts
