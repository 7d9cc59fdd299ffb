"""One edge device: its shard, its gossip state, its meters. No Ray, no asyncio.

A device is driven from outside, always in this order, once a round:

    letters = device.train(model)          # local step, then what leaves on each active out-edge
    device.absorb(arrivals)                # what came in on each active in-edge, then the records

It keeps only flat vectors; the model it computes with is borrowed for the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from time import perf_counter, thread_time
from typing import Any

from torch import Tensor

from edgesim.compression.errors import CompressionError
from edgesim.compression.wire import ByteCounts, Message, encode
from edgesim.costs.metered_model import MeteredModel
from edgesim.costs.round_work import gossip_work, optimizer_work
from edgesim.data.batches import BatchStream
from edgesim.errors import EdgesimError
from edgesim.gossip.algorithm import Algorithm, OutEdge, Share
from edgesim.hardware.meter import Meter, RoundCosts
from edgesim.hardware.timeline import Stamp
from edgesim.hardware.work import Work
from edgesim.learning.optimizers import LearningRateSchedule, Optimizer
from edgesim.models.dropout import seed_dropout_
from edgesim.quant.errors import NonFiniteError
from edgesim.quant.layers import seed_rounding_
from edgesim.records import MessageRecord, RoundRecord
from edgesim.streams import Purpose, stream, torch_seed
from topologies import Schedule


class DivergedError(EdgesimError):
    """Training left the finite numbers; says which device, when, and what to lower."""


@dataclass(frozen=True, slots=True)
class Letter:
    """An encoded message on its way.

    Attributes:
        sender: with receiver the edge.
        receiver: see there.
        sequence: its place on that edge.
        data: all that the message weighs on a real network.
        stamp: when it travels in virtual time; None where devices have no clock.
    """

    sender: int
    receiver: int
    sequence: int
    data: bytes
    stamp: Stamp | None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that has arrived, and when; the stamp as of its letter."""

    message: Message
    stamp: Stamp | None


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What is recorded of one round of one device: the round, and the messages it absorbed."""

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
    sent: ByteCounts
    messages_sent: int
    work: Work


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
        meter: Meter | None = None,
    ) -> None:
        self.index = index
        self.round_index = 0
        self._seed = seed
        self._batches = batches
        self._schedule = schedule
        self._algorithm = algorithm
        self._optimizer = optimizer
        self._learning_rates = learning_rates
        self._rounds_per_epoch = rounds_per_epoch
        self._buffers = buffers
        self._num_trainable = num_trainable
        self._optimizer_state = optimizer.init(x[:num_trainable])
        self._gossip_state = algorithm.init(x, _in_weights(schedule, index))
        self._next_sequence: dict[int, int] = {}
        self._figures: _RoundFigures | None = None
        self._meter = meter
        self._push_weight_at_step = 1.0

    def in_neighbors(self) -> tuple[int, ...]:
        """Devices whose message of the current round has to be absorbed, in increasing order."""
        return self._schedule.in_neighbors(self.index, self.round_index)

    def expects(self, message: Message) -> bool:
        """Whether such a message can be due: of our algorithm, on an edge active in its round."""
        senders = self._schedule.in_neighbors(self.index, message.round_index)
        return message.algorithm == self._algorithm.name and message.sender in senders

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
        letters, sent = self._send()
        wall_s, cpu_s = perf_counter() - wall_start, thread_time() - cpu_start
        self._figures = _RoundFigures(loss, rate, wall_s, cpu_s, sent, len(letters), work)
        return letters

    def absorb(self, arrivals: Sequence[Arrival]) -> RoundReport:
        """Mix in the messages of this round, one per in-neighbour, and end the round.

        The order of `arrivals` does not matter: sums never depend on the order of arrival.
        """
        assert self._figures is not None, "absorb follows train"
        wall_start, cpu_start, figures = perf_counter(), thread_time(), self._figures
        arrived = sorted(arrivals, key=lambda a: (a.message.sender, a.message.sequence))
        messages = [arrival.message for arrival in arrived]
        shares = [Share(m.sender, m.weight, m.push_weight, m.payload) for m in messages]
        state = self._gossip_state
        self._algorithm.absorb_(state, shares)
        self._optimizer.after_gossip_(
            self._optimizer_state,
            state.x[: self._num_trainable],
            self._push_weight_at_step,
            figures.learning_rate,
        )
        costs = self._costs(arrived)
        record = RoundRecord(
            device=self.index,
            round=self.round_index,
            epoch=self._epoch(),
            loss=figures.loss,
            learning_rate=figures.learning_rate,
            push_weight=state.u,
            sent_bytes=figures.sent.total,
            sent_value_bytes=figures.sent.values,
            sent_index_bytes=figures.sent.indices,
            sent_overhead_bytes=figures.sent.scales + figures.sent.header,
            received_bytes=sum(m.wire_bytes for m in messages),
            messages_sent=figures.messages_sent,
            **asdict(figures.work),
            **(_clock_columns(costs) if costs else {}),
            compute_wall_s=figures.wall_s + perf_counter() - wall_start,
            compute_cpu_s=figures.cpu_s + thread_time() - cpu_start,
        )
        self._figures = None
        self.round_index += 1
        return RoundReport(record, tuple(_message_record(arrival) for arrival in arrived))

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

    def _seed_of(self, purpose: Purpose) -> int:
        return torch_seed(self._seed, purpose, self.index, self.round_index)

    def _epoch(self) -> int:
        return self.round_index // self._rounds_per_epoch

    def _work_beside_the_model(self) -> Work:
        """Work of optimizer and gossip in this round."""
        schedule, numel = self._schedule, len(self._gossip_state.x)
        out_degree = len(schedule.out_edges(self.index, self.round_index))
        in_degree = len(self.in_neighbors())
        return optimizer_work(self._optimizer, self._num_trainable) + gossip_work(
            self._algorithm, numel, out_degree, in_degree
        )

    def _costs(self, arrived: Sequence[Arrival]) -> RoundCosts | None:
        """Virtual time and energy of the round that ends with these messages."""
        if self._meter is None:
            return None
        stamps = [(a.message.sender, a.stamp) for a in arrived if a.stamp is not None]
        assert len(stamps) == len(arrived), "devices of one fleet all have clocks, or none has"
        return self._meter.end_round(stamps, sum(a.message.wire_bytes for a in arrived))

    def _send(self) -> tuple[list[Letter], ByteCounts]:
        edges = [OutEdge(*e) for e in self._schedule.out_edges(self.index, self.round_index)]
        rng = stream(self._seed, Purpose.COMPRESS, self.index, self.round_index)
        letters, sent = [], ByteCounts(0, 0, 0, 0)
        try:
            shares = self._algorithm.send_(self._gossip_state, edges, rng)
        except CompressionError as error:
            raise self._diverged(str(error)) from error
        for share in shares:
            sequence = self._next_sequence.get(share.peer, 0)
            self._next_sequence[share.peer] = sequence + 1
            message = Message(
                algorithm=self._algorithm.name,
                sender=self.index,
                receiver=share.peer,
                sequence=sequence,
                round_index=self.round_index,
                weight=share.weight,
                push_weight=share.push_weight,
                payload=share.payload,
            )
            data, stamp = encode(message), None
            if self._meter is not None:
                stamp = self._meter.send(share.peer, len(data), sequence)
            letters.append(Letter(self.index, share.peer, sequence, data, stamp))
            sent += message.byte_counts
        return letters, sent

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


def _message_record(arrival: Arrival) -> MessageRecord:
    message, stamp = arrival.message, arrival.stamp
    return MessageRecord(
        round=message.round_index,
        sender=message.sender,
        receiver=message.receiver,
        bytes=message.wire_bytes,
        retransmissions=stamp.lost_packets if stamp else None,
        retransmitted_bytes=stamp.lost_bytes if stamp else None,
        departure_time_s=stamp.start_s if stamp else None,
        arrival_time_s=stamp.arrival_s if stamp else None,
    )


def _in_weights(schedule: Schedule, device: int) -> dict[int, float]:
    """Weight of each in-edge of round 0, by sender."""
    return {
        sender: dict(schedule.out_edges(sender, 0))[device]
        for sender in schedule.in_neighbors(device, 0)
    }
