"""Communication graphs by name, as directed graphs (reference.md, section 3.8).

Every function returns an `nx.DiGraph` with nodes 0 to n-1, an edge j -> i where j sends to i, and
no self loops: weights say how much mass a device keeps (`topologies.mixing`). If two links of a
definition connect the same pair of devices, as the two wraps of a torus with two rows do, they form
one edge with `multiplicity` 2: one message with twice the weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isqrt, log

import networkx as nx
import numpy as np

from topologies.errors import TopologyError

MOST_LINKS = 200_000  # of a graph; each takes some hundred bytes, in every process of a fleet

_DRAWS = 100  # of a random graph, before it is refused as not connected
_DRAWN_LINKS = 2_000_000  # in all these draws together


def directed_ring(n: int) -> nx.DiGraph[int]:
    """Each device sends to the next: spectral gap 1 - cos(pi/n).

    Raises:
        TopologyError: n is less than 1.
    """
    _require_devices("a directed ring", n, 1)
    return _circulant(n, [1] if n > 1 else [])


def ring(n: int) -> nx.DiGraph[int]:
    """Each device exchanges with both neighbours; two devices exchange over one link.

    Raises:
        TopologyError: n is less than 1.
    """
    _require_devices("a ring", n, 1)
    return _circulant(n, {1 % n, -1 % n} - {0})


def torus(n: int, rows: int | None = None) -> nx.DiGraph[int]:
    """Two-dimensional torus: each device exchanges with four, wrapping within its row and column.

    Device number = row * columns + column. If a side has length two, both directions lead to the
    same device. This gives an edge of multiplicity 2, so the weights are still those of four links
    (reference.md, section 3.8).

    Args:
        n: devices, a product of two sides of at least 2.
        rows: one side; the most square shape if None.

    Raises:
        TopologyError: n devices cannot form such a torus; says which numbers can.
    """
    rows = _most_square_rows(n) if rows is None else rows
    if rows < 2 or n % rows or n // rows < 2:
        sides = [str(side) for side in range(2, n // 2 + 1) if n % side == 0]
        remedy = f"use rows: {_either(sides)}" if sides else f"use {_torus_sizes_near(n)} devices"
        raise TopologyError(
            f"a torus of {n} devices in {rows} rows: needs at least 2 full rows and 2 columns; "
            f"{remedy}, or kind: ring"
        )
    columns = n // rows
    links: list[tuple[int, int]] = []
    check_number_of_links(4 * n)
    for device in range(n):
        row, column = divmod(device, columns)
        for step in (1, -1):
            links.append((device, row * columns + (column + step) % columns))
            links.append((device, (row + step) % rows * columns + column))
    return _digraph(n, links)


def chordal_grid(n: int, stride: int = 4) -> nx.DiGraph[int]:
    """Ring with chords: each device exchanges with those 1 and `stride` away on one circle.

    The reference code calls this graph a torus. It is not a torus, as the end of a row is linked to
    the next row. On 8 devices the two chords of stride 4 lead to the same device, with multiplicity
    2 (reference.md, section 3.8).

    Raises:
        TopologyError: n is less than 3, or stride is no distance between two devices.
    """
    _require_devices("a chordal grid", n, 3)
    if not 1 <= stride < n:
        raise TopologyError(
            f"a chordal grid of {n} devices with stride {stride}: the stride must be between 1 "
            f"and {n - 1}; set stride: {max(2, n // 2)}, or use kind: ring"
        )
    return _circulant(n, [1, -1, stride, -stride])


def exponential(n: int) -> nx.DiGraph[int]:
    """Each device sends to those 1, 2, 4, ... further.

    About log2(n) neighbours; for even n the spectral gap is 2/(1 + ceil(log2 n)). Source: Ying et
    al. (2021), arXiv 2110.13363.

    Raises:
        TopologyError: n is less than 1.
    """
    _require_devices("an exponential graph", n, 1)
    return _circulant(n, exponential_offsets(n))


def exponential_offsets(n: int) -> tuple[int, ...]:
    """The powers of two below n: distances of linked devices in an exponential graph."""
    return tuple(1 << power for power in range((n - 1).bit_length()))


def complete(n: int) -> nx.DiGraph[int]:
    """Each device exchanges with all others: one round averages exactly.

    Raises:
        TopologyError: n is less than 1.
    """
    _require_devices("a complete graph", n, 1)
    return _circulant(n, range(1, n))


def star(n: int) -> nx.DiGraph[int]:
    """Device 0 exchanges with all others, which exchange with device 0 alone.

    Raises:
        TopologyError: n is less than 1.
    """
    _require_devices("a star", n, 1)
    check_number_of_links(2 * n)
    leaves = range(1, n)
    return _digraph(n, [*((0, leaf) for leaf in leaves), *((leaf, 0) for leaf in leaves)])


def chain(n: int) -> nx.DiGraph[int]:
    """Each device exchanges with the one before it and the one after it: a ring without one link.

    Raises:
        TopologyError: n is less than 1.
    """
    _require_devices("a chain", n, 1)
    check_number_of_links(2 * n)
    steps = [(device, device + 1) for device in range(n - 1)]
    return _digraph(n, [*steps, *((after, before) for before, after in steps)])


def random_regular(n: int, degree: int, seed: int) -> nx.DiGraph[int]:
    """Random graph in which each device exchanges with the same number of others.

    It is the first connected one of the draws that follow from the seed.

    Raises:
        TopologyError: no such graph exists, or none of the draws is connected.
    """
    what = f"a random regular graph of {n} devices with {degree} neighbours each"
    if not 1 <= degree < n:
        raise TopologyError(
            f"{what}: the degree must be at least 1 and below the number of devices"
        )
    if n * degree % 2:
        raise TopologyError(
            f"{what}: {n} times {degree} is odd, but each link has two ends; "
            f"use an even degree or an even number of devices"
        )
    if degree == 1 and n > 2:
        raise TopologyError(f"{what}: makes separate pairs; use degree: 2 or more")
    check_number_of_links(n * degree)
    rng = np.random.default_rng(seed)

    def draw() -> nx.DiGraph[int]:
        # It is easier to draw the few links that a dense graph lacks, and equally random.
        few = min(degree, n - 1 - degree)
        sparse = nx.random_regular_graph(few, n, seed=rng)
        drawn = sparse if few == degree else nx.complement(sparse)
        return _digraph(n, sorted(drawn.to_directed().edges))

    return _first_connected(draw, what, "use a higher degree or kind: ring")


def erdos_renyi(n: int, probability: float, seed: int) -> nx.DiGraph[int]:
    """Random digraph: each of the n (n-1) directed links is there with the same probability.

    It is the first strongly connected one of the draws that follow from the seed. As its in- and
    out-degrees differ, uniform weights are column-stochastic but not row-stochastic here.

    Raises:
        TopologyError: the probability is no probability, or so low that no draw is connected.
    """
    _require_devices("a random digraph", n, 1)
    what = f"a random digraph of {n} devices with link probability {probability:g}"
    if not 0 <= probability <= 1:
        raise TopologyError(f"{what}: a probability is between 0 and 1")
    rng, others = np.random.default_rng(seed), n - 1

    def draw() -> nx.DiGraph[int]:
        count = rng.binomial(n * others, probability)
        check_number_of_links(count)
        picked = np.sort(rng.choice(n * others, size=count, replace=False, shuffle=False))
        sender, slot = np.divmod(picked, max(others, 1))
        receiver = slot + (slot >= sender)  # skips the sender itself
        return _digraph(n, zip(sender.tolist(), receiver.tolist(), strict=True))

    enough = min(1.0, 2 * log(n) / max(others, 1))  # twice the threshold of connectivity
    return _first_connected(draw, what, f"use a probability of {enough:.2g} or more")


def _circulant(n: int, offsets: Iterable[int]) -> nx.DiGraph[int]:
    """Each device sends to those at the given offsets on one circle."""
    offsets = sorted(offsets)
    return _digraph(n, ((device, (device + o) % n) for device in range(n) for o in offsets))


def _digraph(n: int, links: Iterable[tuple[int, int]]) -> nx.DiGraph[int]:
    """Graph of links (sender, receiver), those that occur again counted as multiplicity."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(n))
    for num_links, (sender, receiver) in enumerate(links, 1):
        assert sender != receiver
        check_number_of_links(num_links)
        if graph.has_edge(sender, receiver):
            graph.edges[sender, receiver]["multiplicity"] += 1
        else:
            graph.add_edge(sender, receiver, multiplicity=1)
    return graph


def check_number_of_links(num_links: int) -> None:
    """Refuse a graph that is too large to be held by every process of a fleet.

    Raises:
        TopologyError: it has more than `MOST_LINKS` links.
    """
    if num_links > MOST_LINKS:
        raise TopologyError(
            f"more than {MOST_LINKS:,} links, the most that a graph can have here; take fewer "
            "devices or a sparser kind"
        )


def _first_connected(
    draw: Callable[[], nx.DiGraph[int]], what: str, remedy: str
) -> nx.DiGraph[int]:
    """First strongly connected graph of up to `_DRAWS` draws."""
    num_draws = num_links = 0
    while num_draws < _DRAWS and num_links < _DRAWN_LINKS:
        graph = draw()
        if nx.is_strongly_connected(graph):
            return graph
        num_draws += 1
        num_links += len(graph) + graph.number_of_edges()
    raise TopologyError(f"{what}: none of {num_draws} draws is strongly connected; {remedy}")


def _most_square_rows(n: int) -> int:
    """Largest divisor of n that is at most its root."""
    for rows in range(isqrt(max(n, 0)), 1, -1):
        if n % rows == 0:
            return rows
    reason = f"{n} is prime" if n > 1 else "it has no two sides"
    raise TopologyError(
        f"a torus of {n} devices: {reason}; use {_torus_sizes_near(n)} devices, or kind: ring"
    )


def _torus_sizes_near(n: int) -> str:
    """Numbers of devices around n that form a torus: one below, two above."""

    def is_torus_size(size: int) -> bool:
        return any(size % side == 0 for side in range(2, isqrt(size) + 1))

    below = [size for size in range(4, n) if is_torus_size(size)][-1:]
    above = [size for size in range(max(n + 1, 4), 2 * max(n, 4)) if is_torus_size(size)][:2]
    return _either([str(size) for size in below + above])


def _either(words: list[str]) -> str:
    """Words as a choice: "6, 8 or 9"."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _require_devices(what: str, n: int, least: int) -> None:
    if n < least:
        raise TopologyError(f"{what} of {n} devices: needs at least {least}")
