"""What a scenario's user should know before a run: choices that are allowed and easily overlooked.

`edgesim run`, `validate` and `cost` say these lines. None of them changes a result.
"""

from __future__ import annotations

from edgesim.scenario.gossip import GradientPushGossip, RandomKCompressor, TopKCompressor
from edgesim.scenario.schema import Scenario

_EIGHT_BIT_NORMS = ("range_evonorm", "range_batch")


def precision_notices(scenario: Scenario) -> list[str]:
    """What `model.precision: int8` leaves in fp32, and what it makes of messages."""
    model, notices = scenario.model, []
    if model.precision == "int8" and model.norm_used not in _EIGHT_BIT_NORMS:
        notices.append(
            f"model.norm: {model.norm_used} computes in fp32 between the 8-bit layers of "
            "model.precision: int8; with model.norm: null it is range_evonorm, in 8 bits"
        )
    if model.precision == "int8" and _values_follow_the_model(scenario):
        notices.append(
            "messages carry 8-bit values because model.precision is int8; "
            "set gossip.compressor.values to fp32 or fp16 for longer ones"
        )
    return notices


def _values_follow_the_model(scenario: Scenario) -> bool:
    """Whether the format of values in messages is that of the model's arithmetic."""
    gossip = scenario.gossip
    if isinstance(gossip, GradientPushGossip):
        return False
    match gossip.compressor:
        case TopKCompressor(values=None) | RandomKCompressor(values=None):
            return True
    return False
