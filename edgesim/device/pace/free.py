"""Free pace: a device never waits in virtual time, and absorbs what has arrived by its clock.

Per round, driven from outside:

    device.step(model)                 # local step, which ends at t
    pace.announce(())                  # if it `listens_first`: nothing leaves before t
    pace.listen(known)                 #     what its radio has begun to take in by t
    envelopes = device.send()            # what leaves on each active out-edge
    pace.announce(envelopes)             # for edges on which nothing leaves
    pace.presume_dead(receivers)       # of whom nothing was heard for a time-out by t
    pace.arrived(known)                # which messages to absorb, in which order
    device.absorb(arrivals)
    pace.leave({})                     # only if it `must_leave`: hands over what it has
    device.report()

A message leaves only if those of earlier rounds have left, if half-duplex radios can keep up with
such messages (quiet_times.py), and if the receiver is there by plan as the step ends: else the
round is a local step alone. A device without mass, which has joined, lets the time of a step pass.
After its last step a device takes in all that is still on its way to it, so that no mass is left on
the road. hardware/free_clock.py says when what arrives, fleet/transport/time_bounds.py when that is
known.

A device whose battery is empty dies between two rounds, when it could not pay for one more like its
costliest. It keeps its x and u; what is on its way to it is lost, x with its u. Neighbours go on
sending until they presume it dead (fleet/transport/liveness.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any, Literal, final

from edgesim.compression.lossless import whole
from edgesim.compression.wire import Message
from edgesim.costs.metered_model import MeteredModel
from edgesim.device.mail import Announcement, Arrival, Envelope, LifeSign, TimeBound
from edgesim.device.membership import Edge, HandoverNotes, WeightedEdge, is_handover_notes
from edgesim.device.pace.pace import PaceName
from edgesim.device.pace.quiet_times import quiet_until_s
from edgesim.device.participant import Participant
from edgesim.device.round_figures import Staleness
from edgesim.hardware.free_clock import FreeClock, Incoming, MessageKey
from edgesim.hardware.meter import Meter
from edgesim.hardware.work import Work
from topologies import TimedChurn, possible_receivers


@final
class Free:
    """See above, and `Pace`.

    Args:
        participant: the device.
        meter: of the device.
        horizon_s: the step that ends at that virtual time or later is the last; infinity for none.
        attendance: which devices are there when.

    Attributes:
        has_died: the device's battery is empty.
    """

    name: PaceName = "free"
    waits_for_mail = True  # that nothing comes before the end of a step must be known as well
    is_succeeded = False

    def __init__(
        self,
        participant: Participant,
        meter: Meter[FreeClock],
        *,
        horizon_s: float,
        attendance: TimedChurn,
    ) -> None:
        self.has_died = False
        self._participant = participant
        self._meter = meter
        self._clock = meter.timeline
        self._horizon_s = horizon_s
        self._attendance = attendance
        self._leave_s = attendance.leave_s(participant.index)
        if attendance.join_s(participant.index) > 0:
            participant.drop_mass_()
        self._receivers = possible_receivers(participant.schedule, participant.index)
        self._presumed_dead: frozenset[int] = frozenset()
        self._is_over = False
        self._is_leaving = False
        self._edges: list[WeightedEdge] = []
        self._place = 0
        self._quiet_s = 0.0  # until then no round sends

    @property
    def index(self) -> int:
        """Number of the device."""
        return self._participant.index

    @property
    def now_s(self) -> float:
        """The device's clock."""
        return self._clock.now_s

    @property
    def is_done(self) -> bool:
        """Whether there is no round left to do."""
        return self._is_over or self.has_died or self._participant.is_done

    @property
    def is_in_last_round(self) -> bool:
        """Whether the round under way is the last; known when its step has ended."""
        is_past = self.now_s >= min(self._horizon_s, self._leave_s)
        return self._participant.is_in_last_round or is_past

    @property
    def must_leave(self) -> bool:
        """Whether the device leaves by plan, now that it has taken in all that was on its way."""
        return self._is_over and self._is_leaving

    @property
    def gone(self) -> Literal["died", "left"] | None:
        """Why the device is not of the fleet any more."""
        if self.has_died:
            return "died"
        return "left" if self._participant.has_left else None

    @property
    def listens_first(self) -> bool:
        """Whether the radio is half-duplex, and must take in what has come before it can send."""
        return self._clock.listens_first

    @property
    def known_until_s(self) -> float:
        """Time up to which the device must know of all messages before it absorbs any."""
        return inf if self.is_in_last_round else self.now_s

    @property
    def mortal_receivers(self) -> list[int]:
        """Devices that it may send to and that may die."""
        links = self._clock.hardware.links
        return [receiver for receiver in self._receivers if links[receiver].is_mortal]

    def possible_in_edges(self) -> list[Edge]:
        """Edges on which a message may come in some round."""
        senders = self._participant.schedule.possible_senders(self.index)
        return [(sender, self.index) for sender in senders]

    def expects(self, message: Message) -> bool:
        """Whether such a message can be due: of our algorithm, on an edge that there is."""
        return (
            message.algorithm == self._participant.algorithm.name
            and (message.kind == "share" or _hands_over_mass(message))
            and (message.sender, message.receiver) in self.possible_in_edges()
        )

    def announce(self, sent: Sequence[Envelope]) -> list[Announcement]:
        """Time bounds for the edges on which nothing is sent now, then life signs."""
        return [*self._time_bounds(sent), *self._life_signs()]

    def _time_bounds(self, sent: Sequence[Envelope]) -> list[TimeBound]:
        spoken = {envelope.edge for envelope in sent}
        edges = [(self.index, receiver) for receiver in self._receivers]
        outbox = self._participant.outbox
        return [
            TimeBound(edge, outbox.next_sequence(edge), self._clock.bound_s(edge))
            for edge in edges
            if edge not in spoken
        ]

    def _life_signs(self) -> list[LifeSign]:
        """What the device says to those that may send to it, if it may die.

        It dies between two rounds alone, so never before the clock that it has reached.
        """
        if self._clock.hardware.profile.battery_j is None:
            return []
        never_dies = not self.has_died and (self.is_done or self.is_in_last_round)
        until_s = inf if never_dies else self.now_s
        return [
            LifeSign((self.index, sender), until_s, self.has_died)
            for sender, _ in self.possible_in_edges()
        ]

    def degrees(self, work: Work) -> tuple[int, int]:
        """Absorbing is counted when it is known how much there is.

        Over links that are slower than the steps, messages of all rounds would queue up without
        end: a device that has to be quiet when the step ends sends none. Nor does one without mass.
        """
        participant = self._participant
        end_s = self._clock.end_of_step_s(work, participant.round_index)
        seconds = participant.schedule.seconds_per_round
        self._place = participant.round_index if seconds is None else int(end_s / seconds)
        self._edges = []
        if self._quiet_s <= end_s and participant.gossip_state.u > 0:
            self._edges = self._edges_to_those_there(work)
        return len(self._edges), 0

    def _edges_to_those_there(self, work: Work) -> list[WeightedEdge]:
        """Edges of this round to those that are there, by plan, when its step ends.

        That is later than without those who are not: never is anything sent to who has left.
        """
        participant = self._participant
        edges = participant.membership.out_edges(self._place)
        alive = [edge for edge in edges if edge.receiver not in self._presumed_dead]
        all_work = work + participant.gossip_work(len(alive), 0)
        end_s = self._clock.end_of_step_s(all_work, participant.round_index)
        return [edge for edge in alive if self._attendance.is_present(edge.receiver, end_s)]

    def spend(self, model: MeteredModel) -> None:
        """Let the clock go on by the work of the step, or as far where there was none."""
        participant, figures = self._participant, self._participant.figures_of_round()
        round_index = participant.round_index
        if figures.has_stepped:
            self._meter.step(figures.work, round_index)
        else:
            self._meter.begin_round(Work())
            self._clock.idle(participant.trainer.step_work(model, round_index), round_index)

    def listen(self, known: Sequence[Incoming]) -> None:
        """Let the radio take in what it has begun to by now, before anything is sent."""
        self._clock.listen(known)

    def send(self) -> list[Envelope]:
        """The messages of this round, with time bounds on those of the next."""
        participant = self._participant
        next_round = participant.round_index + 1
        work = None if self.is_in_last_round else participant.trainer.known_work(next_round)
        # What ends it is its leave, not the end of the run.
        self._is_leaving = self._horizon_s > self._leave_s <= self.now_s
        self._clock.foresee(work, next_round, hands_over=self._is_leaving)
        envelopes = participant.write_shares(self._edges, participant.round_index)
        if envelopes:
            stamps = [
                (envelope.edge[1], envelope.stamp) for envelope in envelopes if envelope.stamp
            ]
            assert len(stamps) == len(envelopes), "free pace needs a clock"
            self._quiet_s = quiet_until_s(
                self._clock, participant.schedule, self.index, self._place, stamps
            )
        return envelopes

    def presume_dead(self, receivers: Collection[int]) -> None:
        """From the next round on send nothing to these devices."""
        self._presumed_dead = frozenset(receivers)

    def arrived(self, known: Sequence[Incoming]) -> list[MessageKey]:
        """Messages to absorb in this round, in this order.

        Args:
            known: all that reach the device by the end of its step, or after its last step at all.
        """
        if self.is_in_last_round:
            return self._clock.await_rest(known)
        return self._clock.arrived(known)

    def absorb(self, arrivals: Sequence[Arrival]) -> None:
        """Mix in messages in the order given."""
        figures = self._participant.figures_of_round()
        figures.staleness = self._staleness(arrivals)
        self._is_over = self.is_in_last_round
        self._participant.mix_in([arrival.message for arrival in arrivals])
        work = self._participant.gossip_work(0, len(arrivals))
        figures.work += work
        self._meter.end_round(self._clock.absorb(work), figures.received_bytes, work)

    def _staleness(self, arrivals: Sequence[Arrival]) -> Staleness:
        stamps = [arrival.stamp for arrival in arrivals if arrival.stamp is not None]
        assert len(stamps) == len(arrivals), "free pace needs a clock"
        return Staleness.of([self.now_s - stamp.start_s for stamp in stamps])

    def leave(self, next_sequences: Mapping[Edge, int]) -> list[Envelope]:  # noqa: ARG002
        """Leave for good: hand x and u over to a neighbour that stays.

        To one that can't die, if there is one, because nobody knows yet who has died of late; of
        those to one that is there now, if there is one; of those to the first that this round could
        send to, or else that it ever sends to. Not to one that it presumes dead. If there is
        nobody, the device keeps what it has.

        Returns:
            The message, if there is one: the device's last.
        """
        participant, clock = self._participant, self._clock
        clock.foresee(None, participant.round_index + 1)
        participant.has_left = True
        now = [edge.receiver for edge in participant.membership.out_edges(self._place)]
        successors = [
            receiver
            for receiver in (*now, *self._receivers)
            if clock.may_inherit(receiver) and receiver not in self._presumed_dead
        ]
        state = participant.gossip_state
        if not successors or state.u <= 0:
            return []
        participant.has_successor = True
        links, there = clock.hardware.links, self._attendance.is_present
        successor = min(successors, key=lambda i: (links[i].is_mortal, not there(i, self.now_s)))
        return [
            participant.outbox.write(
                (self.index, successor),
                participant.round_index,
                "handover",
                whole(state.x, participant.algorithm.layout),
                push_weight=state.u,
                notes=HandoverNotes(0, (), {}).to_numbers(),
                sent_in=participant.round_index,
            )
        ]

    def end_round(self) -> None:
        """The device dies if it can't pay for one more round."""
        if not (self.is_done or self._meter.has_charge):
            self.has_died = True
            self._clock.foresee(None, self._participant.round_index)

    def state(self) -> dict[str, Any]:
        """Until when the radio is quiet, and which devices are presumed dead."""
        return {"quiet_s": self._quiet_s, "presumed_dead": sorted(self._presumed_dead)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what `state` described."""
        self._quiet_s = state["quiet_s"]
        self._presumed_dead = frozenset(state["presumed_dead"])


def _hands_over_mass(message: Message) -> bool:
    """Whether a message is all that a device had which has left: x and u, and no address."""
    return (
        message.kind == "handover"
        and is_handover_notes(message.notes)
        and HandoverNotes.from_numbers(message.notes) == HandoverNotes(0, (), {})
    )
