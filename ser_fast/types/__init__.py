"""The data that crosses packages. Importing it imports neither torch nor numpy.

Tables are struct of arrays; ragged data carries its offsets twice, on the device and on the host, so that no size is ever
read back from a device. Letters: R responses, C claims, B boxes, F frames.
"""

from ser_fast.types.claims import ClaimBatch, ParseReport, RejectedClaim
from ser_fast.types.media import MAX_SIDE, Box, BoxConvention, Clip, ClipInfo, CoordSpace, hull
from ser_fast.types.rollouts import Footage, Question, Rollout, Sampling, Task
from ser_fast.types.scores import RefereeRequest, RefereeScores, RewardTable, ScoredRollouts
from ser_fast.types.tables import Segments

__all__ = [
    "MAX_SIDE",
    "Box",
    "BoxConvention",
    "ClaimBatch",
    "Clip",
    "ClipInfo",
    "CoordSpace",
    "Footage",
    "ParseReport",
    "Question",
    "RefereeRequest",
    "RefereeScores",
    "RejectedClaim",
    "RewardTable",
    "Rollout",
    "Sampling",
    "ScoredRollouts",
    "Segments",
    "Task",
    "hull",
]
