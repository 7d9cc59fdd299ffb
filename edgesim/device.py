"""One edge device: its shard, its gossip state, its meters. No Ray, no asyncio.

A device is driven from outside, always in this order, once a round:

    letters = device.train(model)          # local step, then what leaves on each active out-edge
    device.take_note(messages)             # of leave-taking; says which further ones to wait for
    device.absorb(arrivals)                # what came in on each active in-edge
    device.leave(next_sequences)           # only if `is_exhausted`: its last messages
    device.report()                        # what is recorded of the round

It keeps only flat vectors; the model it computes with is borrowed for the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from time import perf_counter, thread_time
from typing import Any

import torch
from torch import Tensor

from edgesim.compression.errors import CompressionError
from edgesim.compression.lossless import nothing, whole
from edgesim.compression.payload import Payload
from edgesim.compression.wire import Kind, Message
from edgesim.costs.metered_model import MeteredModel
from edgesim.costs.round_work import gossip_work, optimizer_work
from edgesim.data.batches import BatchStream
from edgesim.errors import EdgesimError
from edgesim.gossip.algorithm import Algorithm, InEdge, OutEdge, Share
from edgesim.hardware.meter import Meter, RoundCosts
from edgesim.hardware.work import Work
from edgesim.learning.optimizers import LearningRateSchedule, Optimizer
from edgesim.mail import Arrival, Letter, Outbox
from edgesim.membership import Edge, Membership, Will
from edgesim.models.dropout import seed_dropout_
from edgesim.quant.errors import NonFiniteError
from edgesim.quant.layers import seed_rounding_
from edgesim.records import MessageRecord, RoundRecord
from edgesim.streams import Purpose, stream, torch_seed
from topologies import Schedule


class DivergedError(EdgesimError):
    """Training left the finite numbers; says which device, when, and what to lower."""


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What is recorded of one round of one device: the round, and the messages it sent in it."""

    round: RoundRecord
    messages: tuple[MessageRecord, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is needed to evaluate a device's model, and to average it with the others'.

    Attributes:
        device: which one.
        round_index: rounds that it has completed.
        x: numerator, shape (D,); u: push weight; the model is x/u.
        buffers: the model's local statistics, flat.
        virtual_time_s: the device's clock; None where it has none.
    """

    device: int
    round_index: int
    x: Tensor
    u: float
    buffers: Tensor
    virtual_time_s: float | None


@dataclass(slots=True)
class _RoundFigures:
    """Figures of the round under way."""

    loss: float
    learning_rate: float
    wall_s: float
    cpu_s: float
    work: Work
    received_bytes: int = 0


class Device:
    """A device with its own data, taking part in gossip over a schedule of graphs.

    Args:
        index: number of the device, from 0.
        seed: of the scenario.
        batches: mini-batches of the device's shard, a pure function of the round.
        schedule: which graph holds in which round, for all devices.
        algorithm: gossip algorithm, a frozen object.
        optimizer: local optimizer, a frozen object.
        learning_rates: by epoch.
        rounds_per_epoch: rounds that the fleet calls an epoch.
        x: initial parameters, shape (D,), the same on all devices; taken over.
        num_trainable: entries of x that have a gradient; the others, at its end, are statistics.
        buffers: initial local statistics of the model; taken over.
        meter: of its virtual time and energy; None where it has no profile.
        possible_receivers: devices that it may ever send to, who would miss it.

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
        batches: BatchStream,
        schedule: Schedule,
        algorithm: Algorithm[Any],
        optimizer: Optimizer,
        learning_rates: LearningRateSchedule,
        rounds_per_epoch: int,
        x: Tensor,
        num_trainable: int,
        buffers: Tensor,
        meter: Meter | None,
        possible_receivers: Sequence[int],
    ) -> None:
        self.index = index
        self.round_index = 0
        self._seed = seed
        self._batches = batches
        self.membership = Membership(index, schedule)
        self.has_left = False
        self._has_heir = False
        self._algorithm = algorithm
        self._optimizer = optimizer
        self._learning_rates = learning_rates
        self._rounds_per_epoch = rounds_per_epoch
        self._buffers = buffers
        self._num_trainable = num_trainable
        self._optimizer_state = optimizer.init(x[:num_trainable])
        self._gossip_state = algorithm.init(x, _in_weights(schedule, index))
        self._outbox = Outbox(meter)
        self._figures: _RoundFigures | None = None
        self._meter = meter
        self._possible_receivers = possible_receivers
        self._push_weight_at_step = 1.0

    def in_edges(self) -> list[Edge]:
        """Edges on which a message of the current round has to be absorbed, increasing."""
        return self.membership.in_edges(self.round_index)

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

    def train(self, model: MeteredModel) -> list[Letter]:
        """One local step at z = x/u, then the messages of this round.

        Raises:
            DivergedError: the loss, an activation, a gradient or a parameter is not finite.
        """
        wall_start, cpu_start = perf_counter(), thread_time()
        state, rate = self._gossip_state, self._learning_rates.at(self._epoch())
        flat, trainable = model.flat, self._num_trainable
        seed_dropout_(flat.leaves, self._seed_of(Purpose.DROPOUT))
        seed_rounding_(flat.leaves, self._seed_of(Purpose.ROUNDING))
        images_NCHW, labels_N = self._batches.batch(self.round_index)
        flat.load_(state.debiased(), self._buffers)
        try:
            loss, gradient, work = model.loss_and_gradient(images_NCHW, labels_N)
        except NonFiniteError as error:
            raise self._diverged(str(error)) from error
        if not isfinite(loss):
            raise self._diverged(f"the loss is {loss}")
        self._buffers.copy_(flat.buffers)
        self._push_weight_at_step = state.u
        self._optimizer.step_(
            self._optimizer_state, state.x[:trainable], gradient[:trainable], rate
        )
        state.x[trainable:] = flat.parameters[trainable:] * state.u
        work += self._work_beside_the_model()
        if self._meter is not None:
            self._meter.step(work, self.round_index)
        letters = self._send()
        wall_s, cpu_s = perf_counter() - wall_start, thread_time() - cpu_start
        self._figures = _RoundFigures(loss, rate, wall_s, cpu_s, work)
        return letters

    def absorb(self, arrivals: Sequence[Arrival]) -> None:
        """Mix in the messages of this round: one per in-edge, and what was left to this device.

        The order of `arrivals` does not matter: sums never depend on the order of arrival.
        """
        assert self._figures is not None, "absorb follows train"
        wall_start, cpu_start, figures = perf_counter(), thread_time(), self._figures
        arrived = sorted(arrivals, key=lambda a: _place(a.message))
        messages = [arrival.message for arrival in arrived]
        state = self._gossip_state
        self._adopt_copies([m for m in messages if m.kind == "copy"])
        self._algorithm.absorb_(state, [self._share(m) for m in messages if m.kind == "share"])
        self._optimizer.after_gossip_(
            self._optimizer_state,
            state.x[: self._num_trainable],
            self._push_weight_at_step,
            figures.learning_rate,
        )
        # After the optimizer, which would take a legacy for a movement of the model.
        for message in messages:
            if message.kind == "handover":
                message.payload.add_to_(state.x)
                state.u += message.push_weight
            if message.kind != "share":
                state.received_copies().pop(self._in_edge(message.sender, message.receiver), None)
        figures.received_bytes = sum(m.wire_bytes for m in messages)
        if self._meter is not None:
            stamps = [(a.message.sender, a.stamp) for a in arrived if a.stamp is not None]
            assert len(stamps) == len(arrived), "devices of one fleet all have clocks, or none has"
            self._meter.end_round(stamps, figures.received_bytes)
        figures.wall_s += perf_counter() - wall_start
        figures.cpu_s += thread_time() - cpu_start

    @property
    def is_exhausted(self) -> bool:
        """Whether the device has to leave after the round that was absorbed.

        A device leaves in a round of its own, one in as many as there are devices: two that left
        at once could each be the other's heir. It leaves if it would not last until the next one.
        """
        num_devices = self.membership.schedule.num_devices
        is_its_own = (self.round_index + 1) % num_devices == self.index
        return is_its_own and self._meter is not None and not self._meter.lasts(num_devices)

    def leave(self, next_sequences: Mapping[Edge, int]) -> list[Letter]:
        """Leave for good, if somebody is there to take over; see `has_left` for whether.

        All that the device holds goes to the first receiver of the next round. The last of all
        devices has nobody to hand over to and keeps what it has. If there are receivers, but none
        in the next round, the device stays.

        Args:
            next_sequences: of the messages that would be absorbed next, by edge.

        Returns:
            Last letters, the heir's first. They take the place of those of the next round.
        """
        next_round = self.round_index + 1
        others = [d for d in self._possible_receivers if d not in self.membership.addresses]
        heir = self.membership.heir(next_round)
        self._has_heir = heir is not None
        self.has_left = self._has_heir or not others
        if heir is None:
            return []
        will = self.membership.will(
            len(self._gossip_state.received_copies()), next_sequences, next_round
        )
        others.remove(heir)
        bye = nothing(self._algorithm.layout)
        farewells = [self._post(other, "farewell", bye, 0.0, 0.0) for other in others]
        return [*self._hand_over(heir, will), *farewells]

    def report(self) -> RoundReport:
        """End the round and say what happened in it."""
        assert self._figures is not None, "report follows absorb"
        figures, sent = self._figures, self._outbox.sent
        costs = self._meter.settle() if self._meter is not None else None
        record = RoundRecord(
            device=self.index,
            round=self.round_index,
            epoch=self._epoch(),
            loss=figures.loss,
            learning_rate=figures.learning_rate,
            push_weight=self._gossip_state.u,
            sent_bytes=sent.total,
            sent_value_bytes=sent.values,
            sent_index_bytes=sent.indices,
            sent_overhead_bytes=sent.scales + sent.header,
            received_bytes=figures.received_bytes,
            messages_sent=len(self._outbox.records),
            **asdict(figures.work),
            **(_clock_columns(costs) if costs else {}),
            compute_wall_s=figures.wall_s,
            compute_cpu_s=figures.cpu_s,
        )
        report = RoundReport(record, tuple(self._outbox.records))
        self._figures = None
        self._outbox.clear()
        self.round_index += 1
        return report

    def snapshot(self) -> Snapshot:
        """Copy of the model between two rounds."""
        state = self._gossip_state
        return Snapshot(
            self.index,
            self.round_index,
            state.x.clone(),
            state.u,
            self._buffers.clone(),
            self._meter.now_s if self._meter else None,
        )

    def snapshot_after_leaving(self, round_index: int) -> Snapshot:
        """What an evaluation of a later round finds of a device that has left.

        Nothing, if somebody took over; the last of all devices kept its model.
        """
        kept = self.snapshot()
        if self._has_heir:
            kept = replace(kept, x=torch.zeros_like(kept.x), u=0.0)
        return replace(kept, round_index=round_index)

    def _seed_of(self, purpose: Purpose) -> int:
        return torch_seed(self._seed, purpose, self.index, self.round_index)

    def _epoch(self) -> int:
        return self.round_index // self._rounds_per_epoch

    def _work_beside_the_model(self) -> Work:
        """Work of optimizer and gossip in this round."""
        out_degree = len(self.membership.out_edges(self.round_index))
        return optimizer_work(self._optimizer, self._num_trainable) + gossip_work(
            self._algorithm, len(self._gossip_state.x), out_degree, len(self.in_edges())
        )

    def _send(self) -> list[Letter]:
        """Letters of the round."""
        edges = [OutEdge(*edge) for edge in self.membership.out_edges(self.round_index)]
        rng = stream(self._seed, Purpose.COMPRESS, self.index, self.round_index)
        try:
            shares = self._algorithm.send_(self._gossip_state, edges, rng)
        except CompressionError as error:
            raise self._diverged(str(error)) from error
        return [self._post(s.peer, "share", s.payload, s.weight, s.push_weight) for s in shares]

    def _post(
        self,
        receiver: int,
        kind: Kind,
        payload: Payload,
        weight: float,
        push_weight: float,
        notes: tuple[int, ...] = (),
    ) -> Letter:
        """Send a message; what is no share stands for the next round's."""
        message = Message(
            algorithm=self._algorithm.name,
            sender=self.index,
            receiver=receiver,
            sequence=self._outbox.next_sequence(receiver),
            round_index=self.round_index + (kind != "share"),
            weight=weight,
            push_weight=push_weight,
            payload=payload,
            kind=kind,
            notes=notes,
        )
        return self._outbox.post(message, self.round_index)

    def _hand_over(self, heir: int, will: Will) -> list[Letter]:
        """All that the heir needs: x and u, then the public copies of the in-edges."""
        state, layout = self._gossip_state, self._algorithm.layout
        x = whole(state.x, layout)
        letters = [self._post(heir, "handover", x, 1.0, state.u, will.to_notes())]
        for (sender, address), copy in sorted(state.received_copies().items(), key=_by_edge):
            notes = sender, self.index if address is None else address
            letters.append(self._post(heir, "copy", whole(copy, layout), 0.0, 0.0, notes))
        return letters

    def _adopt_copies(self, messages: Sequence[Message]) -> None:
        """Go on with the public copies of edges that were inherited."""
        for message in messages:
            edge = self._in_edge(*message.notes)
            self._gossip_state.received_copies()[edge] = message.payload.decode()

    def _share(self, message: Message) -> Share:
        """What the algorithm must know of a message."""
        peer, address = self._in_edge(message.sender, message.receiver)
        return Share(peer, message.weight, message.push_weight, message.payload, address)

    def _in_edge(self, sender: int, address: int) -> InEdge:
        return sender, None if address == self.index else address

    def _diverged(self, what: str) -> DivergedError:
        return DivergedError(
            f"device {self.index} diverged in round {self.round_index}: {what}; "
            "lower training.optimizer.lr or gossip.averaging_rate"
        )


def _clock_columns(costs: RoundCosts) -> dict[str, Any]:
    """Columns of rounds.parquet that a device with a clock has."""
    return {
        "virtual_time_s": costs.end_s,
        "virtual_compute_s": costs.compute_s,
        "virtual_wait_s": costs.wait_s,
        "retransmissions": costs.lost_packets,
        "retransmitted_bytes": costs.lost_bytes,
        "energy_j": costs.energy.total_j,
        "energy_compute_j": costs.energy.compute_j,
        "energy_memory_j": costs.energy.memory_j,
        "energy_radio_j": costs.energy.radio_j,
        "energy_idle_j": costs.energy.idle_j,
    }


def _place(message: Message) -> tuple[int, int, int]:
    """Order in which messages are absorbed."""
    return message.sender, message.receiver, message.sequence


def _by_edge(item: tuple[InEdge, Tensor]) -> tuple[int, int]:
    """Order of public copies: by sender, the own address first."""
    sender, address = item[0]
    return sender, -1 if address is None else address


def _in_weights(schedule: Schedule, device: int) -> dict[int, float]:
    """Weight of each in-edge of round 0, by sender."""
    return {
        sender: dict(schedule.out_edges(sender, 0))[device]
        for sender in schedule.in_neighbors(device, 0)
    }
