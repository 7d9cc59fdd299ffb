"""Placement of actors: their devices, their requested resources and their nodes.

This is plain arithmetic on the resources of a cluster; no result of a run depends on it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor
from typing import Literal

from edgesim.errors import EdgesimError

CPU_STEP = 1e-4  # Ray counts resources in ten-thousandths
Placement = Literal["auto", "spread", "pack", "by_node"]


class FleetError(EdgesimError):
    """The fleet can't be started."""


class NodeLostError(FleetError):
    """Ray's node of the driver's machine has ended; Ray ends the driver when it notices."""


class NoRoomError(FleetError):
    """The cluster has no room for the fleet."""


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster.

    Attributes:
        node_id: of Ray.
        num_cpus: CPUs of the machine, in use or not.
        free_cpus: CPUs not in use.
        num_gpus: GPUs of the machine, in use or not.
        free_gpus: GPUs not in use.
    """

    node_id: str
    num_cpus: float
    free_cpus: float
    num_gpus: float = 0.0
    free_gpus: float = 0.0


@dataclass(frozen=True, slots=True)
class Need:
    """What one actor asks for, in CPUs and GPUs; Ray reserves it, and enforces nothing."""

    cpus: float
    gpus: float = 0.0

    def __str__(self) -> str:
        return f"{self.cpus:g} CPUs" + (f" and {self.gpus:g} GPUs" if self.gpus else "")


def devices_by_actor(
    num_devices: int, devices_per_actor: int | Literal["auto"], num_cpus: int
) -> list[range]:
    """Consecutive devices of each actor; `auto` makes one actor per CPU."""
    if devices_per_actor == "auto":
        size = ceil(num_devices / max(1, min(num_cpus, num_devices)))
    else:
        size = devices_per_actor
    starts = range(0, num_devices, size)
    return [range(start, min(start + size, num_devices)) for start in starts]


def devices_by_node(num_devices: int, nodes: Sequence[Node]) -> list[range]:
    """Consecutive devices of each node's only actor, in proportion to the CPUs of the nodes.

    A node with too few CPUs for a device's share has an empty range.
    """
    total_cpus, ends, cpus = sum(node.num_cpus for node in nodes), [0], 0.0
    for node in nodes:
        cpus += node.num_cpus
        ends.append(floor(num_devices * cpus / total_cpus + 0.5))
    return [range(start, end) for start, end in pairwise(ends)]


def cpu_share(nodes: Sequence[Node], num_actors: int) -> float:
    """CPUs that each actor asks for: at most 1, and so few that all fit if a node is lost.

    Otherwise actors of a lost node could not start until the node is back.
    """
    cpus = sorted(_steps(node.num_cpus) for node in nodes if node.num_cpus > 0)
    remaining = cpus[:-1] or cpus
    counts = range(1, num_actors + 1)
    shares = sorted({min(_steps(1.0), all_of // count) for all_of in remaining for count in counts})

    def is_too_much(share: int) -> bool:
        return share > 0 and sum(all_of // share for all_of in remaining) < num_actors

    # The larger the share, the fewer fit: take the largest share at which all fit.
    last = bisect_left(shares, True, key=is_too_much) - 1
    return max(1, shares[last] if last >= 0 else 0) * CPU_STEP


def gpu_share(nodes: Sequence[Node], num_actors: int, wanted: float | Literal["auto"]) -> float:
    """GPU that each actor asks for: as wanted, or an equal share of all there are.

    Raises:
        NoRoomError: the GPUs can't hold as many actors of that share.
    """
    num_gpus = int(sum(node.num_gpus for node in nodes))
    if not num_gpus:
        raise NoRoomError("no node of the cluster has a GPU; set fleet.accelerator: cpu")
    if wanted == "auto":
        # A share must be on one GPU: find the number of actors per GPU at which all fit.
        actors_of_gpu = ceil(num_actors / num_gpus)
        return int(1 / actors_of_gpu / CPU_STEP) * CPU_STEP
    places = num_gpus * int(1 / wanted)
    if places < num_actors:
        raise NoRoomError(
            f"fleet.gpus_per_actor is {wanted:g}, so that {num_gpus} GPUs hold {places} of "
            f"{num_actors} actors; lower it, or raise fleet.devices_per_actor"
        )
    return wanted


def room(node: Node, need: Need) -> int:
    """Actors that a node can still hold."""
    places = _places([node.free_cpus], need.cpus)
    if need.gpus:
        whole = int(node.free_gpus)
        rest = node.free_gpus - whole
        per_gpu = [1.0] * whole + [rest]
        places = min(places, _places(per_gpu, need.gpus))
    return places


def place(nodes: Sequence[Node], num_actors: int, need: Need, placement: Placement) -> list[Node]:
    """The node of each actor; neighbouring actors share nodes, as most edges are between them.

    Args:
        nodes: of the cluster.
        num_actors: to be placed.
        need: of each.
        placement: `auto` in proportion to the CPUs of nodes, `spread` equally many on each, `pack`
            on as few nodes as can hold them, `by_node` one on each, in order.

    Raises:
        NoRoomError: they do not fit.
    """
    places = [room(node, need) for node in nodes]
    if placement == "by_node":
        places = [min(1, count) for count in places]
    if sum(places) < num_actors:
        raise NoRoomError(_shortage(nodes, sum(places), num_actors, need))
    counts = [0] * len(nodes)
    if placement == "pack":
        left = num_actors
        for index in sorted(range(len(nodes)), key=lambda index: -places[index]):
            counts[index] = min(places[index], left)
            left -= counts[index]
    else:
        weights = [node.num_cpus if placement == "auto" else 1.0 for node in nodes]
        for _ in range(num_actors):
            with_room = (index for index in range(len(nodes)) if counts[index] < places[index])
            counts[min(with_room, key=lambda index: (counts[index] + 1) / weights[index])] += 1
    return [node for node, count in zip(nodes, counts, strict=True) for _ in range(count)]


def _places(capacities: Sequence[float], share: float) -> int:
    return sum(_steps(capacity) // _steps(share) for capacity in capacities)


def _steps(amount: float) -> int:
    return round(amount / CPU_STEP)


def _shortage(nodes: Sequence[Node], places: int, num_actors: int, need: Need) -> str:
    free_cpus, cpus = sum(n.free_cpus for n in nodes), sum(n.num_cpus for n in nodes)
    free_gpus, gpus = sum(n.free_gpus for n in nodes), sum(n.num_gpus for n in nodes)
    of_gpus = f" and {free_gpus:g} of {gpus:g} GPUs" if need.gpus else ""
    return (
        f"the cluster has room for {places} of {num_actors} actors, each with {need} "
        f"({free_cpus:g} of {cpus:g} CPUs{of_gpus} are free on {len(nodes)} nodes); end what else "
        "runs there, add nodes, or raise fleet.devices_per_actor"
    )
