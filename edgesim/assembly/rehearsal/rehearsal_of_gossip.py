"""Algorithms and compressors of one's own are tried before a run: they exchange some messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isclose
from typing import Any, get_args

import networkx as nx
import numpy as np
import torch
from torch import Tensor

from edgesim.assembly.parts.own_calls import (
    called,
    check_hash,
    check_work,
    expect,
    flat_vectors,
    new_rng,
    shown,
    vectors_of_any_type,
)
from edgesim.assembly.rehearsal.trial_of_gossip import (
    ALGORITHM,
    STATE_MEMBERS,
    UNLIKE,
    UNLIKE_AND_BALANCED,
    Trial,
    Weights,
    as_bytes,
    misspelt,
    small_change,
)
from edgesim.compression.buckets import message_layout
from edgesim.compression.compressors import Compressor
from edgesim.compression.errors import NonFiniteEntryError
from edgesim.compression.message_form import MessageForm
from edgesim.compression.payload import Payload
from edgesim.errors import ScenarioError
from edgesim.gossip.algorithm import (
    Algorithm,
    Buffers,
    GossipState,
)
from edgesim.gossip.optional_members import (
    OPTIONAL_MEMBERS,
    Disagreement,
    NeededExchanges,
    graph_problem,
    own_schedule,
)
from edgesim.learning.parameters import ParameterLayout
from topologies import (
    Schedule,
    WithPresence,
    first_exchange,
    has_symmetric_weights,
    is_balanced,
    with_everyone,
)

COMPRESSOR = "gossip.compressor.kind"
MOST_NEIGHBORS = 2  # of a device that is tried
LOOKED_AT = 8  # devices and rounds in which a graph that changes is searched for missing edges
VECTOR_ERROR = 0.5  # of a flat vector
ERROR_ROUNDING = 1e-7  # of an error relative to a vector; less than of one entry in a million sent
SCALE = 1e4  # of the cubes of a small change, which makes them as large as that

_CHOICES = {"needs_exchanges": get_args(NeededExchanges), "disagrees": get_args(Disagreement)}
"""Values of optional members of the class, the default first."""


_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


def rehearse_algorithm(
    algorithm: Algorithm[Any],
    other: Algorithm[Any],
    x: Tensor,
    schedule: Schedule,
    *,
    mass_moves: bool,
) -> tuple[str, ...]:
    """Let devices take steps and exchange messages for some rounds, three times.

    The second time must give the bits of the first. So must the third, in which all states are
    written and read back after each round, as checkpoints are. A fourth time edges have unlike
    weights, if those of the run are unlike.

    Args:
        algorithm: of one's own.
        other: the same, made again, as each process of a run does.
        x: parameters to begin with.
        schedule: of the run; says how many neighbours are tried.
        mass_moves: whether devices may come to have unlike mass on any graph: at free pace, or
            since some join, leave or die.

    Returns:
        Notices: of members that may be misspelt, that a round of gossip changes the sum of x over
        devices, that the state holds less memory than it says.

    Raises:
        ScenarioError: it fails, gives what can't be used, changes the sum of u, holds more memory
            than it says, or has other bits when it is repeated or resumed.
    """
    num_devices, has_quiet = 1 + _num_neighbors(schedule), _has_quiet_rounds(schedule)
    first = Trial(algorithm, x, num_devices, has_quiet=has_quiet)
    first.run()
    less = _check_memory(algorithm, first.states, num_devices - 1)
    again = Trial(other, x, num_devices, has_quiet=has_quiet)
    again.run()
    if place := first.first_difference(again):
        raise ScenarioError(
            f"{ALGORITHM}: two rounds from the same state and generator differ ({place}); draw "
            "from the rng that you are given alone, and keep what changes in the state"
        )
    resumed = Trial(other, x, num_devices, has_quiet=has_quiet, resumes=True)
    resumed.run()
    if place := first.first_difference(resumed):
        raise ScenarioError(
            f"{ALGORITHM}: after a checkpoint it goes on with other bits ({place}); keep all that "
            "changes in the state"
        )
    of_weights = _try_unlike_weights(algorithm, x, schedule, mass_moves=mass_moves)
    unread = misspelt(type(algorithm), OPTIONAL_MEMBERS)
    unread += misspelt(type(first.states[0]), STATE_MEMBERS, GossipState)
    return (*unread, *(notice for notice in (first.notice or of_weights, less) if notice))


def _try_unlike_weights(
    algorithm: Algorithm[Any], x: Tensor, schedule: Schedule, *, mass_moves: bool
) -> str | None:
    """Let devices with unlike weights and degrees exchange; a notice if the sum of x changes.

    Where all have equal weights, push weights stay 1, and a weight may come from a degree. An
    algorithm that chooses who sends, or that refuses the graph, is not tried.
    """
    weights = _unlike_weights(schedule, mass_moves=mass_moves)
    if weights is None or own_schedule(type(algorithm)) is not None:
        return None
    num_devices = max(2, min(1 + MOST_NEIGHBORS, schedule.num_devices))
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_weighted_edges_from((*ends, weight) for ends, weight in weights.items())
    graph = graph.subgraph(range(num_devices))
    if called(ALGORITHM, "graph_problem", graph_problem, algorithm, graph):
        return None
    has_quiet = _has_quiet_rounds(schedule)
    trial = Trial(algorithm, x, num_devices, has_quiet=has_quiet, weights=weights)
    trial.run()
    return trial.notice


def _unlike_weights(schedule: Schedule, *, mass_moves: bool) -> Weights | None:
    """Weights as unlike as those of the run; None if it has equal ones, by equal degrees.

    What is right with the weights of the run must pass. Where devices are absent, edges are missing
    together with their ways back: symmetric weights stay doubly stochastic, and others do not.
    """
    if mass_moves:
        return UNLIKE
    has_absences = isinstance(schedule, WithPresence)
    schedule = with_everyone(schedule)
    exchanges = LOOKED_AT if not schedule.is_static else 1
    rounds = (first_exchange(schedule) + n * schedule.exchange_every for n in range(exchanges))
    graphs = [schedule.graph(round_index) for round_index in rounds]
    if not all(map(has_symmetric_weights if has_absences else is_balanced, graphs)):
        return UNLIKE
    are_equal = not has_absences and all(map(_has_equal_weights, graphs))
    return None if are_equal else UNLIKE_AND_BALANCED


def _has_equal_weights(graph: nx.DiGraph[int]) -> bool:
    """Whether each edge has the weight 1 / (degree + 1) of both its ends."""
    return all(
        isclose(graph.edges[sender, receiver]["weight"] * (1 + degree), 1)
        for sender, receiver in graph.edges
        for degree in (graph.out_degree(sender), graph.in_degree(receiver))
    )


def rehearse_compressor(
    compressor: Compressor, other: Compressor, layout: ParameterLayout, x: Tensor
) -> str | None:
    """Compress a vector twice, and read the message; then other vectors.

    Args:
        compressor: of one's own.
        other: the same, made again, as each process of a run does.
        layout: of the vector.
        x: the vector, shape (D,).

    Returns:
        A notice if all errors are as large as the vectors, or larger.

    Raises:
        ScenarioError: it fails, gives what can't be sent, or is not as it says.
    """
    key, before = COMPRESSOR, x.clone()
    sent = []
    for made in (other, compressor):
        payload = called(key, "compress", made.compress, x, layout, new_rng())
        expect(key, "compress(x, layout, rng)", payload, Payload)
        of_payload = called(key, "message_layout", message_layout, made, layout)
        expect(key, "message_layout(layout)", of_payload, ParameterLayout)
        sent.append(as_bytes(key, "tried", payload, [of_payload])[0])
    if not torch.equal(x, before):
        raise ScenarioError(f"{key}: compress changes x, which is not its own; copy it first")
    if sent[0] != sent[1]:
        raise ScenarioError(
            f"{key}: two payloads of one vector and generator differ; draw from rng alone"
        )
    tried = [(x, payload), *_unlike_payloads(compressor, layout, x)]
    form = called(key, "form", compressor.form, layout)
    _check_form(form, payload, [made.num_values for _, made in tried])
    return _notice_of_errors(tried)


def numbers_of_entries(compressor: Compressor, layout: ParameterLayout, x: Tensor) -> list[int]:
    """How many entries are sent of unlike vectors, with other random numbers."""
    return [payload.num_values for _, payload in _unlike_payloads(compressor, layout, x)]


def _unlike_payloads(
    compressor: Compressor, layout: ParameterLayout, x: Tensor
) -> list[tuple[Tensor, Payload]]:
    """Unlike vectors with their payloads; without those beyond the range of the code."""
    found = []
    for seed, scale in ((1, SCALE), (2, SCALE**3)):
        unlike, rng = scale * small_change(x, seed) ** 3, new_rng(seed)
        try:
            payload = called(COMPRESSOR, "compress", compressor.compress, unlike, layout, rng)
        except ScenarioError as error:
            if isinstance(error.__cause__, NonFiniteEntryError):
                continue
            raise
        expect(COMPRESSOR, "compress(x, layout, rng)", payload, Payload)
        found.append((unlike, payload))
    return found


def _notice_of_errors(tried: Sequence[tuple[Tensor, Payload]]) -> str | None:
    """That a compressor is no better than one that sends nothing, for all vectors."""
    errors = [
        float((x - payload.decode()).double().norm() / x.double().norm()) ** 2
        for x, payload in tried
    ]
    if not min(errors) > 1 - ERROR_ROUNDING:
        return None
    return (
        f"{COMPRESSOR}: the error |x - C(x)|^2 is {min(errors):.3g} to {max(errors):.3g} times "
        "|x|^2 for the vectors tried; CHOCO, BEER and DeepSqueeze need a smaller one than |x|^2, "
        "whatever the averaging rate: look for wrong signs, entries or scales, and scale down what "
        "is unbiased"
    )


def _check_form(form: MessageForm, payload: Payload, numbers: Sequence[int]) -> None:
    """Refuse a form that is not that of a message: clocks and energy of a run go by it.

    Args:
        form: that the compressor says.
        payload: that it made.
        numbers: of values in payloads. Where they differ, since they depend on the vector or on
            chance, a form says the largest.
    """
    is_sparse = payload.indices is not None
    said, made = (
        f"MessageForm.{'sparse' if has_indices else 'dense'} in {code.label}"
        for has_indices, code in ((form.is_sparse, form.code), (is_sparse, payload.code))
    )
    if said == made and (len(set(numbers)) == 1 or max(numbers) > form.entries):
        said, made = f"{form.entries} values", f"{max(numbers)} values"
    if said != made:
        raise ScenarioError(
            f"{COMPRESSOR}: form(layout) says {said}, but compress makes a payload of {made}; say "
            "what is sent, since clocks and energy of a run go by it"
        )


def _check_memory(algorithm: Algorithm[Any], states: Sequence[Any], degree: int) -> str | None:
    """Refuse an algorithm whose states hold more than its `buffers` says; a notice if less."""
    kept = called(ALGORITHM, "buffers", algorithm.buffers, degree, degree).kept
    numel = algorithm.layout.numel
    held = max(flat_vectors(state, numel) - 1 for state in states)
    says = f"buffers({degree}, {degree}) says that {kept} flat vectors are kept beside x"
    if held > kept + VECTOR_ERROR:
        raise ScenarioError(
            f"{ALGORITHM}: {says}; the state holds {held:.3g}: say so, since memory is counted by "
            "it"
        )
    vectors = max(vectors_of_any_type(state, numel) for state in states) - 1
    if vectors < kept - VECTOR_ERROR:
        return f"{ALGORITHM}: {says}; the state held {vectors:.3g} when it was tried"
    return None


def _num_neighbors(schedule: Schedule) -> int:
    """Out-edges of a device in the first exchange, as far as they are tried."""
    round_index = first_exchange(schedule)
    degrees = (len(schedule.out_edges(n, round_index)) for n in range(schedule.num_devices))
    return max(1, min(MOST_NEIGHBORS, max(degrees)))


def _has_quiet_rounds(schedule: Schedule) -> bool:
    """Whether devices have rounds without out-edges, as far as first rounds tell."""
    if schedule.is_static or schedule.exchange_every > 1:
        return schedule.exchange_every > 1
    devices = range(min(schedule.num_devices, LOOKED_AT))
    return any(not schedule.out_edges(n, r) for r in range(LOOKED_AT) for n in devices)


def check_compressor(compressor: Compressor, layout: ParameterLayout) -> None:
    """Refuse what a compressor says of its messages, if it can't be counted."""
    key = COMPRESSOR
    check_hash(key, compressor)
    form = called(key, "form", compressor.form, layout)
    expect(key, "form(layout)", form, MessageForm)
    for name, ops in (("select_ops", form.select_ops), ("encode_ops", form.encode_ops)):
        if not isinstance(ops, int | np.integer) or ops < 0:
            raise ScenarioError(
                f"{key}: form(layout) has {name} {ops!r}; must be a whole number of operations, "
                "not negative"
            )
    said = called(key, "conventions", compressor.conventions, layout)
    if not isinstance(said, Mapping):
        raise ScenarioError(
            f"{key}: conventions(layout) gives {shown(said)}; must be a dict of bytes by name, "
            "empty if nobody counts such messages"
        )
    for name, size in said.items():
        if not isinstance(name, str) or not isinstance(size, int | np.integer) or size < 0:
            raise ScenarioError(
                f"{key}: conventions(layout) has {name!r}: {size!r}; must be names with whole "
                "numbers of bytes, not negative"
            )
    keep = compressor.keep
    if not isinstance(keep, float | int) or not 0 < keep <= 1:
        raise ScenarioError(f"{key}: keep is {keep!r}; must be a share of the entries, in (0, 1]")


def check_algorithm(algorithm: Algorithm[Any]) -> None:
    """Refuse what an algorithm says of itself, if it can't be counted."""
    check_hash(ALGORITHM, algorithm)
    name = algorithm.name
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ScenarioError(f"{ALGORITHM}: name is {name!r}; must be 1 to 32 of a-z, 0-9 and _")
    for member, known in _CHOICES.items():
        if (value := getattr(algorithm, member, known[0])) not in known:
            told = ", ".join(repr(one) for one in known)
            raise ScenarioError(f"{ALGORITHM}: {member} is {value!r}; must be one of {told}")
    check_work(ALGORITHM, "work(1, 1)", called(ALGORITHM, "work", algorithm.work, 1, 1))
    buffers = called(ALGORITHM, "buffers", algorithm.buffers, 1, 1)
    expect(ALGORITHM, "buffers(1, 1)", buffers, Buffers)
