"""A topology of one's own: in each round a device exchanges with one other, along a hypercube.

After log2(n) rounds with exact messages all devices have the average. Sources: the hypercube of
all-reduce; as a graph for learning, Ying et al., arXiv 2110.13363, and Takezawa et al.,
arXiv 2305.11420.
"""

import networkx as nx


def one_peer_hypercube(num_devices, rng, shuffled: bool = False):
    """A graph for each bit of a device's number; the number of devices is a power of two."""
    num_bits = num_devices.bit_length() - 1
    if num_devices != 2**num_bits:
        raise ValueError(f"{num_devices} devices are no power of two")
    bits = rng.permutation(num_bits) if shuffled else range(num_bits)
    return [_pairs(num_devices, 1 << int(bit)) for bit in bits]


def _pairs(num_devices, step):
    graph = nx.Graph()
    graph.add_nodes_from(range(num_devices))
    graph.add_edges_from((device, device ^ step) for device in range(num_devices))
    return graph
