"""One edge device: its shard, its gossip state, its meters. No Ray, no asyncio.

A device is driven from outside, always in this order, once a round:

    device.step(model)                     # local step
    letters = device.send()                # what leaves on each active out-edge
    device.take_note(messages)             # of leave-taking; says which further ones to wait for
    device.absorb(arrivals)                # what came in on each active in-edge
    device.leave(next_sequences)           # only if it `must_leave`: its last messages
    device.report()                        # what is recorded of the round

A device that is absent in a round does nothing in it; one that has no mass yet takes no step.
free_device.py has what is different at free pace.

It keeps only flat vectors; the model it computes with is borrowed for the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import nan
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from edgesim.compression.errors import CompressionError
from edgesim.compression.wire import Message
from edgesim.costs.metered_model import MeteredModel
from edgesim.costs.round_work import gossip_work
from edgesim.device.mail import Arrival, Letter, LifeSign, Outbox, Promise
from edgesim.device.membership import Edge, Membership, WeightedEdge, has_turn_to_leave
from edgesim.device.round_figures import RoundFigures, Stopwatch
from edgesim.device.succession import (
    copies_for_heir,
    drop_internal_copies_,
    inherit_copies_,
    inherit_mass_,
    inherited_sequences,
    legacy,
)
from edgesim.device.trainer import DivergedError, Trainer
from edgesim.gossip.algorithm import Algorithm, OutEdge, Share
from edgesim.hardware.meter import Meter
from edgesim.hardware.work import Work
from edgesim.results.columns import RoundReport
from edgesim.results.snapshot import Snapshot
from edgesim.storage.state_tree import Arrays, pack, restore_, unpack
from edgesim.streams import Purpose, stream
from topologies import Schedule, first_exchange, possible_receivers


class Device:
    """A device with its own data, taking part in gossip over a schedule of graphs.

    Args:
        index: number of the device, from 0.
        seed: of the scenario.
        schedule: which graph holds in which round, for all devices.
        algorithm: gossip algorithm, a frozen object.
        trainer: takes its local steps.
        num_rounds: of the device.
        x: initial parameters, shape (D,), the same on all devices; taken over.
        meter: of its virtual time and energy; None where it has no profile.

    Attributes:
        index: see above.
        round_index: rounds that it has completed.
        membership: who it exchanges messages with.
        has_left: it has handed over what it had, or stopped as the last of all.
    """

    def __init__(
        self,
        *,
        index: int,
        seed: int,
        schedule: Schedule,
        algorithm: Algorithm[Any],
        trainer: Trainer,
        num_rounds: int,
        x: Tensor,
        meter: Meter | None,
    ) -> None:
        self.index = index
        self.round_index = 0
        self.membership = Membership(index, schedule)
        self.has_left = False
        self._seed = seed
        self._has_heir = False
        self._algorithm = algorithm
        self._trainer = trainer
        self._num_rounds = num_rounds
        self._gossip_state = algorithm.init(x, _in_weights(schedule, index))
        if schedule.presence.join_round(index) > 0:  # it brings no mass: the first message does
            self._gossip_state.x.zero_()
            self._gossip_state.u = 0.0
        self._outbox = Outbox(index, algorithm.name, meter)
        self._figures: RoundFigures | None = None
        self._meter = meter

    def in_edges(self) -> list[Edge]:
        """Edges on which a message of the current round has to be absorbed, increasing."""
        return self.membership.in_edges(self.round_index)

    @property
    def waits_for_mail(self) -> bool:
        """Whether the round under way can't end before messages have arrived."""
        return bool(self.in_edges())

    def expects(self, message: Message) -> bool:
        """Whether such a message can be due: of our algorithm, on an edge active in its round."""
        return message.algorithm == self._algorithm.name and self.membership.expects(message)

    def take_note(self, messages: Sequence[Message]) -> list[Edge]:
        """Learn from messages of the round who has left.

        Returns:
            Edges on which one more message each belongs to this round; an edge may occur twice.
        """
        return [
            edge
            for message in messages
            for edge in self.membership.take_note(message, self.round_index)
        ]

    @property
    def is_done(self) -> bool:
        """Whether there is no round left to do."""
        return self.has_left or self.round_index >= self._num_rounds

    @property
    def is_in_last_round(self) -> bool:
        """Whether the round under way is the last."""
        return self.round_index + 1 >= self._num_rounds

    @property
    def listens_first(self) -> bool:
        """Whether it must be known what reaches the device before it can send: at free pace."""
        return False

    def promises(self, sent: Sequence[Letter]) -> list[Promise]:  # noqa: ARG002
        """What the device promises on edges on which nothing was sent: at free pace."""
        return []

    def life_signs(self) -> list[LifeSign]:
        """What the device says to those that send to it, if it may die: at free pace."""
        return []

    @property
    def now_s(self) -> float:
        """The device's clock, or 0 where it has none."""
        return self._meter.now_s if self._meter else 0.0

    def step(self, model: MeteredModel) -> None:
        """One local step at z = x/u, if the device is there and has mass.

        Raises:
            DivergedError: the loss, an activation, a gradient or a parameter is not finite.
        """
        start = Stopwatch.start()
        if any(map(self._is_present, self.membership.addresses)):
            loss, rate, work = nan, 0.0, Work()
            # An heir answers for others also where it is absent itself.
            if self._gossip_state.u > 0 and self._is_present(self.index):
                rate = self._trainer.learning_rate(self.round_index)
                loss, work = self._trainer.step_(self._gossip_state, model, self.round_index)
            degrees = self._degrees(work)
            work += self._gossip_work(*degrees)
            self._figures = RoundFigures(loss, rate, work, in_degree=degrees[1])
            self._spend(work, model)
            self._figures.stopwatch += start.stop()

    def _spend(self, work: Work, model: MeteredModel) -> None:  # noqa: ARG002
        """Let the clock go on by the work of the step."""
        if self._meter is not None:
            self._meter.step(work, self.round_index)

    def send(self) -> list[Letter]:
        """The messages of this round."""
        if self._figures is None:
            return []
        start = Stopwatch.start()
        letters = self._send(self._out_edges(), self.round_index)
        self._figures.stopwatch += start.stop()
        return letters

    def absorb(self, arrivals: Sequence[Arrival]) -> None:
        """Mix in the messages of this round: one per in-edge, and what was left to this device.

        The order of `arrivals` does not matter: sums never depend on the order of arrival.
        """
        if self._figures is None:
            assert not arrivals, "nobody sends to a device that is absent"
            return
        start, figures = Stopwatch.start(), self._figures
        arrived = sorted(arrivals, key=lambda a: _place(a.message))
        self._mix_in([arrival.message for arrival in arrived])
        if self._meter is not None:
            stamps = [(a.message.sender, a.stamp) for a in arrived if a.stamp is not None]
            assert len(stamps) == len(arrived), "devices of one fleet all have clocks, or none has"
            self._meter.end_round(stamps, figures.received_bytes)
        if len(arrived) > figures.in_degree:  # somebody left, and more came than was to be expected
            self._work_more(self._gossip_work(0, len(arrived) - figures.in_degree))
        figures.stopwatch += start.stop()

    def _mix_in(self, messages: Sequence[Message]) -> None:
        """Let messages work on the device's state, in the order given."""
        assert self._figures is not None, "within a round"
        state = self._gossip_state
        inherit_copies_(state, messages)
        self._algorithm.absorb_(state, [self._share(m) for m in messages if m.kind == "share"])
        if self._figures.has_stepped:
            self._trainer.after_gossip_(state, self.round_index)
        # After the optimizer, which would take a legacy for a movement of the model.
        for message in messages:
            if message.kind == "handover":
                inherit_mass_(state, message)
                self._outbox.next_sequences |= inherited_sequences(message)
        drop_internal_copies_(state, self.membership)
        self._figures.received_bytes = sum(m.wire_bytes for m in messages)

    @property
    def must_leave(self) -> bool:
        """Whether the device has to leave after the round that was absorbed.

        Its stay is over, or its battery would not last until its next turn.
        """
        schedule, next_round = self.membership.schedule, self.round_index + 1
        is_its_turn = has_turn_to_leave(schedule, self.index, next_round)
        if not is_its_turn or self.is_in_last_round or self._figures is None:
            return False
        end = schedule.presence.leave_round(self.index)
        if end is not None and next_round >= end:
            return True
        if self._meter is None:
            return False
        copies = copies_for_heir(self._gossip_state, self.membership)
        last_bytes = self._gossip_state.x.nbytes * (1 + len(copies)) + self._outbox.sent.total
        n, every = schedule.num_devices, schedule.exchange_every  # n exchanges to its next turn
        return not self._meter.lasts(n, n * (every - 1), last_bytes)

    def leave(self, next_sequences: Mapping[Edge, int]) -> list[Letter]:
        """Leave for good, if somebody is there to take over; see `has_left` for whether.

        In the next round the device sends its shares without a step before, and on the first edge,
        in the place of a share, all that remains. The last of all devices has nobody to hand over
        to and keeps what it has. If there are others, but no edge to them in the next round, the
        device stays.

        Args:
            next_sequences: of the messages that would be absorbed next, by edge.

        Returns:
            Last letters, the heir's first, as of the next round.
        """
        next_round = self.round_index + 1
        edges = self.membership.out_edges(next_round)
        own, schedule = self.membership.addresses, self.membership.schedule
        is_last = all(d in own for a in own for d in possible_receivers(schedule, a))
        self.has_left, self._has_heir = bool(edges) or is_last, bool(edges)
        if not edges:
            return []
        heir, *others = edges
        letters = self._send(others, next_round)
        self._work_more(self._gossip_work(len(others), 0))
        sequences = {**next_sequences, **self._outbox.next_sequences}
        last = [
            self._outbox.write(
                (heir.sender, heir.receiver),
                next_round,
                draft.kind,
                draft.payload,
                push_weight=draft.push_weight,
                notes=draft.notes,
                sent_in=self.round_index,
            )
            for draft in legacy(
                self._gossip_state, self._algorithm.layout, self.membership, sequences
            )
        ]
        return last + letters

    def report(self) -> RoundReport | None:
        """End the round and say what happened in it; None if the device was absent."""
        figures, sent = self._figures, self._outbox.sent
        self.round_index += 1
        if figures is None:
            return None
        costs = self._meter.settle() if self._meter is not None else None
        record = figures.record(
            device=self.index,
            round_index=self.round_index - 1,
            epoch=self._trainer.epoch(self.round_index - 1),
            push_weight=self._gossip_state.u,
            sent=sent,
            messages_sent=len(self._outbox.records),
            costs=costs,
        )
        report = RoundReport(record, tuple(self._outbox.records))
        self._figures = None
        self._outbox.clear()
        return report

    def state(self, arrays: Arrays) -> dict[str, Any]:
        """All that the device is between two rounds, for a checkpoint; vectors go into `arrays`."""
        return {
            "round_index": self.round_index,
            "has_left": self.has_left,
            "has_heir": self._has_heir,
            "addresses": list(self.membership.addresses),
            "next_sequences": pack(self._outbox.next_sequences, arrays, "next_sequences"),
            "gossip": pack(self._gossip_state, arrays, "gossip"),
            "trainer": self._trainer.state(arrays),
            "meter": None if self._meter is None else self._meter.state(),
        }

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Become what `state` described."""
        self.round_index = state["round_index"]
        self.has_left, self._has_heir = state["has_left"], state["has_heir"]
        self.membership.inherit(state["addresses"])
        self._outbox.next_sequences = unpack(state["next_sequences"], arrays)
        restore_(self._gossip_state, state["gossip"], arrays)
        self._trainer.restore(state["trainer"], arrays)
        if self._meter is not None:
            self._meter.restore(state["meter"])

    def snapshot(self) -> Snapshot:
        """Copy of the model between two rounds."""
        state = self._gossip_state
        return Snapshot(
            device=self.index,
            round_index=self.round_index,
            rounds_done=self.round_index,
            x=state.x.clone(),
            u=state.u,
            buffers=self._trainer.buffers.clone(),
            virtual_time_s=self._meter.now_s if self._meter else None,
        )

    def snapshot_of_round(self) -> Snapshot:
        """The same at the end of a round that was absorbed and is not yet reported."""
        done = self.round_index + 1
        return replace(self.snapshot(), round_index=done, rounds_done=done)

    def final_snapshot(self, number: int) -> Snapshot:
        """What an evaluation of that number finds of a device that has ended before it.

        Nothing, if somebody took over; else the model that it ended with.
        """
        kept = self.snapshot()
        if self._has_heir:
            kept = replace(kept, x=torch.zeros_like(kept.x), u=0.0)
        return replace(kept, round_index=number)

    def _is_present(self, address: int) -> bool:
        return self.membership.schedule.presence.is_present(address, self.round_index)

    def _out_edges(self) -> list[WeightedEdge]:
        """Edges on which the messages of this round are sent."""
        return self.membership.out_edges(self.round_index)

    def _degrees(self, work: Work) -> tuple[int, int]:  # noqa: ARG002
        """Messages that a round is to send and to absorb, as far as its work goes.

        Args:
            work: of its step.
        """
        return len(self._out_edges()), len(self.in_edges())

    def _gossip_work(self, out_degree: int, in_degree: int) -> Work:
        return gossip_work(self._algorithm, len(self._gossip_state.x), out_degree, in_degree)

    def _work_more(self, work: Work) -> None:
        """Count work that a round turns out to have after its step."""
        assert self._figures is not None, "within a round"
        self._figures.work += work
        if self._meter is not None:
            self._meter.work_more(work)

    def _send(self, edges: Sequence[WeightedEdge], round_index: int) -> list[Letter]:
        """Letters of a round to these neighbours."""
        own = self.index
        out_edges = [
            OutEdge(e.receiver, e.weight, None if e.sender == own else e.sender) for e in edges
        ]
        rng = stream(self._seed, Purpose.COMPRESS, own, round_index)
        try:
            shares = self._algorithm.send_(self._gossip_state, out_edges, rng)
        except CompressionError as error:
            raise DivergedError.of(self._trainer.label, self.round_index, str(error)) from error
        return [
            self._outbox.write(
                (own if share.address is None else share.address, share.peer),
                round_index,
                "share",
                share.payload,
                weight=share.weight,
                push_weight=share.push_weight,
                sent_in=self.round_index,
            )
            for share in shares
        ]

    def _share(self, message: Message) -> Share:
        """What the algorithm must know of a message."""
        address = None if message.receiver == self.index else message.receiver
        return Share(message.sender, message.weight, message.push_weight, message.payload, address)


def _place(message: Message) -> tuple[int, int, int]:
    """Order in which messages are absorbed."""
    return message.sender, message.receiver, message.sequence


def _in_weights(schedule: Schedule, device: int) -> dict[int, float]:
    """Weight of each in-edge of the first exchange, by sender."""
    first = first_exchange(schedule)
    return {
        sender: dict(schedule.out_edges(sender, first))[device]
        for sender in schedule.in_neighbors(device, first)
    }
