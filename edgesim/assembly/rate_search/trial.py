"""Gossip without training, at several averaging rates, always from the same start.

Symbols:
    x_i: numerator   u_i: push weight   z_i = x_i / u_i   x_bar: mean of the x_i at the start
    distance: sqrt(mean_i |z_i - x_bar|^2), relative to that of the start
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from math import inf, isfinite, sqrt
from typing import Any

import torch

from edgesim.assembly.free_clocks import EndOfRound, clocks_of
from edgesim.assembly.gossip import make_algorithm, with_rate
from edgesim.assembly.parts.own_calls import is_own
from edgesim.assembly.rate_search.search_fleet import SearchFleet
from edgesim.assembly.studied_scenario import StudiedScenario
from edgesim.gossip.algorithm import Algorithm, GossipState, OutEdge, Place, Share
from edgesim.gossip.optional_members import starting_state
from edgesim.hardware.free_clock import MessageKey
from edgesim.learning.parameters import ParameterLayout
from edgesim.streams import StreamPurpose, stream, torch_seed
from topologies import OutEdges, Schedule, first_exchange, weight_by_sender

TOGETHER = 1e-3  # distance at which devices count as together; float32 reaches 1e-6
APART = 30.0  # distance at which they count as diverging: the first messages add some
REBOUND = 3.0  # growth from the least distance on that counts as diverging, too
_MOST_IDLE = 50  # rounds without a message, for one with


class Trials:
    """Trials of one fleet.

    Args:
        studied: the scenario, as objects.
        fleet: fleet that gossips.
        layout: layout of the vectors.
        num_rounds: largest number of rounds of a trial.
    """

    def __init__(
        self,
        studied: StudiedScenario,
        fleet: SearchFleet,
        layout: ParameterLayout,
        *,
        num_rounds: int,
    ) -> None:
        self._studied = studied
        self._fleet = fleet
        self._layout = layout
        self.num_rounds = num_rounds
        self._clocks: Iterator[EndOfRound] = iter(())
        if studied.scenario.fleet.rules.goes_by_clock:
            self._clocks = clocks_of(
                studied, fleet.hardware, fleet.schedule, has_full_batches=True
            ).run()
        self._ended: list[EndOfRound] = []
        generator = torch.Generator()
        generator.manual_seed(torch_seed(studied.scenario.seed, StreamPurpose.AVERAGING_RATE))
        n = fleet.schedule.num_devices
        # The vectors have a common part, as models have; compressed gossip must transmit it first.
        self._common_D = torch.randn(layout.numel, generator=generator)
        self._start_ND = self._common_D + torch.randn(n, layout.numel, generator=generator)
        mean_D = self._start_ND.double().mean(0)
        squares = (self._start_ND.double() - mean_D).square().sum(1)
        self._start_distance = sqrt(squares.mean())

    @property
    def num_devices(self) -> int:
        """Devices that gossip."""
        return self._fleet.schedule.num_devices

    @property
    def num_entries(self) -> int:
        """Length of the vector that is gossiped."""
        return self._layout.numel

    def shrinks(self, rate: float) -> float:
        """Mean share of the distance that a round removes; minus infinity if the distance grows.

        In lockstep a round is one round of every device. At free pace it is as many rounds of any
        devices as there are devices. Rounds without messages do not count.
        """
        start = least = distance = self._start_distance
        done = 0
        for distance in self._distances(rate):
            done += 1
            least = min(least, distance)
            if not isfinite(distance) or distance > APART * start:
                return -inf
            if distance < TOGETHER * start:
                break
        if not done or distance >= start or distance > REBOUND * least:
            return -inf
        return float(1.0 - (distance / start) ** (1.0 / done))

    def growth(self, rate: float) -> float:
        """The distance at the end of a trial, by that of the start; infinity beyond APART."""
        distance = self._start_distance
        for distance in self._distances(rate):
            if not distance <= APART * self._start_distance:
                return inf
        return distance / self._start_distance

    def _distances(self, rate: float) -> Iterator[float]:
        """Distances after each round of gossip at a rate."""
        scenario, schedule = self._studied.scenario, self._fleet.schedule
        algorithm = make_algorithm(with_rate(scenario, rate), self._layout, schedule)
        # A run begins with equal models, and an own algorithm may rely on that.
        common_D = self._common_D if is_own(scenario.gossip.algorithm) else None
        gossip = _Gossip(algorithm, schedule, self._start_ND, common_D, scenario.seed)
        by_clocks = scenario.fleet.rules.goes_by_clock
        rounds = gossip.by_clocks(self._free_rounds()) if by_clocks else gossip.in_step()
        for _ in islice(rounds, self.num_rounds):
            yield gossip.distance()

    def _free_rounds(self) -> Iterator[EndOfRound]:
        """Rounds by the fleet's clocks, the same in each trial; the clocks run on first use."""
        yield from self._ended
        for round_ in self._clocks:
            self._ended.append(round_)
            yield round_


class _Gossip:
    """Gossip states of a fleet, and the operations that change them.

    Args:
        algorithm: of all devices.
        schedule: of their graphs.
        start_ND: the models from which they gossip, a row for each.
        common_D: the model that a device's state is made with; None: its own of `start_ND`.
        seed: of the compressor's random numbers.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any],
        schedule: Schedule,
        start_ND: torch.Tensor,
        common_D: torch.Tensor | None,
        seed: int,
    ) -> None:
        self._algorithm = algorithm
        self._schedule = schedule
        self._mean_D = start_ND.double().mean(0)
        self._rng = stream(seed, StreamPurpose.AVERAGING_RATE)
        first = first_exchange(schedule)
        self._states: list[GossipState] = []
        for device, start_D in enumerate(start_ND):
            place = Place(index=device, num_devices=len(start_ND), num_samples=1)
            x = (start_D if common_D is None else common_D).clone()
            in_weights = weight_by_sender(schedule, device, first)
            state: GossipState = starting_state(algorithm, x, in_weights, place)
            state.x.copy_(start_D)
            self._states.append(state)

    def distance(self) -> float:
        """Root of the mean squared distance of the z_i from x_bar."""
        squares = [
            float((state.x.double() / state.u - self._mean_D).square().sum())
            for state in self._states
        ]
        return sqrt(sum(squares) / len(squares))

    def in_step(self) -> Iterator[None]:
        """Rounds of all devices, without rounds that have no message."""
        devices, round_index, idle = range(self._schedule.num_devices), 0, 0
        while idle < _MOST_IDLE * self._schedule.hold:
            inboxes: list[list[Share]] = [[] for _ in devices]
            for device in devices:
                edges = self._schedule.out_edges(device, round_index)
                for receiver, share in self._send(device, edges):
                    inboxes[receiver].append(share)
            for device, inbox in zip(devices, inboxes, strict=True):
                self._algorithm.absorb_(self._states[device], inbox)  # by the order of senders
            round_index += 1
            idle += 1
            if any(inboxes):
                idle = 0
                yield

    def by_clocks(self, rounds: Iterable[EndOfRound]) -> Iterator[None]:
        """Groups of rounds with messages; a group has as many rounds as there are devices."""
        num_devices = self._schedule.num_devices
        sent, idle = 0, 0
        under_way: dict[MessageKey, Share] = {}
        sequences: Counter[tuple[int, int]] = Counter()
        for round_ in rounds:
            for receiver, share in self._send(round_.device, round_.sent):
                edge = round_.device, receiver
                under_way[*edge, sequences[edge]] = share
                sequences[edge] += 1
            received = [under_way.pop(key) for key in round_.absorbed]
            self._algorithm.absorb_(self._states[round_.device], received)
            sent += bool(round_.sent)
            idle += 1
            if sent == num_devices:
                sent, idle = 0, 0
                yield
            elif idle > _MOST_IDLE * num_devices:
                return

    def _send(self, device: int, edges: OutEdges) -> Iterator[tuple[int, Share]]:
        """Receivers, and the shares that they receive."""
        if not edges:
            return
        out_edges = [OutEdge(receiver, weight) for receiver, weight in edges]
        for share in self._algorithm.send_(self._states[device], out_edges, self._rng):
            sent = Share(device, share.weight, share.push_weight, share.payload)
            yield share.peer, sent
