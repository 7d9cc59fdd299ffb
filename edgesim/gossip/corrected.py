"""State of methods for skewed data, which keep steps times the learning rate."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from edgesim.gossip.algorithm import GossipState


@dataclass(slots=True)
class RatedState(GossipState):
    """Keeps vectors made of steps, which follow the learning rate.

    Where devices have come together, such a vector cancels what a device's own step has beyond the
    mean step. Steps are gradients times the rate. At a new rate an old vector would therefore drive
    devices apart. Between two exchanges there may be several steps, at unlike rates.

    Attributes:
        rates: sum of the rates of the steps since the last exchange.
        rates_before: the same sum, of the steps that the kept vectors belong to; 0 before them.
        num_trained: entries of x that steps move by gradients. The others, at its end, are
            statistics, whose movement does not depend on the rate. None: all are trained.
    """

    rates: float = field(default=0.0, kw_only=True)
    rates_before: float = field(default=0.0, kw_only=True)
    num_trained: int | None = field(default=None, kw_only=True)

    def take_rate_(self, gamma: float) -> None:
        """Add the learning rate of a step."""
        self.rates += gamma

    def rescale_(self, *kept: Tensor | None) -> None:
        """Rescale vectors to the rates of the steps since the last exchange."""
        if not self.rates:  # no step, so nothing to be of one rate with
            return
        if self.rates_before not in {0.0, self.rates}:
            for vector in kept:
                if vector is not None:
                    vector[: self.num_trained].mul_(self.rates / self.rates_before)
        self.rates_before, self.rates = self.rates, 0.0


@dataclass(slots=True)
class CorrectedState(RatedState):
    """Adds the correction c to each step.

    Attributes:
        c: correction, shape (D,); over all devices it sums to zero.
    """

    c: Tensor
