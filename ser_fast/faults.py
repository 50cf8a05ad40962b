"""Why something is not scored, and whose doing it is. docs/faults.md tells it with an example each."""

from __future__ import annotations

from enum import StrEnum


class PolicyFault(StrEnum):
    """Why a claim scores 0: the policy's doing."""

    # The first ones in the order of `enum class Fault` in csrc/claims/scan.h, which finds them.
    MISSING_NAME = "missing_name"
    NESTED_TAG = "nested_tag"
    MISSING_BOX = "missing_box"
    MALFORMED_BOX = "malformed_box"
    TOO_MANY_BOXES = "too_many_boxes"
    MISSING_TIME = "missing_time"
    MALFORMED_TIME = "malformed_time"
    MISSING_UNIT = "missing_unit"
    NON_FINITE = "non_finite"
    IN_ANSWER = "in_answer"
    THINK_UNCLOSED = "think_unclosed"
    OUTSIDE_THINK = "outside_think"
    LONG_NAME = "long_name"
    INVERTED_BOX = "inverted_box"
    EMPTY_BOX = "empty_box"
    OUT_OF_FRAME = "out_of_frame"
    TOO_SMALL = "too_small"
    OUT_OF_CLIP = "out_of_clip"
    BEYOND_CAP = "beyond_cap"

    @property
    def counts(self) -> bool:
        """Whether the claim enters n. A claim in the wrong place is no evidence at all, neither good nor bad."""
        return self not in (PolicyFault.IN_ANSWER, PolicyFault.THINK_UNCLOSED, PolicyFault.OUTSIDE_THINK)


POLICY_FAULTS = tuple(PolicyFault)


class SystemFault(StrEnum):
    """Why a claim or a response cannot be judged: not the policy's doing. It leaves n, the group mean and the loss."""

    MEDIA = "media_error"
    FRAME_MISSING = "frame_missing"
    REFEREE = "referee_error"
