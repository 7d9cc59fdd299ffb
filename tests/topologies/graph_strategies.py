"""Random digraphs and the matrices that the definitions imply, built without the package."""

import networkx as nx
import numpy as np
from hypothesis import strategies as st


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
