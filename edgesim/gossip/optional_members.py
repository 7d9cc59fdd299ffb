"""Members that the class of an algorithm may have, and what stands for them if it has not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import networkx as nx
from torch import Tensor

from edgesim.compression.buckets import message_layout
from edgesim.compression.compressors import Compressor
from edgesim.gossip.algorithm import Algorithm, Exchanges, Form, GossipState, Place, State
from edgesim.gossip.corrected import RatedState
from edgesim.learning.parameters import ParameterLayout
from topologies import Schedule

Disagreement: TypeAlias = Literal["", "everywhere", "where push weights move"]

NeededExchanges: TypeAlias = Literal["any", "fixed", "balanced"]

OPTIONAL_MEMBERS = frozenset(
    {
        "needs_one_graph",
        "needs_exchanges",
        "needs_exact_messages",
        "carries_steps",
        "mixes_first",
        "is_idle_without_edges",
        "disagrees",
        "for_exchanges",
        "graph_problem",
        "message_layouts",
        "longest_message",
        "message_between",
        "for_device",
        "exchanges",
        "own_schedule",
        "init_at",
    }
)
"""Names of the members that this module reads."""


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


def mixes_first(algorithm: Form) -> bool:
    """Whether it mixes models as they were before the step, and then adds the step: W x + s.

    `mixes_first` of the class; by default not: models are mixed after the step, W (x + s). A
    statistic of which a step replaces the share k, by s = k (b - x), then has the factor
    lambda - k for each eigenvalue lambda of W. Below -1 it grows without bound.
    """
    return bool(getattr(algorithm, "mixes_first", False))


def follows_rate(algorithm: Algorithm[Any], state: GossipState) -> bool:
    """Whether an algorithm keeps steps times the learning rate and rescales them.

    Args:
        algorithm: of a device.
        state: that it has made.
    """
    follows = type(state).take_rate_ is not GossipState.take_rate_
    return carries_steps(type(algorithm)) and follows


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
    """Layouts of the vectors in its messages, the longest first; then those of their buckets.

    Its attribute `message_layouts`; by default the layout of x alone. A compressor may send a
    vector in a layout of its buckets (compression/buckets.py).
    """
    layouts: tuple[ParameterLayout, ...] | None = getattr(algorithm, "message_layouts", None)
    layouts = (algorithm.layout,) if layouts is None else layouts
    in_buckets = (message_layout(algorithm.compressor, layout) for layout in layouts)
    return tuple(dict.fromkeys((*layouts, *in_buckets)))


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
    state = algorithm.init(x, in_weights) if init_at is None else init_at(x, in_weights, place)
    if isinstance(state, RatedState):
        state.num_trained = place.num_trained
    return state


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
