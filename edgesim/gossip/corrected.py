"""State of methods for skewed data that add a correction to each step."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from edgesim.gossip.algorithm import GossipState


@dataclass(slots=True)
class CorrectedState(GossipState):
    """Adds the correction c, which follows the learning rate.

    Where devices have come together, c cancels what a device's own step has beyond the mean step.
    Steps are gradients times the rate. At a new rate an old c would therefore drive devices apart.

    Attributes:
        c: correction, shape (D,); over all devices it sums to zero.
        gamma: learning rate that c belongs to; 0 before the first step.
    """

    c: Tensor
    gamma: float = 0.0

    def take_rate_(self, gamma: float) -> None:
        """Rescale c to a learning rate."""
        if self.gamma not in {0.0, gamma}:
            self.c.mul_(gamma / self.gamma)
        self.gamma = gamma
