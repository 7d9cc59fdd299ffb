"""The order in which messages of a round arrive: as predicted, and as it happened."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from statistics import median

from predicted_rounds import Arrivals, Edge


@dataclass(frozen=True, slots=True)
class OrderAgreement:
    """Pairs of messages of one round, in the order of their arrival.

    Attributes:
        num_pairs: pairs of a round's messages that the prediction orders, over all rounds.
        num_agreeing: of these, those that arrived in the predicted order.
        num_ties: pairs whose predicted arrivals are too close to order them.
    """

    num_pairs: int
    num_agreeing: int
    num_ties: int

    @property
    def share(self) -> float:
        """Of the ordered pairs, those that agree; 1 without a pair."""
        return self.num_agreeing / self.num_pairs if self.num_pairs else 1.0


def offsets(arrivals: Arrivals) -> dict[Edge, float]:
    """Median time from a round's first arrival to that of each edge, in the order of the times."""
    rounds = list(zip(*arrivals.values(), strict=True))
    firsts = [min(times) for times in rounds]
    found = {
        edge: median(t - first for t, first in zip(times, firsts, strict=True))
        for edge, times in arrivals.items()
    }
    return dict(sorted(found.items(), key=lambda item: (item[1], item[0])))


def compare_orders(predicted: Arrivals, measured: Arrivals, tie_s: float) -> OrderAgreement:
    """Compare the order of each pair of edges in every measured round with the predicted one.

    Args:
        predicted: of the settled fleet; medians over its rounds count.
        measured: for the same edges.
        tie_s: predicted differences up to this are ties.
    """
    expected = offsets(predicted)
    num_pairs = num_agreeing = num_ties = 0
    for one, other in combinations(expected, 2):  # one is the earlier
        times = list(zip(measured[one], measured[other], strict=True))
        if expected[other] - expected[one] <= tie_s:
            num_ties += len(times)
            continue
        num_pairs += len(times)
        num_agreeing += sum(first < second for first, second in times)
    return OrderAgreement(num_pairs, num_agreeing, num_ties)
