"""Evidence claims in model text."""

from ser_fast.claims.parse import parse_claims
from ser_fast.claims.render import render_claims

__all__ = ["parse_claims", "render_claims"]
