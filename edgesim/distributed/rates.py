"""The learning rate of an optimizer, as algorithms read it that keep steps times the rate."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

from edgesim.distributed.errors import GossipError
from edgesim.gossip.algorithm import Algorithm, GossipState
from edgesim.gossip.optional_members import follows_rate


def learning_rate(optimizer: Optimizer, algorithm: Algorithm[Any], state: GossipState) -> float:
    """Learning rate of an optimizer: the largest of its parameter groups, 0 without any.

    Raises:
        GossipError: there are several, or it is not positive, and the algorithm follows it.
    """
    rates = {float(group["lr"]) for group in optimizer.param_groups if "lr" in group}
    if follows_rate(algorithm, state) and (len(rates) != 1 or min(rates) <= 0):
        raise GossipError(
            f"{algorithm.name} keeps steps times one learning rate above 0; the optimizer has "
            f"{', '.join(f'{rate:g}' for rate in sorted(rates)) or 'none'}: give all parameter "
            "groups one rate, and the schedule an end above 0 (eta_min)"
        )
    return max(rates, default=0.0)
