"""Lockstep: a round ends when the messages of all in-neighbours of that round are absorbed.

A device leaves if its stay is over, or if its battery would not last until a turn in which it can.
It hands all its state to a neighbour, its successor, which takes its place (succession.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, final

from edgesim.compression.wire import Message
from edgesim.costs.metered_model import MeteredModel
from edgesim.device.mail import Announcement, Arrival, Envelope
from edgesim.device.membership import Edge, has_turn_to_leave
from edgesim.device.participant import Participant
from edgesim.device.succession import copies_for_successor, handover, most_copies
from edgesim.hardware.meter import Meter
from edgesim.hardware.timeline import Timeline
from edgesim.hardware.work import Work
from edgesim.scenario.pace import PaceName
from topologies.schedules import exchange_of


@final
class Lockstep:
    """Lockstep of one device; implements `Pace`.

    Args:
        participant: the device.
        meter: of the device; None where it has no clock.
    """

    name: PaceName = "lockstep"
    listens_first = False
    gone: Literal["died", "left"] | None = None  # a successor takes the place of a leaver

    def __init__(self, participant: Participant, meter: Meter[Timeline] | None) -> None:
        self._participant = participant
        self._meter = meter
        if participant.schedule.presence.join_round(participant.index) > 0:
            participant.drop_mass_()

    @property
    def index(self) -> int:
        """Number of the device."""
        return self._participant.index

    @property
    def round_index(self) -> int:
        """Rounds that the device has completed."""
        return self._participant.round_index

    def in_edges(self) -> list[Edge]:
        """Edges on which a message of the current round has to be absorbed, increasing."""
        return self._participant.membership.in_edges(self.round_index)

    def take_note(self, messages: Sequence[Message]) -> list[Edge]:
        """Update the membership by handovers among the messages of the round.

        Returns:
            Edges on which a further message belongs to this round, one per item; an edge may occur
            twice.
        """
        return [
            edge
            for message in messages
            for edge in self._participant.membership.take_note(message, self.round_index)
        ]

    @property
    def is_done(self) -> bool:
        """Whether there is no round left to do."""
        return self._participant.is_done

    @property
    def waits_for_mail(self) -> bool:
        """Whether the device has in-neighbours in this round."""
        return bool(self.in_edges())

    @property
    def must_leave(self) -> bool:
        """Whether the device has to leave after the round that was absorbed.

        Its stay is over, or its battery would not last until a turn in which it can leave.
        """
        participant, next_round = self._participant, self.round_index + 1
        schedule = participant.schedule
        is_its_turn = has_turn_to_leave(schedule, self.index, next_round)
        if not is_its_turn or participant.is_in_last_round or participant.figures is None:
            return False
        end = schedule.presence.leave_round(self.index)
        if end is not None and next_round >= end:
            return True
        if self._meter is None or self._meter.timeline.hardware.profile.battery_j is None:
            return False
        return not self._meter.lasts(*self._needs_until_next_turn(next_round))

    def _needs_until_next_turn(self, round_index: int) -> tuple[int, int, int]:
        """What the device does until it can leave again.

        In a turn it can't leave if it was absent in the round before, or has nobody to hand over
        to. If it can in none that is left, it stays until the end of the run.

        Args:
            round_index: a turn, in which the device stays.

        Returns:
            Rounds with an exchange, rounds without one, and bytes that it sends if it leaves then.
        """
        schedule, last = self._participant.schedule, self._participant.num_rounds
        membership = self._participant.membership

        def is_there(r: int) -> bool:
            return any(schedule.presence.is_present(own, r) for own in membership.addresses)

        between = schedule.num_devices * schedule.exchange_every
        end = round_index + between
        if end < last:
            turns = range(end, last, between)
            end = next((t for t in turns if is_there(t - 1) and membership.out_edges(t)), last)
        done = [r for r in range(round_index, end) if is_there(r)]
        exchanges = sum(exchange_of(schedule.exchange_every, r)[1] for r in done)
        return exchanges, len(done) - exchanges, 0 if end == last else self._last_bytes()

    def _last_bytes(self) -> int:
        """Bytes that the device sends at most when it leaves."""
        participant = self._participant
        state, index = participant.gossip_state, self.index
        copies = max(  # of edges that it has inherited, or may ever use
            len(copies_for_successor(state, participant.membership)),
            most_copies(participant.algorithm, participant.schedule, index),
        )
        vectors: int = state.x.nbytes * (1 + copies)
        return vectors + participant.outbox.sent.total

    @property
    def is_succeeded(self) -> bool:
        """Whether the device has handed over to another one."""
        return self._participant.has_successor

    def expects(self, message: Message) -> bool:
        """Whether such a message can arrive: of this algorithm, on an edge active in its round."""
        participant = self._participant
        is_of_fleet = message.algorithm == participant.algorithm.name
        return is_of_fleet and participant.membership.expects(message)

    def announce(self, sent: Sequence[Envelope]) -> list[Announcement]:  # noqa: ARG002
        """Nothing: which messages come is known from the round."""
        return []

    def degrees(self, work: Work) -> tuple[int, int]:  # noqa: ARG002
        """Numbers of messages that the round sends and absorbs."""
        out_edges = self._participant.membership.out_edges(self.round_index)
        return len(out_edges), len(self.in_edges())

    def spend(self, model: MeteredModel) -> None:  # noqa: ARG002
        """Advance the clock by the time of the step."""
        if self._meter is not None:
            self._meter.step(self._participant.figures_of_round().work, self.round_index)

    def stay_away(self) -> None:
        """Let the fleet's time pass: messages to the device tell how late it is when it is back."""
        if self._meter is not None:
            of_round = self.round_index * self._participant.schedule.num_devices
            self._meter.timeline.be_absent(of_round + self.index)

    def send(self) -> list[Envelope]:
        """A share for each out-neighbour of the round."""
        edges = self._participant.membership.out_edges(self.round_index)
        return self._participant.write_shares(edges, self.round_index)

    def absorb(self, arrivals: Sequence[Arrival]) -> None:
        """Absorb the messages of the round: one per in-edge, and handovers to this device.

        The order of `arrivals` does not matter: sums never depend on the order of arrival.
        """
        figures = self._participant.figures_of_round()
        arrived = sorted(arrivals, key=_place)
        self._participant.mix_in([arrival.message for arrival in arrived])
        if self._meter is not None:
            stamps = [(a.message.sender, a.stamp) for a in arrived if a.stamp is not None]
            assert len(stamps) == len(arrived), "devices of one fleet all have clocks, or none has"
            self._meter.end_round(self._meter.timeline.end_round(stamps), figures.received_bytes)
        if len(arrived) > figures.in_degree:  # a device has left, and sent more messages
            more = self._participant.gossip_work(0, len(arrived) - figures.in_degree)
            self._participant.work_more(more)

    def leave(self, next_sequences: Mapping[Edge, int]) -> list[Envelope]:
        """Leave for good, if somebody is there to take over.

        In the next round the device sends its shares without taking a step. On the first edge it
        sends the handover instead of a share. The last device of the fleet has no successor and
        keeps its state. If there are other devices, but no edge to them in the next round, the
        device stays.

        Args:
            next_sequences: of the messages that would be absorbed next, by edge.

        Returns:
            Last envelopes, those to the successor first; they belong to the next round.
        """
        participant, next_round = self._participant, self.round_index + 1
        membership, outbox = participant.membership, participant.outbox
        edges, own = membership.out_edges(next_round), membership.addresses
        is_last = all(d in own for a in own for d in participant.schedule.possible_receivers(a))
        participant.has_left, participant.has_successor = bool(edges) or is_last, bool(edges)
        if not edges:
            return []
        successor, *others = edges
        participant.work_more(participant.gossip_work(len(others), 0))
        envelopes = participant.write_shares(others, next_round)
        sequences = {**next_sequences, **outbox.next_sequences}
        drafts = handover(
            participant.gossip_state, participant.algorithm.layout, membership, sequences
        )
        last = [
            outbox.write(
                (successor.sender, successor.receiver),
                next_round,
                draft.kind,
                draft.payload,
                push_weight=draft.push_weight,
                notes=draft.notes,
                sent_in=self.round_index,
            )
            for draft in drafts
        ]
        if self._meter is not None:
            self._meter.await_radio()
        return last + envelopes

    def end_round(self) -> None:
        """Do nothing: in lockstep no device dies."""

    def state(self) -> dict[str, Any]:
        """Nothing beside what the participant knows."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Nothing to restore."""


def _place(arrival: Arrival) -> tuple[int, int, int]:
    """Order in which messages are absorbed."""
    message = arrival.message
    return message.sender, message.receiver, message.sequence
