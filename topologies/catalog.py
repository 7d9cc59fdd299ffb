"""Topologies by the name that a scenario gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np

from topologies import graphs
from topologies.errors import OtherDevicesError, TopologyError
from topologies.files import load_graph
from topologies.graphs import check_number_of_links
from topologies.mixing import Weights, check_weights, column_stochastic, metropolis
from topologies.one_peer import OnePeerExponential, RandomMatching, RotatingPermutations
from topologies.schedules import Cycle, Schedule, Static, check_schedule
from topologies.trace_files import load_trace

_ROTATING_DEVICES = RotatingPermutations(hold=1).num_devices


@dataclass(frozen=True, slots=True)
class TopologyKind:
    """A kind of topology.

    Attributes:
        build: makes the schedule; called with the number of devices, the seed and the options.
        description: one line for people.
        options: names of all options.
        required: names of those without a default.
    """

    build: Callable[..., Schedule]
    description: str
    options: tuple[str, ...] = ("weights",)
    required: tuple[str, ...] = ()


def build_schedule(kind: str, num_devices: int, *, seed: int, **options: object) -> Schedule:
    """Build a topology from the keys of a scenario, and check it.

    Args:
        kind: one of `KINDS`.
        num_devices: of the fleet.
        seed: of random kinds, at least 0; the others ignore it.
        options: of the kind; `weights` is `column_stochastic` (default) or `metropolis`.

    Raises:
        TopologyError: unknown kind or option, an option out of range, a graph that does not exist
            for so many devices, or one that is not strongly connected over its period.
    """
    schedule = _build(kind, num_devices, seed, options)
    try:
        check_schedule(schedule)
    except TopologyError as error:
        what = str(options.get("path", f"{kind} of {num_devices} devices"))
        raise TopologyError(f"{what}: {error}") from error
    return schedule


def _build(kind: str, num_devices: int, seed: int, options: Mapping[str, object]) -> Schedule:
    """Build a schedule without checking its connectivity."""
    if kind not in KINDS:
        raise TopologyError(f"no topology {kind!r}; there are {', '.join(KINDS)}")
    entry = KINDS[kind]
    unknown = sorted(options.keys() - set(entry.options))
    if unknown:
        raise TopologyError(
            f"{kind}: unknown option {', '.join(unknown)}; it takes {', '.join(entry.options)}"
        )
    missing = sorted(set(entry.required) - options.keys())
    if missing:
        raise TopologyError(f"{kind}: needs {', '.join(missing)}")
    return entry.build(num_devices, seed, **options)


def _static(
    draw: Callable[..., nx.DiGraph[int]], *, is_random: bool = False
) -> Callable[..., Schedule]:
    """Builder for a function of the number of devices, its options and, if random, a seed."""

    def build(
        num_devices: int, seed: int, *, weights: Weights = "column_stochastic", **options: object
    ) -> Schedule:
        seed_option = {"seed": seed} if is_random else {}
        return Static(_weigh(draw(num_devices, **options, **seed_option), weights))

    return build


def _graph_of_file(num_devices: int, *, path: str | Path) -> nx.DiGraph[int]:
    graph = load_graph(Path(path))
    if len(graph) != num_devices:
        names = [graph.nodes[device]["name"] for device in graph]
        raise OtherDevicesError(path, "has", names, num_devices)
    return graph


def _trace(
    num_devices: int,
    seed: int,
    *,
    path: str | Path,
    seconds_per_round: float,
    weights: Weights = "column_stochastic",
    repeat: bool = False,
    undirected: bool = False,
) -> Schedule:
    del seed
    return load_trace(
        Path(path),
        num_devices,
        seconds_per_round=seconds_per_round,
        undirected=undirected,
        repeat=repeat,
        weights=weights,
    )


def _one_peer_exponential(
    num_devices: int, seed: int, *, weights: Weights = "column_stochastic", hold: int = 1
) -> Schedule:
    del seed
    _refuse_metropolis("one_peer_exponential", weights)
    return OnePeerExponential(num_devices, hold)


def _random_matching(
    num_devices: int, seed: int, *, weights: Weights = "column_stochastic", hold: int = 1
) -> Schedule:
    check_weights(weights)  # both kinds of weights are 1/2 here
    return RandomMatching(num_devices, seed, hold)


def _rotating(
    num_devices: int, seed: int, *, weights: Weights = "column_stochastic", hold: int = 1
) -> Schedule:
    del seed
    _refuse_metropolis("rotating", weights)
    if num_devices != _ROTATING_DEVICES:
        raise TopologyError(
            f"rotating of {num_devices} devices: its permutations are for {_ROTATING_DEVICES}; "
            f"use {_ROTATING_DEVICES} devices, or kind: one_peer_exponential"
        )
    return RotatingPermutations(hold)


def _cycle(
    num_devices: int, seed: int, *, graphs: Sequence[Mapping[str, object]], hold: int = 1
) -> Schedule:
    """Static topologies in turn, each given by its kind and options."""
    stages = []
    other_fleets: dict[int, OtherDevicesError] = {}
    for place, words in enumerate(graphs):
        options = dict(words)
        kind = str(options.pop("kind", ""))
        # Two random graphs in one cycle must not be the same graph.
        own_seed = np.random.SeedSequence(seed, spawn_key=(place,)).generate_state(1, np.uint64)
        try:
            stage = _build(kind, num_devices, int(own_seed[0]), options)
        except OtherDevicesError as error:
            other_fleets[place] = error
            continue
        except TopologyError as error:
            raise TopologyError(f"graphs[{place}]: {error}") from error
        if not isinstance(stage, Static):
            raise TopologyError(f"graphs[{place}]: {kind} changes by itself; use a static kind")
        stages.append(stage.weighted)
        check_number_of_links(sum(stage.number_of_edges() for stage in stages))
    if other_fleets:
        raise _unlike_files(num_devices, graphs, other_fleets)
    return Cycle(tuple(stages), hold)


def _unlike_files(
    num_devices: int,
    graphs: Sequence[Mapping[str, object]],
    other_fleets: Mapping[int, OtherDevicesError],
) -> TopologyError:
    """What to say of files of a cycle that have not as many devices as the fleet."""
    files = (place for place, words in enumerate(graphs) if words.get("kind") == "file")
    sizes = {n: len(other_fleets[n].names) if n in other_fleets else num_devices for n in files}
    if len(set(sizes.values())) == 1:  # another number of devices would fit all
        place, error = next(iter(other_fleets.items()))
        return TopologyError(f"graphs[{place}]: {error}")
    said = ", ".join(f"graphs[{place}] has {size} devices" for place, size in sizes.items())
    return TopologyError(f"{said}; all graphs of a cycle need the same: change the files")


def _weigh(graph: nx.DiGraph[int], weights: Weights) -> nx.DiGraph[int]:
    check_weights(weights)
    return metropolis(graph) if weights == "metropolis" else column_stochastic(graph)


def _refuse_metropolis(kind: str, weights: Weights) -> None:
    check_weights(weights)
    if weights == "metropolis":
        raise TopologyError(
            f"{kind}: its links go one way, and metropolis weights need both; "
            f"use weights: column_stochastic"
        )


KINDS: dict[str, TopologyKind] = {
    "directed_ring": TopologyKind(_static(graphs.directed_ring), "each device sends to the next"),
    "ring": TopologyKind(_static(graphs.ring), "each device exchanges with both neighbours"),
    "torus": TopologyKind(
        _static(graphs.torus),
        "each device exchanges with four, wrapping within rows and columns",
        ("weights", "rows"),
    ),
    "chordal_grid": TopologyKind(
        _static(graphs.chordal_grid),
        "ring with chords of `stride`; the reference code calls it a torus",
        ("weights", "stride"),
    ),
    "exponential": TopologyKind(
        _static(graphs.exponential), "each device sends to those 1, 2, 4, ... further"
    ),
    "one_peer_exponential": TopologyKind(
        _one_peer_exponential,
        "as exponential, one of these peers at a time",
        ("weights", "hold"),
    ),
    "complete": TopologyKind(_static(graphs.complete), "each device exchanges with all others"),
    "star": TopologyKind(
        _static(graphs.star), "device 0 exchanges with all others, which know only it"
    ),
    "chain": TopologyKind(_static(graphs.chain), "a ring without the link that closes it"),
    "random_regular": TopologyKind(
        _static(graphs.random_regular, is_random=True),
        "random links, the same number at each device",
        ("weights", "degree"),
        ("degree",),
    ),
    "erdos_renyi": TopologyKind(
        _static(graphs.erdos_renyi, is_random=True),
        "random one-way links, each with the same probability",
        ("weights", "probability"),
        ("probability",),
    ),
    "random_matching": TopologyKind(
        _random_matching, "random pairs exchange, new ones every `hold` rounds", ("weights", "hold")
    ),
    "rotating": TopologyKind(
        _rotating,
        "the reference code's six permutations of 8 devices in turn",
        ("weights", "hold"),
    ),
    "file": TopologyKind(
        _static(_graph_of_file),
        "a GraphML file (.graphml) or an edge list (.csv, .edgelist, .txt)",
        ("weights", "path"),
        ("path",),
    ),
    "trace": TopologyKind(
        _trace,
        "contacts from a file (.csv: time,source,target,duration in seconds)",
        ("weights", "path", "seconds_per_round", "repeat", "undirected"),
        ("path", "seconds_per_round"),
    ),
    "cycle": TopologyKind(
        _cycle, "static topologies in turn, each for `hold` rounds", ("graphs", "hold"), ("graphs",)
    ),
}
