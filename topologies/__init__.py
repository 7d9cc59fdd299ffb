"""Who talks to whom in a fleet without a server: graphs, mixing weights and schedules.

Needs networkx and numpy only, and knows nothing of training.
"""

from topologies.catalog import KINDS, TopologyKind, build_schedule
from topologies.errors import TopologyError
from topologies.files import load_graph
from topologies.graphs import (
    chordal_grid,
    complete,
    directed_ring,
    erdos_renyi,
    exponential,
    random_regular,
    ring,
    star,
    torus,
)
from topologies.mixing import (
    column_stochastic,
    is_column_stochastic,
    is_doubly_stochastic,
    metropolis,
    mixing_matrix,
    period_gap,
    spectral_gap,
)
from topologies.one_peer import (
    ROTATING_PERMUTATIONS,
    OnePeerExponential,
    RandomMatching,
    RotatingPermutations,
)
from topologies.schedules import (
    Cycle,
    OutEdges,
    Schedule,
    Static,
    check_schedule,
    possible_receivers,
)

__all__ = [
    "KINDS",
    "ROTATING_PERMUTATIONS",
    "Cycle",
    "OnePeerExponential",
    "OutEdges",
    "RandomMatching",
    "RotatingPermutations",
    "Schedule",
    "Static",
    "TopologyError",
    "TopologyKind",
    "build_schedule",
    "check_schedule",
    "chordal_grid",
    "column_stochastic",
    "complete",
    "directed_ring",
    "erdos_renyi",
    "exponential",
    "is_column_stochastic",
    "is_doubly_stochastic",
    "load_graph",
    "metropolis",
    "mixing_matrix",
    "period_gap",
    "possible_receivers",
    "random_regular",
    "ring",
    "spectral_gap",
    "star",
    "torus",
]
