"""Further rounds of gossip without training, before models are evaluated.

The authors evaluate the devices' own models after 50 such rounds and call their mean accuracy that
of the averaged model (reference.md, section 8). The rounds are computed from copies of the devices'
states, after these have left the fleet; so the run goes on as if there were none.

Differs from the authors' code: there each of these rounds also has a forward pass in training mode,
which changes the statistics of batch norms and the ranges of quantizers. Here both stay as they
are; ranges that are gossiped (`model.quantization.ranges`) are mixed like parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgesim.gossip.algorithm import Algorithm, GossipState, OutEdge, Place, Share
from edgesim.gossip.optional_members import starting_state
from edgesim.results.snapshot import Snapshot
from edgesim.storage.state_tree import restore_
from edgesim.streams import StreamPurpose, stream
from topologies import Schedule, first_exchange, weight_by_sender


@dataclass(frozen=True, slots=True)
class FurtherGossip:
    """Gossip of a fleet in lockstep, all of whose devices are there, without local steps.

    Attributes:
        algorithm: of the fleet.
        schedule: which graph holds in which round; it goes on after the last round of the run.
        seed: of the scenario, for compressors that draw at random.
        num_rounds: rounds of gossip; of a fleet with local steps each is an exchange.
    """

    algorithm: Algorithm[Any]
    schedule: Schedule
    seed: int
    num_rounds: int

    def __call__(
        self, snapshots: Sequence[Snapshot], check: Callable[[], None] = lambda: None
    ) -> list[Snapshot]:
        """The devices' models after the further rounds, in the order of devices.

        Args:
            snapshots: of all devices after the same round, with their states of gossip; they are
                not changed.
            check: called before each round; an error that it raises ends the gossip.
        """
        ordered = sorted(snapshots, key=lambda snapshot: snapshot.device)
        states = [self._state_of(snapshot) for snapshot in ordered]
        for round_index in self._rounds_after(ordered[0].rounds_done):
            check()
            self._exchange_(states, round_index)
        return [
            replace(snapshot, x=state.x, u=state.u, gossip=None)
            for snapshot, state in zip(ordered, states, strict=True)
        ]

    def _state_of(self, snapshot: Snapshot) -> GossipState:
        """State of a device in tensors of its own."""
        first, device = first_exchange(self.schedule), snapshot.device
        in_weights = weight_by_sender(self.schedule, device, first)
        place = Place(index=device, num_devices=self.schedule.num_devices, num_samples=1)
        state: GossipState = starting_state(self.algorithm, snapshot.x.clone(), in_weights, place)
        assert snapshot.gossip is not None, "kept where further gossip is asked for"
        restore_(state, snapshot.gossip.content, snapshot.gossip.arrays)
        return state

    def _rounds_after(self, rounds_done: int) -> range:
        """The next rounds in which devices exchange messages."""
        every, first = self.schedule.exchange_every, first_exchange(self.schedule)
        start = first + -(-max(rounds_done - first, 0) // every) * every
        return range(start, start + self.num_rounds * every, every)

    def _exchange_(self, states: Sequence[GossipState], round_index: int) -> None:
        """One round of gossip: all devices send, then each absorbs in the order of senders."""
        arrived: list[list[Share]] = [[] for _ in states]
        for device, state in enumerate(states):
            edges = [OutEdge(*edge) for edge in self.schedule.out_edges(device, round_index)]
            rng = stream(self.seed, StreamPurpose.FURTHER_GOSSIP, device, round_index)
            for share in self.algorithm.send_(state, edges, rng):
                arrived[share.peer].append(replace(share, peer=device))
        for state, shares in zip(states, arrived, strict=True):
            self.algorithm.absorb_(state, shares)
