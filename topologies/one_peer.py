"""One-peer schedules: in each round every device sends half of its mass to one other.

Source: reference.md, section 3.8.

The cheapest way to mix: one message per device and round, whatever the size of the fleet. As no
two devices send to the same one, W = (I + P)/2 with a permutation P is doubly stochastic.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import networkx as nx
import numpy as np

from topologies.errors import TopologyError
from topologies.graphs import exponential_offsets
from topologies.presence import EVERYONE, Presence
from topologies.schedules import OutEdges, check_hold, stages_of_rounds
from topologies.spans import FOREVER

ROTATING_PERMUTATIONS = (
    (1, 2, 3, 4, 5, 6, 7, 0),
    (7, 0, 1, 2, 3, 4, 5, 6),
    (2, 5, 4, 6, 7, 3, 0, 1),
    (6, 7, 0, 5, 2, 1, 3, 4),
    (3, 4, 7, 1, 6, 0, 2, 5),
    (5, 3, 6, 0, 1, 7, 4, 2),
)
"""The reference code's rotation for 8 devices: device i sends to entry i.

Source: reference.md, section 3.8.

Each is a directed ring through all devices; every second ring is the reverse of the one before.
"""

_WEIGHT = 0.5  # 1/(d_out + 1), reference.md, section 3.1
_CACHED_MATCHINGS = 64  # devices in one process are only a few rounds apart


class OnePeerSchedule(ABC):
    """A permutation of the devices for each stage of `hold` rounds.

    A device that maps to itself rests.
    """

    num_devices: int
    hold: int

    exchange_every: ClassVar[int] = 1
    seconds_per_round: ClassVar[None] = None
    presence: ClassVar[Presence] = EVERYONE

    @property
    @abstractmethod
    def num_stages(self) -> int | None:
        """Stages after which the permutations repeat; None if they never do."""

    @abstractmethod
    def receiver(self, device: int, stage: int) -> int:
        """The receiver of a device in a stage."""

    @abstractmethod
    def sender(self, device: int, stage: int) -> int:
        """The sender to a device in a stage: the inverse of `receiver`."""

    @property
    def is_static(self) -> bool:
        """Whether there is a single permutation."""
        return self.num_stages == 1

    @property
    def period(self) -> int | None:
        """Rounds after which the permutations repeat; None if they never do."""
        if self.num_stages is None or self.num_stages == 1:
            return self.num_stages
        return self.num_stages * self.hold

    def graph(self, round_index: int) -> nx.DiGraph[int]:
        """Graph of a round, with edge attribute `weight`."""
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(range(self.num_devices))
        for device in range(self.num_devices):
            for receiver, weight in self.out_edges(device, round_index):
                graph.add_edge(device, receiver, multiplicity=1, weight=weight)
        return graph

    def out_edges(self, device: int, round_index: int) -> OutEdges:
        """The receiver of a device in a round with its weight, or nothing."""
        receiver = self.receiver(device, round_index // self.hold)
        return () if receiver == device else ((receiver, _WEIGHT),)

    def in_neighbors(self, device: int, round_index: int) -> tuple[int, ...]:
        """The sender to a device in a round, or nothing."""
        sender = self.sender(device, round_index // self.hold)
        return () if sender == device else (sender,)

    def possible_receivers(self, device: int) -> tuple[int, ...]:
        """Receivers of a device in all stages, increasing."""
        return self._peers(device, self.receiver)

    def possible_senders(self, device: int) -> tuple[int, ...]:
        """Senders to a device in all stages, increasing."""
        return self._peers(device, self.sender)

    def is_ever_active(
        self, sender: int, receiver: int, first_round: int = 0, end_round: int = FOREVER
    ) -> bool:
        """Whether a stage of these rounds has such an edge."""
        if sender == receiver or self.num_stages is None:
            return sender != receiver and first_round < end_round
        stages = stages_of_rounds(first_round, end_round, self.hold, self.num_stages)
        return any(self.receiver(sender, stage) == receiver for stage in stages)

    def link_attributes(self, sender: int, receiver: int) -> Mapping[str, object]:  # noqa: ARG002
        """Nothing: these graphs come from no file."""
        return {}

    def _peers(self, device: int, peer: Callable[[int, int], int]) -> tuple[int, ...]:
        """Peers of a device in all stages; if stages never repeat, all other devices."""
        if self.num_stages is None:
            return tuple(other for other in range(self.num_devices) if other != device)
        peers = {peer(device, stage) for stage in range(self.num_stages)}
        return tuple(sorted(peers - {device}))


@dataclass(frozen=True)
class OnePeerExponential(OnePeerSchedule):
    """Device i sends to i + 1, then to i + 2, i + 4, ..., and again from the start.

    For a power of two a period averages exactly. Source: Ying et al. (2021), arXiv 2110.13363.

    Raises:
        TopologyError: no devices, or hold below 1.
    """

    num_devices: int
    hold: int

    def __post_init__(self) -> None:
        _check_devices(self.num_devices)
        check_hold(self.hold)

    @property
    def num_stages(self) -> int:
        """One for each power of two below the number of devices."""
        return len(self._offsets)

    def receiver(self, device: int, stage: int) -> int:
        """The device 1, 2, 4, ... places further, depending on the stage."""
        return (device + self._offsets[stage % self.num_stages]) % self.num_devices

    def sender(self, device: int, stage: int) -> int:
        """The device as many places before."""
        return (device - self._offsets[stage % self.num_stages]) % self.num_devices

    @cached_property
    def _offsets(self) -> tuple[int, ...]:
        return exponential_offsets(self.num_devices) or (0,)  # a lone device rests


@dataclass(frozen=True)
class RotatingPermutations(OnePeerSchedule):
    """The reference code's six permutations of 8 devices in turn (reference.md, section 3.8).

    The reference holds each for int(1 / averaging rate) rounds.

    Raises:
        TopologyError: hold below 1.
    """

    hold: int

    def __post_init__(self) -> None:
        check_hold(self.hold)

    @property
    def num_devices(self) -> int:  # type: ignore[override]
        """Always 8."""
        return len(ROTATING_PERMUTATIONS[0])

    @property
    def num_stages(self) -> int:
        """Always 6."""
        return len(ROTATING_PERMUTATIONS)

    def receiver(self, device: int, stage: int) -> int:
        """The device's entry in the permutation."""
        return ROTATING_PERMUTATIONS[stage % self.num_stages][device]

    def sender(self, device: int, stage: int) -> int:
        """The device whose entry in the permutation is this device."""
        return ROTATING_PERMUTATIONS[stage % self.num_stages].index(device)


@dataclass(frozen=True)
class RandomMatching(OnePeerSchedule):
    """Random pairs exchange, all pairings equally likely; of an odd number one device rests.

    The pairs of a stage follow from seed and stage alone. Over time they connect all devices with
    probability one: 32 stages fail to with a probability below 1e-14.

    Raises:
        TopologyError: no devices, or hold below 1.
    """

    num_devices: int
    seed: int
    hold: int
    _recent: dict[int, tuple[int, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        _check_devices(self.num_devices)
        check_hold(self.hold)

    @property
    def num_stages(self) -> None:
        """None: matchings never repeat."""

    def receiver(self, device: int, stage: int) -> int:
        """The device's partner, or itself if it rests."""
        partners = self._recent.get(stage)
        if partners is None:
            if len(self._recent) >= _CACHED_MATCHINGS:
                self._recent.clear()
            partners = self._recent[stage] = self._draw_partners(stage)
        return partners[device]

    def sender(self, device: int, stage: int) -> int:
        """The partner too: a pair exchanges."""
        return self.receiver(device, stage)

    def _draw_partners(self, stage: int) -> tuple[int, ...]:
        """Partner of each device: a random order, in which each two neighbours form a pair."""
        entropy = np.random.SeedSequence(self.seed, spawn_key=(stage,))
        order = np.random.Generator(np.random.PCG64(entropy)).permutation(self.num_devices)
        right = order[1::2]
        left = order[: 2 * len(right) : 2]
        partners = np.arange(self.num_devices)
        partners[left], partners[right] = right, left
        return tuple(partners.tolist())


def _check_devices(num_devices: int) -> None:
    if num_devices < 1:
        raise TopologyError(f"a schedule for {num_devices} devices: needs at least 1")
