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
from edgesim.compression.payload import Payload
from edgesim.compression.wire import Kind, Message
from edgesim.costs.metered_model import MeteredModel
from edgesim.costs.round_work import gossip_work, optimizer_work
from edgesim.data.batches import BatchStream
from edgesim.errors import EdgesimError
from edgesim.gossip.algorithm import Algorithm, OutEdge, Share
from edgesim.hardware.meter import Meter
from edgesim.hardware.work import Work
from edgesim.learning.optimizers import LearningRateSchedule, Optimizer
from edgesim.mail import Arrival, Letter, Outbox
from edgesim.membership import Edge, Membership, WeightedEdge
from edgesim.models.dropout import seed_dropout_
from edgesim.quant.errors import NonFiniteError
from edgesim.quant.layers import seed_rounding_
from edgesim.records import MessageRecord, RoundRecord
from edgesim.snapshot import Snapshot
from edgesim.streams import Purpose, stream, torch_seed
from edgesim.succession import (
    copies_for_heir,
    drop_internal_copies_,
    inherit_copies_,
    inherit_mass_,
    inherited_sequences,
    legacy,
)
from topologies import Schedule, possible_receivers


class DivergedError(EdgesimError):
    """Training left the finite numbers; says which device, when, and what to lower."""


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What is recorded of one round of one device: the round, and the messages it sent in it."""

    round: RoundRecord
    messages: tuple[MessageRecord, ...]


@dataclass(slots=True)
class _RoundFigures:
    """Figures of the round under way."""

    loss: float
    learning_rate: float
    wall_s: float
    cpu_s: float
    work: Work
    in_degree: int
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
        self._outbox = Outbox(index, meter)
        self._figures: _RoundFigures | None = None
        self._meter = meter
        self._gossip_works: dict[tuple[int, int], Work] = {}
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
        letters = self._send(self.membership.out_edges(self.round_index), self.round_index)
        wall_s, cpu_s = perf_counter() - wall_start, thread_time() - cpu_start
        self._figures = _RoundFigures(loss, rate, wall_s, cpu_s, work, len(self.in_edges()))
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
        inherit_copies_(state, messages)
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
                inherit_mass_(state, message)
                self._outbox.next_sequences |= inherited_sequences(message)
        drop_internal_copies_(state, self.membership)
        figures.received_bytes = sum(m.wire_bytes for m in messages)
        if self._meter is not None:
            stamps = [(a.message.sender, a.stamp) for a in arrived if a.stamp is not None]
            assert len(stamps) == len(arrived), "devices of one fleet all have clocks, or none has"
            self._meter.end_round(stamps, figures.received_bytes)
        if len(arrived) > figures.in_degree:  # somebody left, and more came than was to be expected
            self._work_more(self._gossip_work(0, len(arrived) - figures.in_degree))
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
        if self._meter is None or not is_its_own:
            return False
        copies = copies_for_heir(self._gossip_state, self.membership)
        last_bytes = self._gossip_state.x.nbytes * (1 + len(copies)) + self._outbox.sent.total
        return not self._meter.lasts(num_devices, last_bytes)

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
            self._post(
                (heir.sender, heir.receiver),
                next_round,
                draft.kind,
                draft.payload,
                push_weight=draft.push_weight,
                notes=draft.notes,
            )
            for draft in legacy(
                self._gossip_state, self._algorithm.layout, self.membership, sequences
            )
        ]
        return last + letters

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
            **(costs.columns if costs else {}),
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

    def snapshot_of_round(self) -> Snapshot:
        """The same at the end of a round that was absorbed and is not yet reported."""
        return replace(self.snapshot(), round_index=self.round_index + 1)

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
        gossip = self._gossip_work(out_degree, len(self.in_edges()))
        return optimizer_work(self._optimizer, self._num_trainable) + gossip

    def _gossip_work(self, out_degree: int, in_degree: int) -> Work:
        degrees = out_degree, in_degree
        if degrees not in self._gossip_works:  # a millisecond each
            numel = len(self._gossip_state.x)
            self._gossip_works[degrees] = gossip_work(self._algorithm, numel, *degrees)
        return self._gossip_works[degrees]

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
            raise self._diverged(str(error)) from error
        return [
            self._post(
                (self._address(share.address), share.peer),
                round_index,
                "share",
                share.payload,
                weight=share.weight,
                push_weight=share.push_weight,
            )
            for share in shares
        ]

    def _post(
        self,
        edge: Edge,
        round_index: int,
        kind: Kind,
        payload: Payload,
        *,
        weight: float = 0.0,
        push_weight: float = 0.0,
        notes: tuple[int, ...] = (),
    ) -> Letter:
        """Send a message on an edge."""
        sender, receiver = edge
        message = Message(
            algorithm=self._algorithm.name,
            sender=sender,
            receiver=receiver,
            sequence=self._outbox.next_sequence(edge),
            round_index=round_index,
            weight=weight,
            push_weight=push_weight,
            payload=payload,
            kind=kind,
            notes=notes,
        )
        return self._outbox.post(message, self.round_index)

    def _share(self, message: Message) -> Share:
        """What the algorithm must know of a message."""
        address = None if message.receiver == self.index else message.receiver
        return Share(message.sender, message.weight, message.push_weight, message.payload, address)

    def _address(self, own: int | None) -> int:
        return self.index if own is None else own

    def _diverged(self, what: str) -> DivergedError:
        return DivergedError(
            f"device {self.index} diverged in round {self.round_index}: {what}; "
            "lower training.optimizer.lr or gossip.averaging_rate"
        )


def _place(message: Message) -> tuple[int, int, int]:
    """Order in which messages are absorbed."""
    return message.sender, message.receiver, message.sequence


def _in_weights(schedule: Schedule, device: int) -> dict[int, float]:
    """Weight of each in-edge of round 0, by sender."""
    return {
        sender: dict(schedule.out_edges(sender, 0))[device]
        for sender in schedule.in_neighbors(device, 0)
    }
