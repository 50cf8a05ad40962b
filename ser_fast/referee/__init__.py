"""Referees: models that check claims. The heavy ones are imported when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ser_fast.referee.prompt import RefereeConfig
from ser_fast.referee.protocol import Referee

if TYPE_CHECKING:
    from ser_fast.referee.vlm import VLMReferee

__all__ = ["Referee", "RefereeConfig", "VLMReferee"]


def __getattr__(name: str) -> Any:
    if name == "VLMReferee":
        from ser_fast.referee.vlm import VLMReferee

        return VLMReferee
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
