"""The part of a device that is the same at both paces: vectors, mass, messages and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from edgesim.compression.errors import CompressionError, NonFiniteEntryError, WrongPayloadError
from edgesim.compression.wire import Message
from edgesim.costs.round_work import gossip_work
from edgesim.device.mail import Envelope, Outbox
from edgesim.device.membership import Membership, WeightedEdge
from edgesim.device.round_figures import RoundFigures
from edgesim.device.succession import (
    drop_internal_copies_,
    inherit_copies_,
    inherit_mass_,
    inherited_sequences,
)
from edgesim.device.trainer import DivergedError, Trainer
from edgesim.errors import MEND_OWN_CODE, OwnCodeError
from edgesim.gossip.algorithm import (
    Algorithm,
    OutEdge,
    Place,
    Share,
    WrongSharesError,
    WrongStateError,
    check_state,
    checked_shares_,
)
from edgesim.gossip.optional_members import for_device, is_idle_without_edges, starting_state
from edgesim.hardware.meter import Meter
from edgesim.hardware.work import Work
from edgesim.results.columns import RoundReport
from edgesim.storage.state_tree import Arrays, Packed, StateTreeError, pack, restore_, unpack
from edgesim.streams import StreamPurpose, stream
from topologies import Schedule, first_exchange, takes_step, weight_by_sender


class Participant:
    """State and messages of one device. Its pace (device/pace/) decides when it sends and absorbs.

    Args:
        index: number of the device, from 0.
        seed: of the scenario.
        schedule: which graph holds in which round, for all devices.
        algorithm: gossip algorithm, a frozen object.
        trainer: takes its local steps.
        num_rounds: of the device.
        x: initial parameters, shape (D,), the same on all devices; taken over.
        meter: of its virtual time and energy; None where it has no profile.
        streams_of: device whose random streams its compressor uses; None: its own.

    Attributes:
        round_index: rounds that it has completed.
        membership: the edges on which it exchanges messages.
        gossip_state: its vectors and its mass.
        outbox: numbers, encodes and counts its messages.
        figures: of the round under way; None between rounds and while it is absent.
        has_left: it has handed over its mass, or stopped without a successor.
        has_successor: another device has its mass.
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
        meter: Meter[Any] | None,
        streams_of: int | None = None,
    ) -> None:
        self.index = index
        self._streams_of = index if streams_of is None else streams_of
        self.seed = seed
        self.algorithm = algorithm
        self.trainer = trainer
        self.num_rounds = num_rounds
        self.meter = meter
        self.round_index = 0
        self.membership = Membership(index, schedule)
        place = Place(
            index=index,
            num_devices=schedule.num_devices,
            num_samples=trainer.num_samples,
            steps_first=takes_step(schedule, index, 0),
            num_trained=trainer.num_trained,
        )
        in_weights = weight_by_sender(schedule, index, first_exchange(schedule))
        self.gossip_state = starting_state(algorithm, x, in_weights, place)
        self._with_costs_of_device = for_device(algorithm, index)
        self.outbox = Outbox(index, algorithm.name, meter)
        self.figures: RoundFigures | None = None
        self.has_left = False
        self.has_successor = False
        self._gossip_works: dict[tuple[int, int], Work] = {}

    @property
    def schedule(self) -> Schedule:
        """Which graph holds in which round, as if no device had left."""
        return self.membership.schedule

    @property
    def now_s(self) -> float:
        """The device's clock, or 0 where it has none."""
        return self.meter.now_s if self.meter else 0.0

    @property
    def is_done(self) -> bool:
        """Whether the device has left or completed the number of its rounds."""
        return self.has_left or self.round_index >= self.num_rounds

    @property
    def is_in_last_round(self) -> bool:
        """Whether the round under way is the last by its number."""
        return self.round_index + 1 >= self.num_rounds

    def is_present(self, address: int) -> bool:
        """Whether the schedule has a device in the round under way."""
        return self.schedule.presence.is_present(address, self.round_index)

    @property
    def takes_step(self) -> bool:
        """Whether the device is present and has a step in the round under way."""
        is_due = takes_step(self.schedule, self.index, self.round_index)
        return is_due and self.is_present(self.index)

    def drop_mass_(self) -> None:
        """Begin without mass: a device that joins gets its first mass in a message."""
        self.gossip_state.x.zero_()
        self.gossip_state.u = 0.0

    def figures_of_round(self) -> RoundFigures:
        """Figures of the round under way; the device is in one."""
        assert self.figures is not None, "within a round"
        return self.figures

    def gossip_work(self, out_degree: int, in_degree: int) -> Work:
        """Work of sending and absorbing so many messages."""
        degrees = out_degree, in_degree
        if degrees not in self._gossip_works:  # a hash of the algorithm takes as long as a message
            self._gossip_works[degrees] = gossip_work(self._with_costs_of_device, *degrees)
        return self._gossip_works[degrees]

    def work_more(self, work: Work) -> None:
        """Add work that is known only after the step of the round."""
        self.figures_of_round().work += work
        if self.meter is not None:
            self.meter.work_more(work)

    def write_shares(self, edges: Sequence[WeightedEdge], round_index: int) -> list[Envelope]:
        """Messages of a round with shares of the device's mass, one for each edge.

        Raises:
            DivergedError: a value to be sent is not finite.
            OwnCodeError: an algorithm of one's own does not send one share for each edge, leaves a
                state that can't be trained from, or makes a payload that can't be encoded.
        """
        if not edges and is_idle_without_edges(self.algorithm):
            return []
        own = self.index
        out_edges = [
            OutEdge(e.receiver, e.weight, None if e.sender == own else e.sender) for e in edges
        ]
        rng = stream(self.seed, StreamPurpose.COMPRESS, self._streams_of, round_index)
        x = self.gossip_state.x
        try:
            shares = checked_shares_(self.algorithm, self.gossip_state, out_edges, rng)
            check_state(self.gossip_state, "send_", len(x), x.dtype)
        except NonFiniteEntryError as error:
            is_own = not type(self.algorithm).__module__.startswith("edgesim.")
            cause = ", by the training or by your own gossip.algorithm" if is_own else ""
            said = f"{error}{cause}"
            raise DivergedError.of(self.trainer.label, self.round_index, said) from error
        except (WrongSharesError, WrongStateError) as error:
            raise self._own_code_error("gossip.algorithm", str(error)) from error
        except WrongPayloadError as error:
            raise self._own_code_error("gossip.compressor.kind", error.problem) from error
        try:
            return [
                self.outbox.write(
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
        except CompressionError as error:
            raise self._own_code_error("gossip", f"a payload can't be sent: {error}") from error

    def _own_code_error(self, key: str, problem: str) -> OwnCodeError:
        where = f"on {self.trainer.label} in round {self.round_index}"
        return OwnCodeError(f"{key}: {where} {problem}\n{MEND_OWN_CODE}")

    def mix_in(self, messages: Sequence[Message]) -> None:
        """Absorb messages in the given order.

        Raises:
            OwnCodeError: an algorithm of one's own leaves a state that can't be trained from.
        """
        state, figures, own = self.gossip_state, self.figures_of_round(), self.index
        inherit_copies_(state, messages)
        shares = []
        for m in messages:
            if m.kind == "share":
                address = None if m.receiver == own else m.receiver
                shares.append(Share(m.sender, m.weight, m.push_weight, m.payload, address))
        x = state.x
        try:
            self.algorithm.absorb_(state, shares)
            check_state(state, "absorb_", len(x), x.dtype)
        except WrongStateError as error:
            raise self._own_code_error("gossip.algorithm", str(error)) from error
        except WrongPayloadError as error:
            raise self._own_code_error("gossip.compressor.kind", error.problem) from error
        if figures.has_stepped:
            self.trainer.after_gossip_(state, self.round_index)
        # After the optimizer, which would count a handover as a movement of the model.
        for message in messages:
            if message.kind == "handover":
                inherit_mass_(state, message)
                self.outbox.next_sequences |= inherited_sequences(message)
        drop_internal_copies_(state, self.membership)
        figures.received_bytes = sum(m.wire_bytes for m in messages)

    def report(self, wait_wall_s: float) -> RoundReport | None:
        """End the round and return its report; None if the device was absent.

        Args:
            wait_wall_s: seconds of this machine for which the round waited.
        """
        figures, sent = self.figures, self.outbox.sent
        self.round_index += 1
        if figures is None:
            return None
        costs = self.meter.settle() if self.meter is not None else None
        record = figures.record(
            device=self.index,
            round_index=self.round_index - 1,
            epoch=self.trainer.epoch(self.round_index - 1),
            push_weight=self.gossip_state.u,
            sent=sent,
            messages_sent=len(self.outbox.records),
            costs=costs,
            wait_wall_s=wait_wall_s,
        )
        report = RoundReport(record, tuple(self.outbox.records))
        self.figures = None
        self.outbox.clear()
        return report

    def state(self, arrays: Arrays) -> dict[str, Any]:
        """State of the participant between two rounds; vectors go into `arrays`.

        Raises:
            OwnCodeError: the state of an algorithm or optimizer of one's own can't be kept.
        """
        try:
            return self._state(arrays)
        except StateTreeError as error:
            key = "gossip.algorithm" if str(error).startswith("gossip") else "training.optimizer"
            problem = f"has a state that can't be kept in a checkpoint: {error}"
            raise self._own_code_error(key, problem) from error

    def packed_gossip(self) -> Packed:
        """State of the algorithm between two rounds.

        Raises:
            OwnCodeError: the state of an algorithm of one's own can't be kept.
        """
        try:
            return Packed.of(self.gossip_state, "gossip")
        except StateTreeError as error:
            problem = f"has a state that can't be kept: {error}"
            raise self._own_code_error("gossip.algorithm", problem) from error

    def _state(self, arrays: Arrays) -> dict[str, Any]:
        return {
            "round_index": self.round_index,
            "has_left": self.has_left,
            "has_successor": self.has_successor,
            "addresses": list(self.membership.addresses),
            "next_sequences": pack(self.outbox.next_sequences, arrays, "next_sequences"),
            "gossip": pack(self.gossip_state, arrays, "gossip"),
            "trainer": self.trainer.state(arrays),
            "meter": None if self.meter is None else self.meter.state(),
        }

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the state that `state` returned."""
        self.round_index = state["round_index"]
        self.has_left, self.has_successor = state["has_left"], state["has_successor"]
        self.membership.inherit(state["addresses"])
        self.outbox.next_sequences = unpack(state["next_sequences"], arrays)
        restore_(self.gossip_state, state["gossip"], arrays)
        self.trainer.restore(state["trainer"], arrays)
        if self.meter is not None:
            self.meter.restore(state["meter"])
