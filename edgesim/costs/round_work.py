"""Cache for the work of a round's gossip, as stated by the algorithm."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from edgesim.gossip.algorithm import Algorithm
from edgesim.gossip.optional_members import longest_message
from edgesim.hardware.work import Work


@lru_cache(maxsize=1024)
def gossip_work(algorithm: Algorithm[Any], out_degree: int, in_degree: int) -> Work:
    """Work of one round's gossip on one device, including z = x/u for the next step.

    It has the times of encoding and decoding, where a profile has them.

    Args:
        algorithm: with its compressor and layout.
        out_degree: active out-edges in the round.
        in_degree: messages absorbed in it.
    """
    compressor, layout = longest_message(algorithm)
    decoding = compressor.form(layout).decode_work()
    return algorithm.work(out_degree, in_degree) + decoding * in_degree
