"""Free pace: a device never waits in virtual time, and absorbs what has arrived by its clock.

Per round, driven from outside:

    device.step(model)                 # local step, which ends at t
    pace.announce(())                  # if it `listens_first`: no message leaves before t
    pace.listen(known)                 #     messages that its radio has begun to receive by t
    envelopes = device.send()            # messages for the active out-edges
    pace.announce(envelopes)             # time bounds for edges without a message
    pace.presume_dead(receivers)       # receivers that were silent for a time-out
    pace.arrived(known)                # which messages to absorb, in which order
    device.absorb(arrivals)
    pace.leave({})                     # only if it `must_leave`: hands over x and u
    device.report()

A device sends a message only if its messages of earlier rounds have left, if half-duplex radios
have time for it (quiet_times.py), and if the receiver is present by plan when the step ends.
Otherwise the round is a local step alone. The clock of a device that has joined and has no mass yet
advances by the time of a step. After its last step a device absorbs all messages on their way to
it, so that no mass is lost. hardware/free_clock.py computes when messages arrive,
fleet/transport/time_bounds.py when a device knows all that have arrived.

A device dies between two rounds, when its battery could not pay for another round as costly as its
costliest. It keeps its x and u; messages on their way to it are lost. Neighbours still send to it
until they presume it dead (fleet/transport/liveness.py).
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
from edgesim.device.pace.quiet_times import quiet_until_s
from edgesim.device.participant import Participant
from edgesim.device.round_figures import Staleness
from edgesim.hardware.free_clock import FreeClock, Incoming, MessageKey
from edgesim.hardware.meter import Meter
from edgesim.hardware.work import Work
from edgesim.scenario.pace import PaceName
from topologies import TimedChurn


@final
class Free:
    """Free pace of one device; implements `Pace`.

    Args:
        participant: the device.
        meter: of the device.
        horizon_s: the first step that ends at this virtual time or later is the last; infinity for
            no limit.
        timed_churn: presence of all devices by virtual time.

    Attributes:
        has_died: the device's battery is empty.
    """

    name: PaceName = "free"
    waits_for_mail = True  # it must also wait to know that nothing arrived
    is_succeeded = False

    def __init__(
        self,
        participant: Participant,
        meter: Meter[FreeClock],
        *,
        horizon_s: float,
        timed_churn: TimedChurn,
    ) -> None:
        self.has_died = False
        self._participant = participant
        self._meter = meter
        self._clock = meter.timeline
        self._horizon_s = horizon_s
        self._timed_churn = timed_churn
        self._leave_s = timed_churn.leave_s(participant.index)
        if timed_churn.join_s(participant.index) > 0:
            participant.drop_mass_()
        self._receivers = participant.schedule.possible_receivers(participant.index)
        self._presumed_dead: frozenset[int] = frozenset()
        self._is_over = False
        self._is_leaving = False
        self._edges: list[WeightedEdge] = []
        self._place = 0
        self._quiet_s = 0.0  # virtual time; rounds that end earlier send nothing

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
        """Whether the device leaves by plan; it has absorbed all messages to it."""
        return self._is_over and self._is_leaving

    @property
    def gone(self) -> Literal["died", "left"] | None:
        """Why the device no longer takes part in the fleet; None if it does."""
        if self.has_died:
            return "died"
        return "left" if self._participant.has_left else None

    @property
    def listens_first(self) -> bool:
        """Whether the radio is half-duplex: it receives arrived messages before it sends."""
        return self._clock.listens_first

    @property
    def known_until_s(self) -> float:
        """Time up to which the device must know of all messages before it absorbs any."""
        return inf if self.is_in_last_round else self.now_s

    @property
    def mortal_receivers(self) -> list[int]:
        """Possible receivers that have a battery, so that they may die."""
        links = self._clock.hardware.links
        return [receiver for receiver in self._receivers if links[receiver].is_mortal]

    def possible_in_edges(self) -> list[Edge]:
        """Edges on which a message may come in some round."""
        senders = self._participant.schedule.possible_senders(self.index)
        return [(sender, self.index) for sender in senders]

    def expects(self, message: Message) -> bool:
        """Whether such a message can arrive: of this algorithm, on an edge of the schedule."""
        return (
            message.algorithm == self._participant.algorithm.name
            and (message.kind == "share" or _hands_over_mass(message))
            and (message.sender, message.receiver) in self.possible_in_edges()
        )

    def announce(self, sent: Sequence[Envelope]) -> list[Announcement]:
        """Time bounds for the edges on which the round sends nothing, then life signs."""
        return [*self._time_bounds(sent), *self._life_signs()]

    def _time_bounds(self, sent: Sequence[Envelope]) -> list[TimeBound]:
        spoken = {envelope.edge for envelope in sent}
        edges = [(self.index, receiver) for receiver in self._receivers]
        outbox = self._participant.outbox
        return [
            TimeBound(edge, outbox.next_sequences.get(edge, 0), self._clock.bound_s(edge))
            for edge in edges
            if edge not in spoken
        ]

    def _life_signs(self) -> list[LifeSign]:
        """Life signs to all possible senders; none if the device cannot die.

        A device dies only between two rounds, so it does not die before the time of its clock.
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
        """Numbers of messages to send and to absorb; those to absorb are counted later.

        Over links slower than the steps the queue of messages would grow without bound. So a device
        whose pause after its last messages is not over when the step ends sends nothing. Neither
        does a device without mass.
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
        """Edges of this round to receivers that are present, by plan, when its step ends.

        The step includes the work of sending to all living neighbours, so its end is not estimated
        too early. So nothing is sent to a device that has left by then.
        """
        participant = self._participant
        edges = participant.membership.out_edges(self._place)
        alive = [edge for edge in edges if edge.receiver not in self._presumed_dead]
        all_work = work + participant.gossip_work(len(alive), 0)
        end_s = self._clock.end_of_step_s(all_work, participant.round_index)
        return [edge for edge in alive if self._timed_churn.is_present(edge.receiver, end_s)]

    def spend(self, model: MeteredModel) -> None:
        """Advance the clock by the time of the step, also if the device had no mass to take it."""
        participant, figures = self._participant, self._participant.figures_of_round()
        round_index = participant.round_index
        if figures.has_stepped:
            self._meter.step(figures.work, round_index)
        else:
            figures.work = Work()  # it computes nothing
            self._meter.begin_round(Work())
            self._clock.idle(participant.trainer.step_work(model, round_index), round_index)

    def stay_away(self) -> None:
        """Nothing: an absent device sleeps by its clock, and its round goes on when it is back."""

    def listen(self, known: Sequence[Incoming]) -> None:
        """Let the radio finish the messages that it has begun to receive, before it sends."""
        self._clock.listen(known)

    def send(self) -> list[Envelope]:
        """The messages of this round, with time bounds on those of the next."""
        participant = self._participant
        next_round = participant.round_index + 1
        work = None if self.is_in_last_round else participant.trainer.known_work(next_round)
        # The device ends by its leave, not by the end of the run.
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
            known: all messages that reach the device by the end of its step; after its last step,
                all messages to it.
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
        is_idle = not (arrivals or figures.has_stepped)
        work = Work() if is_idle else self._participant.gossip_work(0, len(arrivals))
        figures.work += work
        self._meter.end_round(self._clock.absorb(work), figures.received_bytes, work)

    def _staleness(self, arrivals: Sequence[Arrival]) -> Staleness:
        stamps = [arrival.stamp for arrival in arrivals if arrival.stamp is not None]
        assert len(stamps) == len(arrivals), "free pace needs a clock"
        return Staleness.of([self.now_s - stamp.start_s for stamp in stamps])

    def leave(self, next_sequences: Mapping[Edge, int]) -> list[Envelope]:  # noqa: ARG002
        """Leave for good: hand x and u over to a neighbour that stays.

        Candidates are neighbours that stay to the end and are not presumed dead. The device prefers
        neighbours without a battery, since others may have died unnoticed; among these it prefers
        present ones; among these the first in the order of its edges. Without a candidate the
        device keeps its x and u.

        Returns:
            The device's last message; empty without a candidate or without mass.
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
        links, there = clock.hardware.links, self._timed_churn.is_present
        successor = min(successors, key=lambda i: (links[i].is_mortal, not there(i, self.now_s)))
        last = participant.outbox.write(
            (self.index, successor),
            participant.round_index,
            "handover",
            whole(state.x, participant.algorithm.layout),
            push_weight=state.u,
            notes=HandoverNotes(0, (), {}).to_numbers(),
            sent_in=participant.round_index,
        )
        self._meter.await_radio()
        return [last]

    def end_round(self) -> None:
        """End the round; the device dies if its battery cannot pay for another one."""
        if not (self.is_done or self._meter.has_charge):
            self.has_died = True
            self._clock.foresee(None, self._participant.round_index)

    def state(self) -> dict[str, Any]:
        """Until when the radio is quiet, and which devices are presumed dead."""
        return {"quiet_s": self._quiet_s, "presumed_dead": sorted(self._presumed_dead)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state` returned."""
        self._quiet_s = state["quiet_s"]
        self._presumed_dead = frozenset(state["presumed_dead"])


def _hands_over_mass(message: Message) -> bool:
    """Whether a message is the handover of a leaver at free pace: x and u, without addresses."""
    return (
        message.kind == "handover"
        and is_handover_notes(message.notes)
        and HandoverNotes.from_numbers(message.notes) == HandoverNotes(0, (), {})
    )
