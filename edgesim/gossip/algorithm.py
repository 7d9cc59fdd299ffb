"""The seam between a device and its gossip algorithm.

An algorithm is a frozen object of hyper-parameters. It has no access to the network: it is given
what arrived and returns what to send. Each round of a device runs the same sequence at either pace:

    local step on state.x        (the optimizer, before the algorithm is called)
    shares = send_(state, ...)   one compressed share per active out-edge
    absorb_(state, received)     the shares that arrived, sorted by (sender, sequence)

Push-sum (reference.md, section 3.1): x is the numerator, u the push weight, z = x/u the model that
a device trains and evaluates. Gossip never changes the sums of x and of u over all devices, shares
in flight included.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import networkx as nx
import numpy as np
from torch import Tensor

from edgesim.compression.compressors import Compressor
from edgesim.compression.errors import NonFiniteEntryError
from edgesim.compression.payload import Payload
from edgesim.hardware.work import Work
from edgesim.learning.parameters import ParameterLayout
from topologies import Schedule

LEAST_PUSH_WEIGHT = 1e-12
"""A device with a smaller push weight keeps its mass until it has received more.

The push weight of a device that sends far more often than it receives becomes smaller and smaller.
x = u z is float32 and loses precision below 1e-38. Then z would be lost, although u, a double, is
still exact.
"""


@dataclass(frozen=True, slots=True)
class OutEdge:
    """An active edge to a neighbour and the share of the sender's mass that travels on it.

    Attributes:
        receiver: at the other end.
        weight: w_e.
        address: the leaver in whose name the sender, its successor, sends; None if it sends in its
            own name.
    """

    receiver: int
    weight: float
    address: int | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """Content of one message, as algorithms see it.

    Attributes:
        peer: the receiver of a share that is sent, the sender of one that arrived.
        weight: w_e, the mixing weight that the sender chose for this edge.
        push_weight: u of the sender when it sent.
        payload: the compressed vector.
        address: the leaver whose end of the edge this device, its successor, has taken over; None
            for the device's own end.
    """

    peer: int
    weight: float
    push_weight: float
    payload: Payload
    address: int | None = None


OwnEdge: TypeAlias = tuple[int, int | None]
"""An edge as seen from one of its ends: the peer, and `address` as in `Share`."""


@dataclass(slots=True)
class GossipState:
    """State common to all algorithms.

    Attributes:
        x: numerator, shape (D,).
        u: push-sum weight; 1 at the start.
    """

    x: Tensor
    u: float

    def public_copies(self) -> tuple[dict[OwnEdge, Tensor], dict[OwnEdge, Tensor]]:
        """Public copies of out-edges and of in-edges, which a successor takes over.

        If the algorithm keeps such copies, these are the dicts of the state itself: a caller may
        add and remove copies.
        """
        return {}, {}

    def take_rate_(self, gamma: float) -> None:
        """Note the learning rate of the local step that has just changed x; by default ignored."""

    def debiased(self) -> Tensor:
        """Model z = x/u, which is trained and evaluated; shares memory with x while u is 1."""
        return self.x if self.u == 1.0 else self.x / self.u


def edges_with_mass(state: GossipState, out_edges: Sequence[OutEdge]) -> Sequence[OutEdge]:
    """Out-edges with their weights, all zero while u is below `LEAST_PUSH_WEIGHT`."""
    if state.u >= LEAST_PUSH_WEIGHT:
        return out_edges
    return [replace(edge, weight=0.0) for edge in out_edges]


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """Memory that an algorithm uses on a device, beside x.

    Attributes:
        kept: flat vectors between rounds.
        payloads: compressed vectors that are made in one round.
        operands: flat vectors that exist while messages are made, such as the difference that is
            compressed.
        models: flat vectors that z = x/u takes; 0 where u is 1 throughout, so that z is x.
    """

    kept: int
    payloads: int
    operands: int
    models: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanges:
    """Properties of a fleet's exchanges that are known before it starts.

    Attributes:
        are_fixed: the same edges carry one message each in every exchange.
        are_balanced: `are_fixed`, and the weights are doubly stochastic: push weights stay 1.
    """

    are_fixed: bool
    are_balanced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Facts about one device of a fleet that some algorithms need.

    Attributes:
        index: number of the device, from 0.
        num_devices: of the fleet.
        num_samples: training samples of the device.
        steps_first: whether it takes a step in round 0.
    """

    index: int
    num_devices: int
    num_samples: int
    steps_first: bool = True


State = TypeVar("State", bound=GossipState)


class Algorithm(Hashable, Protocol[State]):
    """Gossip algorithm in edge form (docs/gossip.md): a frozen object.

    Its class may also have the members that the functions below read: `needs_one_graph`,
    `needs_exchanges`, `needs_exact_messages`, `carries_steps`, `is_idle_without_edges`,
    `disagrees`, `for_exchanges`, `graph_problem`, `message_layouts`, `longest_message`,
    `message_between`, `for_device`, `exchanges`, `own_schedule` and `init_at`.
    """

    @property
    def name(self) -> str:
        """Name in the headers of messages."""
        ...

    @property
    def layout(self) -> ParameterLayout:
        """Layout of the vectors."""
        ...

    @property
    def compressor(self) -> Compressor:
        """Compressor that makes its messages."""
        ...

    @property
    def keeps_edges(self) -> bool:
        """Whether it holds memory for each edge from the edge's first message on.

        If so, its memory is counted for all neighbours of the run, otherwise for those of one
        round.
        """
        ...

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Work of one round's gossip on one device, including z = x/u for the next step.

        Operations and traffic are those of the formulas: each statement reads each of its vectors
        and writes its result once. There are no MACs: a vector operation has no operand to reuse.

        Args:
            out_degree: active out-edges in the round.
            in_degree: messages absorbed in it.
        """
        ...

    def buffers(self, out_degree: int, in_degree: int) -> Buffers:
        """Memory beside x on a device with so many neighbours (see `keeps_edges`)."""
        ...

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> State:
        """State at the start. It takes over the memory of `x`, which is equal on all devices.

        `in_weights` maps the in-neighbours of round 0 to the weight of their edge.
        """
        ...

    def send_(
        self, state: State, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Subtract the mass that leaves on the active out-edges; return a share for each edge.

        Called after the local step, when state.x is x~. Changes `state` in place.
        """
        ...

    def absorb_(self, state: State, received: Sequence[Share]) -> None:
        """Add shares in the given order. The order must not depend on the times of arrival."""
        ...


Form: TypeAlias = Callable[..., Algorithm[Any]]
"""Makes an algorithm of `compressor`, `layout`, `averaging_rate` if it has one, and options."""

Disagreement: TypeAlias = Literal["", "everywhere", "where push weights move"]

NeededExchanges: TypeAlias = Literal["any", "fixed", "balanced"]


def needs_one_graph(algorithm: Form) -> bool:
    """Whether it needs the same graph in every exchange, with equal weights both ways.

    `needs_one_graph` of the class; by default it does not.
    """
    return bool(getattr(algorithm, "needs_one_graph", False))


def needed_exchanges(algorithm: Form) -> NeededExchanges:
    """Property of a fleet's exchanges (`Exchanges`) without which its formulas are wrong.

    `needs_exchanges` of the class; by default none.
    """
    needed: NeededExchanges = getattr(algorithm, "needs_exchanges", "any")
    return needed


def needs_exact_messages(algorithm: Form) -> bool:
    """Whether its messages must hold vectors of fp32 without loss.

    `needs_exact_messages` of the class; by default not.
    """
    return bool(getattr(algorithm, "needs_exact_messages", False))


def carries_steps(algorithm: Form) -> bool:
    """Whether earlier local steps still move models in rounds without steps.

    `carries_steps` of the class; by default not: gossip alone mixes models.
    """
    return bool(getattr(algorithm, "carries_steps", False))


def is_idle_without_edges(algorithm: Algorithm[Any]) -> bool:
    """Whether `send_` does nothing in a round without out-edges, so that it need not be called.

    `is_idle_without_edges` of the class; by default not.
    """
    return bool(getattr(algorithm, "is_idle_without_edges", False))


def graph_problem(algorithm: Algorithm[Any], graph: nx.DiGraph[int]) -> str:
    """Reason why an algorithm can't work on a fixed graph, and a remedy; empty if it can.

    As its method `graph_problem` says; by default empty.
    """
    find: Callable[[nx.DiGraph[int]], str] | None = getattr(algorithm, "graph_problem", None)
    return "" if find is None else find(graph)


def message_layouts(algorithm: Algorithm[Any]) -> tuple[ParameterLayout, ...]:
    """Layouts of the vectors in its messages, the longest first.

    Its attribute `message_layouts`; by default the layout of x alone.
    """
    layouts: tuple[ParameterLayout, ...] | None = getattr(algorithm, "message_layouts", None)
    return (algorithm.layout,) if layouts is None else layouts


def longest_message(algorithm: Algorithm[Any]) -> tuple[Compressor, ParameterLayout]:
    """Compressor and layout of its longest messages.

    Its attribute `longest_message`; by default its compressor and the first of its layouts.
    """
    longest: tuple[Compressor, ParameterLayout] | None = getattr(algorithm, "longest_message", None)
    return (algorithm.compressor, message_layouts(algorithm)[0]) if longest is None else longest


def has_several_messages(algorithm: Algorithm[Any]) -> bool:
    """Whether its messages differ in compressor or layout from edge to edge."""
    return hasattr(algorithm, "message_between")


def message_between(
    algorithm: Algorithm[Any], sender: int, receiver: int
) -> tuple[Compressor, ParameterLayout]:
    """Compressor and layout of the messages on an edge.

    As its method `message_between` says; by default the longest ones.
    """
    find: Callable[[int, int], tuple[Compressor, ParameterLayout]] | None
    find = getattr(algorithm, "message_between", None)
    return longest_message(algorithm) if find is None else find(sender, receiver)


def for_device(algorithm: Algorithm[State], device: int) -> Algorithm[State]:
    """The algorithm whose `work` and `buffers` are those of a device.

    As its method `for_device` says; by default all devices have the same.
    """
    choose: Callable[[int], Algorithm[State]] | None = getattr(algorithm, "for_device", None)
    return algorithm if choose is None else choose(device)


def parts_of_devices(
    algorithm: Algorithm[Any], num_devices: int
) -> tuple[tuple[Algorithm[Any], ...], tuple[int, ...]]:
    """Algorithms by which devices differ in work and memory, and the place of each device's.

    Args:
        algorithm: of the fleet.
        num_devices: of the fleet.
    """
    if not hasattr(algorithm, "for_device"):
        return (algorithm,), (0,) * num_devices
    places: dict[Algorithm[Any], int] = {}
    of_devices = [
        places.setdefault(for_device(algorithm, device), len(places))
        for device in range(num_devices)
    ]
    return tuple(places), tuple(of_devices)


def exchanges_of_average(algorithm: Form, num_devices: int, **options: object) -> int:
    """Exchanges without a step between them that an average takes.

    As the static method `exchanges` of the class says; by default 1.

    Args:
        algorithm: class.
        num_devices: of the fleet.
        options: of the algorithm, those that the method names.
    """
    count: Callable[..., int] | None = getattr(algorithm, "exchanges", None)
    return 1 if count is None else count(num_devices, **options)


def own_schedule(algorithm: Form) -> Callable[..., Schedule] | None:
    """Maker of the schedule of an algorithm that chooses who sends in which exchange.

    The static method `own_schedule` of the class, called with the schedule of the scenario's links,
    and with those of `seed` and the keys of the section `gossip` that it names; None for the
    scenario's schedule.
    """
    make: Callable[..., Schedule] | None = getattr(algorithm, "own_schedule", None)
    return make


def starting_state(
    algorithm: Algorithm[State], x: Tensor, in_weights: Mapping[int, float], place: Place
) -> State:
    """State of a device at the start: by `init_at(x, in_weights, place)` if there is such a method.

    By default by `init`.
    """
    init_at: Callable[..., State] | None = getattr(algorithm, "init_at", None)
    return algorithm.init(x, in_weights) if init_at is None else init_at(x, in_weights, place)


def finite_shares_(
    algorithm: Algorithm[State],
    state: State,
    out_edges: Sequence[OutEdge],
    rng: np.random.Generator,
) -> list[Share]:
    """Shares that an algorithm sends, as `Algorithm.send_` makes them.

    Raises:
        NonFiniteEntryError: a value to be sent is not finite: the training has diverged.
    """
    shares = algorithm.send_(state, out_edges, rng)
    if not all(np.isfinite(share.payload.values).all() for share in shares):
        raise NonFiniteEntryError("a value to be sent is not finite")
    return shares


def disagreement(algorithm: Form) -> Disagreement:
    """Where lossy compression keeps devices apart at any averaging rate.

    `disagrees` of the class; by default nowhere.
    """
    where: Disagreement = getattr(algorithm, "disagrees", "")
    return where


def form_for(algorithm: Form, exchanges: Exchanges) -> Form:
    """The form of an algorithm that fits a fleet's exchanges.

    As the static method `for_exchanges` of the class says; by default the class itself.
    """
    choose: Callable[[Exchanges], Form] | None = getattr(algorithm, "for_exchanges", None)
    return algorithm if choose is None else choose(exchanges)
