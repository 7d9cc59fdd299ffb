"""Exchanges of Bagua: devices of a site with their leader, and leaders with each other.

Source: docs/reference.md, section 7. With sites an average takes three exchanges: all devices send
to the leader of their site, leaders exchange, and leaders send to their sites. Without sites each
device is a leader, and there is one exchange. Exchanges come in the first rounds of a cycle, since
Bagua communicates after step 1, 1 + H, 1 + 2 H and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, get_args

from topologies.errors import TopologyError
from topologies.schedules import OutEdges
from topologies.several_exchanges import SeveralExchanges
from topologies.spans import FOREVER

Peers: TypeAlias = Literal["ring", "all", "shift_one"]
"""Who exchanges with whom among leaders: neighbours on a ring, all, or one other at a time."""

SITE_EXCHANGES = 3
_UP, _AMONG_LEADERS, _DOWN = range(SITE_EXCHANGES)


@dataclass(frozen=True)
class SiteRounds(SeveralExchanges):
    """Exchanges within sites and among their leaders, in the first rounds of each cycle.

    Args:
        sites: number of the site of each device, from 0; None without sites. The leader of a site
            is its device with the lowest number.
        peers: who exchanges with whom among leaders, in the order of their sites.

    Raises:
        TopologyError: the links lack one that is needed, change, or the sites do not fit.
    """

    sites: tuple[int, ...] | None
    peers: Peers

    def __post_init__(self) -> None:
        if self.num_devices < 2:
            raise TopologyError("one device has nobody to exchange with; must be at least 2")
        if not self.links.is_static:
            raise TopologyError("the links of sites and leaders must stay; choose a fixed graph")
        assert self.peers in get_args(Peers), self.peers
        n = len(self.leaders)
        if self.peers == "shift_one" and n % 2:
            what = "devices" if self.sites is None else "sites"
            raise TopologyError(f"shift_one pairs {what}; {n} are odd, must be even")
        for sender in range(self.num_devices):
            there = {receiver for receiver, _ in self.links.out_edges(sender, 0)}
            if missing := set(self.possible_receivers(sender)) - there:
                raise TopologyError(
                    f"device {sender} has to send to device {min(missing)}, and there is no such "
                    f"link; use kind: {self._fitting}"
                )

    @property
    def _fitting(self) -> str:
        """Graphs that have all links, in words."""
        if self.sites is not None:
            return "complete, or a file with the links within sites and among their leaders"
        return "ring" if self.peers == "ring" else "complete"

    @cached_property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """Devices of each site, increasing."""
        return members_of(self.sites, self.num_devices)

    @cached_property
    def leaders(self) -> tuple[int, ...]:
        """Leader of each site."""
        return tuple(devices[0] for devices in self.members)

    @property
    def exchanges(self) -> int:
        """K: three with sites, else one."""
        return 1 if self.sites is None else SITE_EXCHANGES

    @property
    def first_exchange(self) -> int:
        """The first round in which leaders exchange."""
        return 0 if self.sites is None else _AMONG_LEADERS

    @property
    def is_static(self) -> bool:
        """Whether all exchanges have the same graph."""
        return self.sites is None and self.peers != "shift_one"

    @property
    def period(self) -> int:
        """Rounds after which the graphs repeat."""
        cycles = max(len(self.leaders) // 2, 1) if self.peers == "shift_one" else 1
        return self.exchange_every * cycles

    @property
    def step_share(self) -> float:
        """Share of the rounds that have a step."""
        return self.local_steps / self.exchange_every

    def trains(self, device: int, cycle: int) -> bool:  # noqa: ARG002
        """All do."""
        return True

    def takes_step(self, device: int, round_index: int) -> bool:  # noqa: ARG002
        """Whether devices take a step: in the first round, and after the exchanges."""
        place = round_index % self.exchange_every
        return place == 0 or place >= self.exchanges

    def steps_before(self, round_index: int) -> int:
        """Number of earlier rounds with a step."""
        cycle, place = divmod(round_index, self.exchange_every)
        return cycle * self.local_steps + min(place, 1) + max(place - self.exchanges, 0)

    def possible_receivers(self, device: int) -> tuple[int, ...]:
        """Devices that this one may send to in any round, increasing."""
        return tuple(sorted({*self._site_peers(device), *self._all_leader_peers(device)}))

    def possible_senders(self, device: int) -> tuple[int, ...]:
        """The same devices: all links are used both ways."""
        return self.possible_receivers(device)

    def is_ever_active(
        self, sender: int, receiver: int, first_round: int = 0, end_round: int = FOREVER
    ) -> bool:
        """Whether an edge is active in a round from the first to the one before the end."""
        if receiver not in self.possible_receivers(sender):
            return False
        cycle, every = 0, 1  # the first cycle with the edge, and cycles from one such to the next
        if not (self._is_leader(sender) and self._is_leader(receiver)):
            place = _DOWN if self._is_leader(sender) else _UP
        else:
            place = self.first_exchange
            if self.peers == "shift_one":
                low, high = sorted((self._site_of[sender], self._site_of[receiver]))
                every = len(self.leaders) // 2
                cycle = (high - every - low) % every
        start, period = cycle * self.exchange_every + place, every * self.exchange_every
        return start + max(0, -(-(first_round - start) // period)) * period < end_round

    def _exchange(self, round_index: int) -> tuple[int, int]:
        """Cycle of a round, and its exchange, below 0 if there is none."""
        cycle, place = divmod(round_index, self.exchange_every)
        return cycle, place if place < self.exchanges else -1

    def _receivers(self, device: int, cycle: int, exchange: int) -> OutEdges:
        size = len(self.members[self._site_of[device]])
        if self.sites is None or exchange == _AMONG_LEADERS:
            peers = self._leader_peers(device, cycle)
            weight = {"ring": 2 / 3 / max(len(peers), 1), "all": 1 / len(self.leaders)}
            return tuple((peer, weight.get(self.peers, 0.5)) for peer in peers)
        is_leader = self._is_leader(device)
        if exchange == _UP:
            return () if is_leader else ((self._leader_of(device), 1 / size),)
        return tuple((member, 1.0) for member in self._site_peers(device)) if is_leader else ()

    def _senders(self, device: int, cycle: int, exchange: int) -> tuple[int, ...]:
        if self.sites is None or exchange == _AMONG_LEADERS:
            return self._leader_peers(device, cycle)  # all selections of peers are mutual
        is_leader = self._is_leader(device)
        if exchange == _UP:
            return self._site_peers(device) if is_leader else ()
        return () if is_leader else (self._leader_of(device),)

    def _leader_peers(self, device: int, cycle: int) -> tuple[int, ...]:
        """Leaders with which a device exchanges in a cycle, increasing; none for other devices."""
        if not self._is_leader(device):
            return ()
        ranks = peer_ranks(self.peers, self._site_of[device], len(self.leaders), cycle)
        return tuple(sorted(self.leaders[rank] for rank in ranks))

    def _all_leader_peers(self, device: int) -> set[int]:
        cycles = range(self.period // self.exchange_every)
        return {peer for cycle in cycles for peer in self._leader_peers(device, cycle)}

    def _site_peers(self, device: int) -> tuple[int, ...]:
        """The other devices of a leader's site; the leader of another device's."""
        if self._is_leader(device):
            return self.members[self._site_of[device]][1:]
        return (self._leader_of(device),)

    def _leader_of(self, device: int) -> int:
        return self.leaders[self._site_of[device]]

    def _is_leader(self, device: int) -> bool:
        return self._leader_of(device) == device

    @cached_property
    def _site_of(self) -> tuple[int, ...]:
        return tuple(range(self.num_devices)) if self.sites is None else self.sites


def members_of(sites: Sequence[int] | None, num_devices: int) -> tuple[tuple[int, ...], ...]:
    """Devices of each site, increasing; without sites each device is one of its own.

    Args:
        sites: number of the site of each device; None without sites.
        num_devices: of the fleet.

    Raises:
        TopologyError: another number of devices, or a site without devices.
    """
    if sites is None:
        return tuple((device,) for device in range(num_devices))
    if len(sites) != num_devices:
        raise TopologyError(
            f"sites of {len(sites)} devices; there are {num_devices}, must be one number for each"
        )
    numbers = sorted(set(sites))
    if numbers != list(range(len(numbers))):
        raise TopologyError(
            f"the sites have the numbers {', '.join(map(str, numbers))}; must be 0, 1, 2 and so on"
        )
    members: list[list[int]] = [[] for _ in numbers]
    for device, site in enumerate(sites):
        members[site].append(device)
    return tuple(map(tuple, members))


def even_sites(num_devices: int, num_sites: int) -> tuple[int, ...]:
    """Site of each device, for so many sites of equally many consecutive devices.

    Raises:
        TopologyError: the sites would not be equal.
    """
    if num_devices % num_sites:
        raise TopologyError(
            f"{num_devices} devices can't be divided among {num_sites} equal sites; choose another "
            "number, or give the site of each device"
        )
    size = num_devices // num_sites
    return tuple(device // size for device in range(num_devices))


def peer_ranks(peers: Peers, rank: int, num_ranks: int, step: int) -> tuple[int, ...]:
    """Ranks with which a rank exchanges, without itself; neighbours on a ring may be the same.

    Source: docs/reference.md, section 7.

    Args:
        peers: who exchanges with whom.
        rank: of the one who asks, from 0.
        num_ranks: ranks in all; even for `shift_one`.
        step: exchanges before this one.
    """
    if peers == "ring":
        left, right = (rank - 1) % num_ranks, (rank + 1) % num_ranks
        return tuple(peer for peer in dict.fromkeys((left, right)) if peer != rank)
    if peers == "all":
        return tuple(peer for peer in range(num_ranks) if peer != rank)
    half = num_ranks // 2
    if rank < half:
        return ((step + rank) % ((num_ranks + 1) // 2) + half,)
    return ((rank - half - step) % half,)
