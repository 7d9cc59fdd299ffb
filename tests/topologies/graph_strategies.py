"""Random digraphs and the matrices that the definitions imply, built without the package."""

from functools import reduce

import networkx as nx
import numpy as np
from hypothesis import strategies as st

from topologies import (
    Absence,
    Churn,
    ContactTrace,
    Joining,
    Leaving,
    RandomAbsence,
    TopologyError,
    is_column_stochastic,
    spectral_gap,
)


def is_doubly_stochastic(W):
    """Whether rows sum to one too: push-sum weights then stay 1."""
    return is_column_stochastic(W) and is_column_stochastic(W.T)


def period_gap(matrices):
    """Spectral gap of a whole period of a schedule, whose rounds have these matrices."""
    return spectral_gap(reduce(lambda product, W: W @ product, matrices))


@st.composite
def digraphs(draw, max_devices=8, max_multiplicity=3):
    """Any digraph without self loops, connected or not, with multiplicities."""
    n = draw(st.integers(1, max_devices))
    pairs = [(j, i) for j in range(n) for i in range(n) if i != j]
    multiplicities = draw(
        st.lists(st.integers(0, max_multiplicity), min_size=len(pairs), max_size=len(pairs))
    )
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    for (sender, receiver), multiplicity in zip(pairs, multiplicities, strict=True):
        if multiplicity:
            graph.add_edge(sender, receiver, multiplicity=multiplicity)
    return graph


@st.composite
def symmetric_graphs(draw, max_devices=8):
    """Any graph in which each link has an equal way back."""
    one_way = draw(digraphs(max_devices))
    graph = nx.DiGraph()
    graph.add_nodes_from(one_way)
    for j, i, multiplicity in one_way.edges(data="multiplicity"):
        graph.add_edge(j, i, multiplicity=multiplicity)
        graph.add_edge(i, j, multiplicity=multiplicity)
    return graph


def circulant_matrix(n, shares):
    """Oracle W of a circle: every device gives `shares[offset]` to the one at that offset."""
    W = np.zeros((n, n))
    for j in range(n):
        for offset, share in shares.items():
            W[(j + offset) % n, j] += share
    return W


@st.composite
def contact_traces(draw, num_devices=5, max_rounds=40):
    """Any contacts of some of the edges, repeated or not, with either weights."""
    weights = draw(st.sampled_from(["column_stochastic", "metropolis"]))
    pairs = [(j, i) for j in range(num_devices) for i in range(num_devices) if i != j]
    contacts = {}
    for j, i in draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=12, unique=True)):
        rounds = draw(st.sets(st.integers(0, max_rounds), min_size=2, max_size=12))
        changes = sorted(rounds)[: len(rounds) // 2 * 2]
        contacts[j, i] = changes
        if weights == "metropolis":
            contacts[i, j] = changes
    return ContactTrace(num_devices, contacts, 10.0, draw(st.booleans()), weights)


@st.composite
def churns(draw, num_devices, max_rounds=60, *, with_chance=True):
    """Any churn of which `Churn` has nothing to say."""
    devices, rounds = st.integers(0, num_devices - 1), st.integers(0, max_rounds)
    words = draw(
        st.lists(
            st.tuples(st.sampled_from("ajl"), devices, rounds, st.none() | st.integers(1, 20)),
            max_size=8,
        )
    )
    chance = None
    if with_chance and draw(st.booleans()):
        chance = RandomAbsence(draw(st.floats(0.05, 0.8)), draw(st.floats(4, 20)), draw(rounds))
    churn = Churn(num_devices, chance=chance)
    for kind, device, first, length in words:
        entries = {
            "absences": (*churn.absences, Absence(device, first, length and first + length)),
            "joins": (*churn.joins, Joining(device, first + 1)),
            "leaves": (*churn.leaves, Leaving(device, first + 1)),
        }
        (key,) = (key for key in entries if key[0] == kind)
        old = {"absences": churn.absences, "joins": churn.joins, "leaves": churn.leaves}
        try:
            churn = Churn(num_devices, **(old | {key: entries[key]}), chance=chance)
        except TopologyError:
            continue  # this entry does not go with those before it
    return churn
