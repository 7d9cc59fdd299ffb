"""Section `topology`: who sends to whom, and with which weights."""

from __future__ import annotations

from math import sqrt
from typing import Annotated, Any, Literal

from pydantic import Field

from edgesim.scenario.catalog import TOPOLOGIES
from edgesim.scenario.own_parts import OPTIONS, ChosenBy, NamedIn, Options, OwnPart
from edgesim.scenario.section import Count, PathText, Probability, Quantity, Section

Weights = Literal["column_stochastic", "metropolis"]
GivenWeights = Literal["column_stochastic", "metropolis", "edges"]

_HOLD = "exchanges for which each graph stays; each round is one without gossip.local_steps"


class TopologyKind(Section):
    """Keys of every topology; `kind` and further options are in the subclasses."""

    kind: str
    weights: Weights = Field(
        default="column_stochastic",
        description="1/(out-degree + 1) by the sender, or Metropolis weights (symmetric graphs)",
    )

    def builder_options(self) -> tuple[str, dict[str, Any]]:
        """Kind and keyword options, as `topologies.build_schedule` takes them."""
        return self.kind, self.model_dump(exclude={"kind"}, exclude_none=True)


class DirectedRing(TopologyKind):
    """Each device sends to the next."""

    kind: Literal["directed_ring"]


class Ring(TopologyKind):
    """Each device exchanges with both neighbours."""

    kind: Literal["ring"]


class Torus(TopologyKind):
    """Two-dimensional torus that wraps in rows and in columns."""

    kind: Literal["torus"]
    rows: Count | None = Field(
        default=None, description="number of rows; null: the most square shape"
    )


class ChordalGrid(TopologyKind):
    """The reference code's "torus": offsets 1 and `stride` on one ring (docs/reference.md, section 3.8)."""  # noqa: E501

    kind: Literal["chordal_grid"]
    stride: Count = Field(default=4, description="distance of the second pair of neighbours")


class Exponential(TopologyKind):
    """Each device sends to those 1, 2, 4, ... further."""

    kind: Literal["exponential"]


class OnePeerExponential(TopologyKind):
    """As exponential, one of these peers at a time."""

    kind: Literal["one_peer_exponential"]
    hold: Count = Field(default=1, description=_HOLD)


class Complete(TopologyKind):
    """Each device exchanges with all others."""

    kind: Literal["complete"]


class Star(TopologyKind):
    """Device 0 exchanges with all others, which know only it."""

    kind: Literal["star"]


class Chain(TopologyKind):
    """A ring without the link that closes it."""

    kind: Literal["chain"]


class RandomRegular(TopologyKind):
    """Undirected random graph in which all devices have the same number of neighbours."""

    kind: Literal["random_regular"]
    degree: Count = Field(description="neighbours of each device")


class ErdosRenyi(TopologyKind):
    """Directed random graph, each edge present by itself with the same probability."""

    kind: Literal["erdos_renyi"]
    probability: Probability = Field(description="probability of each directed edge")


class RandomMatching(TopologyKind):
    """Random pairs exchange; new pairs every `hold` rounds."""

    kind: Literal["random_matching"]
    hold: Count = Field(default=1, description=_HOLD)


class Rotating(TopologyKind):
    """The six rotating permutations of the reference code, for 8 devices (docs/reference.md, section 3.8)."""  # noqa: E501

    kind: Literal["rotating"]
    hold: Count = Field(default=1, description=_HOLD)


class GraphFile(TopologyKind):
    """A graph from a GraphML file or an edge list."""

    kind: Literal["file"]
    path: PathText = Field(description="file, relative to the scenario file's folder")


class ContactTrace(TopologyKind):
    """Contacts from a file: which device can reach which, from when on and for how long."""

    kind: Literal["trace"]
    path: PathText = Field(
        description="CSV file with the columns time, source, target, duration, times in seconds, "
        "and maybe bandwidth_mbps, latency_ms, jitter_ms, loss of the link; relative to the "
        "scenario file's folder"
    )
    seconds_per_round: Quantity = Field(
        description="seconds of the trace that a round stands for; a contact is active in every "
        "round that it overlaps"
    )
    repeat: bool = Field(
        default=False,
        description=(
            "whether the trace begins again after its last round; if not, there are no more "
            "contacts"
        ),
    )
    undirected: bool = Field(default=False, description="whether each contact goes both ways")


# These graphs are symmetric; on the regular ones so are column-stochastic weights.
REGULAR_KINDS = frozenset({"ring", "torus", "chordal_grid", "complete", "random_regular"})
SYMMETRIC_KINDS = REGULAR_KINDS | {"star", "chain", "file"}

StaticTopology = Annotated[
    DirectedRing
    | Ring
    | Torus
    | ChordalGrid
    | Exponential
    | Complete
    | Star
    | Chain
    | RandomRegular
    | ErdosRenyi
    | GraphFile,
    Field(discriminator="kind"),
]


class OtherTopology(Section):
    """A topology of your own: a function that gives a graph, or a list of graphs in turn."""

    kind: Annotated[OwnPart, NamedIn(TOPOLOGIES)]
    weights: GivenWeights = Field(
        default="column_stochastic",
        description="1/(out-degree + 1) by the sender, Metropolis weights (symmetric graphs), or "
        "edges: the attribute weight of each edge, the share that the sender gives away",
    )
    hold: Count = Field(default=1, description=_HOLD)
    options: Options = Field(default_factory=dict, description=OPTIONS)


class Cycle(Section):
    """Static graphs in turn, each with its own weights."""

    kind: Literal["cycle"]
    graphs: Annotated[tuple[StaticTopology, ...], Field(strict=False, min_length=1)] = Field(
        description="static topologies, in their order"
    )
    hold: Count = Field(default=1, description=_HOLD)

    def builder_options(self) -> tuple[str, dict[str, Any]]:
        """Kind and keyword options, as `topologies.build_schedule` takes them."""
        graphs = [graph.model_dump(exclude_none=True) for graph in self.graphs]
        return self.kind, {"graphs": graphs, "hold": self.hold}


Topology = Annotated[
    DirectedRing
    | Ring
    | Torus
    | ChordalGrid
    | Exponential
    | OnePeerExponential
    | Complete
    | Star
    | Chain
    | RandomRegular
    | ErdosRenyi
    | RandomMatching
    | Rotating
    | GraphFile
    | ContactTrace
    | Cycle
    | OtherTopology,
    ChosenBy("kind", TOPOLOGIES),
]


def least_links(topology: TopologyKind | Cycle | OtherTopology, num_devices: int) -> int:
    """Links that a topology of that many devices certainly has; 0 where only its graph can say."""
    if isinstance(topology, Cycle):
        return sum(least_links(graph, num_devices) for graph in topology.graphs)
    every = num_devices * (num_devices - 1)
    if isinstance(topology, Complete):
        return every
    if isinstance(topology, RandomRegular):
        return min(num_devices * topology.degree, every)
    if isinstance(topology, ErdosRenyi):
        deviation = sqrt(every * topology.probability * (1 - topology.probability))
        return max(int(every * topology.probability - 10 * deviation), 0)
    return 0
