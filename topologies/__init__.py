"""Graphs, mixing weights and schedules of a fleet without a server.

The package needs networkx and numpy only. It has no code about training.
"""

from topologies.catalog import KINDS, TopologyKind, build_schedule
from topologies.errors import OtherDevicesError, TopologyError
from topologies.files import load_graph
from topologies.given import GivenWeights, given_schedule, graphs_in_words, have_same_graphs
from topologies.graphs import (
    chain,
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
from topologies.intermittent import Intermittent
from topologies.mixing import (
    column_stochastic,
    has_symmetric_weights,
    is_balanced,
    is_column_stochastic,
    metropolis,
    mixing_matrix,
    only_passes_on,
    spectral_gap,
)
from topologies.names import device_attributes
from topologies.one_peer import (
    ROTATING_PERMUTATIONS,
    OnePeerExponential,
    RandomMatching,
    RotatingPermutations,
)
from topologies.presence import (
    EVERYONE,
    Absence,
    Churn,
    Joining,
    Leaving,
    Presence,
    build_churn,
)
from topologies.random_absence import RandomAbsence
from topologies.schedules import (
    Cycle,
    OutEdges,
    Schedule,
    Static,
    check_schedule,
    exchange_of,
    first_exchange,
    weight_by_sender,
)
from topologies.several_exchanges import (
    RingReduction,
    ServerRounds,
    SeveralExchanges,
    ring_exchanges,
    step_share,
    steps_before,
    takes_step,
)
from topologies.site_rounds import (
    SITE_EXCHANGES,
    Peers,
    SiteRounds,
    even_sites,
    members_of,
    peer_ranks,
)
from topologies.spans import FOREVER
from topologies.timed_presence import (
    TimedAbsence,
    TimedChurn,
    TimedJoining,
    TimedLeaving,
    TimedRandomAbsence,
    build_timed_churn,
)
from topologies.trace_files import load_trace
from topologies.traces import ContactTrace
from topologies.with_presence import WithPresence, with_everyone

__all__ = [
    "EVERYONE",
    "FOREVER",
    "KINDS",
    "ROTATING_PERMUTATIONS",
    "SITE_EXCHANGES",
    "Absence",
    "Churn",
    "ContactTrace",
    "Cycle",
    "GivenWeights",
    "Intermittent",
    "Joining",
    "Leaving",
    "OnePeerExponential",
    "OtherDevicesError",
    "OutEdges",
    "Peers",
    "Presence",
    "RandomAbsence",
    "RandomMatching",
    "RingReduction",
    "RotatingPermutations",
    "Schedule",
    "ServerRounds",
    "SeveralExchanges",
    "SiteRounds",
    "Static",
    "TimedAbsence",
    "TimedChurn",
    "TimedJoining",
    "TimedLeaving",
    "TimedRandomAbsence",
    "TopologyError",
    "TopologyKind",
    "WithPresence",
    "build_churn",
    "build_schedule",
    "build_timed_churn",
    "chain",
    "check_schedule",
    "chordal_grid",
    "column_stochastic",
    "complete",
    "device_attributes",
    "directed_ring",
    "erdos_renyi",
    "even_sites",
    "exchange_of",
    "exponential",
    "first_exchange",
    "given_schedule",
    "graphs_in_words",
    "has_symmetric_weights",
    "have_same_graphs",
    "is_balanced",
    "is_column_stochastic",
    "load_graph",
    "load_trace",
    "members_of",
    "metropolis",
    "mixing_matrix",
    "only_passes_on",
    "peer_ranks",
    "random_regular",
    "ring",
    "ring_exchanges",
    "spectral_gap",
    "star",
    "step_share",
    "steps_before",
    "takes_step",
    "torus",
    "weight_by_sender",
    "with_everyone",
]
