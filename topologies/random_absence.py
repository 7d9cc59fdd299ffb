"""Devices that come and go by chance: a chain of two states for each.

# p: share of rounds in which a device is absent   L: mean length of an absence, in rounds
# absent -> present with probability 1/L a round, present -> absent with p / ((1 - p) L): the chain
# then is absent in a share p of the rounds, and begins so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, isfinite

import numpy as np

from topologies.churn_entries import generator_of
from topologies.errors import TopologyError
from topologies.spans import is_on

_ROUNDING = 1e-12  # of probabilities such as 0.8, which floats do not have exactly
_FIRST_ROUNDS = 64  # that are drawn at once
_LONGEST = 2**40  # rounds of a stay: more than any run has; sums fit 64 bits


@dataclass(frozen=True)
class RandomAbsence:
    """Random absences of each device, independent of other devices.

    They depend on seed and device alone.

    Args:
        absence_probability: share of rounds in which a device is absent, in (0, 1).
        mean_absence_rounds: mean length of an absence, at least 1.
        seed: at least 0.

    Raises:
        TopologyError: a figure is out of range, or no chain has absences so short and frequent.
    """

    absence_probability: float
    mean_absence_rounds: float
    seed: int
    _drawn: dict[int, tuple[int, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        p, L = self.absence_probability, self.mean_absence_rounds
        if not 0 < p < 1:
            raise TopologyError(f"absence_probability is {p:g}; must be above 0 and below 1")
        if not (isfinite(L) and L >= 1):
            raise TopologyError(f"mean_absence_rounds is {L:g}; must be at least 1")
        if p > (1 - p) * L * (1 + _ROUNDING):
            raise TopologyError(
                f"mean_absence_rounds is {L:g}; must be at least {p / (1 - p):g} for "
                f"absence_probability: {p:g}, since a device is back for one round at least"
            )

    def is_absent(self, device: int, round_index: int) -> bool:
        """Whether chance keeps a device away in a round."""
        changes = self._drawn.get(device, ())
        if not changes or changes[-1] <= round_index:
            # Draw from the start again, twice as many rounds, so that the answer does not depend on
            # the order of calls or on other threads.
            changes = self._draw(device, max(_FIRST_ROUNDS, 2 * round_index))
            self._drawn[device] = changes
        return is_on(changes, round_index)

    def _draw(self, device: int, last_round: int) -> tuple[int, ...]:
        """Rounds in which a device goes away and comes back, in turn, until after `last_round`."""
        p, L = self.absence_probability, self.mean_absence_rounds
        end_of_stay = min(p / ((1 - p) * L), 1.0)
        begins_absent = generator_of(self.seed, device, 0).random() < p
        num_stays = 1 + ceil(2 * last_round / (L + 1 / end_of_stay))
        while True:
            # Separate streams, so that a longer draw begins like a shorter one.
            absences = generator_of(self.seed, device, 1).geometric(1 / L, num_stays)
            stays = generator_of(self.seed, device, 2).geometric(end_of_stay, num_stays)
            pairs = (absences, stays) if begins_absent else (stays, absences)
            changes = np.cumsum(np.minimum(np.column_stack(pairs).ravel(), _LONGEST))
            if changes[-1] > last_round:
                return (0,) * begins_absent + tuple(changes.tolist())
            num_stays *= 2
