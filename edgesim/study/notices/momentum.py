"""Quasi-global momentum that moves devices apart, by the graph and the averaging rate alone.

The momentum follows the way that gossip took. Where edges have one direction, parts of the distance
between devices turn while gossip shrinks them, and momentum that points where they were makes them
larger (docs/results/paper.md). What is told is for exact messages and without gradients: gradients
pull the devices together, and compression mostly makes it worse.

The recursion (docs/reference.md, sections 3.3 and 3.5), for the part of the distance that belongs
to an eigenvalue mu of the mixing matrix, with y = x / gamma:

    d  = k m                           k = beta^2 with Nesterov's look-ahead, else beta
    y+ = (1 - eta (1 - mu)) (y - d)
    m+ = beta m + (1 - beta) (y - y+)

Symbols:
    beta: momentum   eta: averaging rate   gamma: learning rate
    mu: eigenvalue of the mixing matrix
"""

from __future__ import annotations

from math import exp, log

import numpy as np
from numpy.typing import NDArray

from edgesim.assembly.gossip import averaging_rate
from edgesim.assembly.studied_scenario import StudiedScenario
from edgesim.learning.optimizers import QuasiGlobalMomentum
from topologies import mixing_matrix

_STEP_THEN_MIX = frozenset({"choco", "choco_numerator", "deepsqueeze", "gradient_push"})
"""Algorithms whose exact messages move x by eta (W - I) x after the step."""

_MOST_DEVICES = 300  # so that eigenvalues take a fraction of a second
_LARGEST = 100.0  # logarithm of a growth that is told
_LEAST_GROWTH = 1.1  # of the distance in the whole training, below which nothing is said
_LOWER = 0.9  # each rate that is tried, of the one before
_LOWEST_RATE = 1e-5


def momentum_notices(studied: StudiedScenario, num_rounds: int) -> list[str]:
    """A notice of quasi-global momentum with which gossip alone moves devices apart.

    Args:
        studied: the scenario, as objects.
        num_rounds: of the training.
    """
    scenario, schedule, optimizer = studied.scenario, studied.schedule, studied.optimizer
    if (
        not isinstance(optimizer, QuasiGlobalMomentum)
        or scenario.gossip.algorithm not in _STEP_THEN_MIX
        or scenario.gossip.local_steps > 1
        or not scenario.fleet.rules.waits_for_all
        or not schedule.is_static
        or not 1 < schedule.num_devices <= _MOST_DEVICES
    ):
        return []
    modes = _distances(mixing_matrix(schedule.graph(0)))
    rate = averaging_rate(scenario) or 1.0
    growth, epoch = log(growth_of_distance(modes, rate, optimizer)), studied.rounds_per_epoch
    if growth * num_rounds < log(_LEAST_GROWTH):
        return []
    lower = rate
    while lower > _LOWEST_RATE and growth_of_distance(modes, lower, optimizer) > 1:
        lower *= _LOWER
    remedy = (
        f"set gossip.averaging_rate to {_rounded_down(lower):g} or less, "
        if lower > _LOWEST_RATE and averaging_rate(scenario) is not None
        else ""
    )
    times = f"{exp(min(growth * epoch, _LARGEST)):.3g} times"
    said = (
        "training.optimizer.momentum_kind: quasi_global moves devices apart on this graph where "
        f"gradients do not hold them together: without them the distance grows {times} in "
        f"{epoch:,} rounds, and the more the less of a message is kept; {remedy}take links in both "
        "directions, or momentum_kind: local (docs/when-it-diverges.md)"
    )
    return [said]


def growth_of_distance(
    modes: NDArray[np.complex128], rate: float, optimizer: QuasiGlobalMomentum
) -> float:
    """Factor by which a round changes the distance in the long run, without gradients.

    Args:
        modes: eigenvalues of the mixing matrix but for that of the mean.
        rate: averaging rate.
        optimizer: with its momentum.
    """
    beta = optimizer.momentum
    k = beta**2 if optimizer.nesterov else beta
    kept = 1 - rate * (1 - modes)
    rows = np.empty((len(modes), 2, 2), complex)
    rows[:, 0, 0], rows[:, 0, 1] = kept, -kept * k
    rows[:, 1, 0], rows[:, 1, 1] = (1 - beta) * (1 - kept), beta + (1 - beta) * kept * k
    return float(np.abs(np.linalg.eigvals(rows)).max())


def _rounded_down(rate: float) -> float:
    """The largest number of one digit that is no larger."""
    digits, exponent = f"{rate:.15e}".split("e")
    return float(f"{digits[0]}e{exponent}")


def _distances(W: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Eigenvalues of a mixing matrix but for one of 1, that of the mean."""
    modes = np.linalg.eigvals(W).astype(complex)
    return np.delete(modes, np.abs(modes - 1).argmin())
