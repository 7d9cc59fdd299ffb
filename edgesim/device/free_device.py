"""A device at free pace: it never waits in virtual time, and absorbs what has arrived by its clock.

Per round, driven from outside:

    device.step(model)                     # local step, which ends at t
    device.promises(()), life_signs()      # if it `listens_first`: nothing leaves before t
    device.listen(known)                   #     what its radio has begun to take in by t
    letters = device.send()                # what leaves on each active out-edge
    device.promises(letters), life_signs() # for edges on which nothing leaves
    device.presume_dead(receivers)         # of whom nothing was heard for a time-out by t
    device.arrived(known)                  # which messages to absorb, in which order
    device.absorb(arrivals)
    device.leave({})                       # only if it `must_leave`: hands over what it has
    device.report()

A message leaves only if those of earlier rounds have left, if half-duplex radios can keep up with
such messages (`quiet_until_s`), and if the receiver is there by plan as the step ends: else the
round is a local step alone. A device without mass, which has joined, lets the time of a step pass.
After its last step a device takes in all that is still on its way to it, so that no mass is left on
the road. hardware/free_clock.py says when what arrives, fleet/transport/promises.py when that is
known.

A device whose battery is empty dies between two rounds, when it could not pay for one more like its
costliest. It keeps its x and u; what is on its way to it is lost, x with its u. Neighbours go on
sending until they presume it dead (fleet/transport/liveness.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Literal

from numpy.typing import NDArray

from edgesim.compression.lossless import whole
from edgesim.compression.wire import Message
from edgesim.costs.metered_model import MeteredModel
from edgesim.device.device import Device
from edgesim.device.mail import Arrival, Letter, LifeSign, Promise
from edgesim.device.membership import Edge, WeightedEdge, Will, is_will
from edgesim.device.round_figures import Staleness, Stopwatch
from edgesim.hardware.free_clock import FreeClock, Incoming, MessageKey
from edgesim.hardware.timeline import Stamp
from edgesim.hardware.work import Work
from edgesim.results.columns import RoundReport
from edgesim.results.snapshot import Snapshot
from edgesim.storage.state_tree import Arrays
from topologies import Schedule, TimedChurn, possible_receivers


class FreeDevice(Device):
    """See above.

    Args:
        horizon_s: the step that ends at that virtual time or later is the last; infinity for none.
        attendance: who is there when.
        options: as of `Device`; its meter has a `FreeClock`.

    Attributes:
        has_died: its battery is empty.
    """

    def __init__(self, *, horizon_s: float, attendance: TimedChurn, **options: Any) -> None:  # noqa: ANN401
        super().__init__(**options)
        self.has_died = False
        self._horizon_s = horizon_s
        self._attendance = attendance
        self._leave_s = attendance.leave_s(self.index)
        if attendance.join_s(self.index) > 0:  # it brings no mass: the first message does
            self._gossip_state.x.zero_()
            self._gossip_state.u = 0.0
        self._receivers = possible_receivers(self.membership.schedule, self.index)
        self._presumed_dead: frozenset[int] = frozenset()
        self._is_over = False
        self._is_leaving = False
        self._edges: list[WeightedEdge] = []
        self._place = 0
        self._quiet_s = 0.0  # until then no round sends

    @property
    def _clock(self) -> FreeClock:
        assert self._meter is not None, "free pace needs a clock"
        assert isinstance(self._meter.timeline, FreeClock), "chosen with the pace"
        return self._meter.timeline

    @property
    def is_done(self) -> bool:
        """Whether there is no round left to do."""
        return self._is_over or self.has_died or super().is_done

    @property
    def is_in_last_round(self) -> bool:
        """Whether the round under way is the last; known when its step has ended."""
        is_past = self.now_s >= min(self._horizon_s, self._leave_s)
        return super().is_in_last_round or is_past

    @property
    def must_leave(self) -> bool:
        """Whether the device leaves by plan, now that it has taken in all that was on its way."""
        return self._is_over and self._is_leaving

    @property
    def listens_first(self) -> bool:
        """Whether it must be known what reaches the device before it can send."""
        return self._clock.listens_first

    @property
    def waits_for_mail(self) -> bool:
        """Always: that nothing comes before the end of a step must be known as well."""
        return True

    @property
    def known_until_s(self) -> float:
        """Time up to which the device must know of all messages before it absorbs any."""
        return inf if self.is_in_last_round else self.now_s

    @property
    def mortal_receivers(self) -> list[int]:
        """Devices that it may send to and that may die."""
        links = self._clock.hardware.links
        return [receiver for receiver in self._receivers if links[receiver].is_mortal]

    def expects(self, message: Message) -> bool:
        """Whether such a message can be due: of our algorithm, on an edge that there is."""
        return (
            message.algorithm == self._algorithm.name
            and (message.kind == "share" or _hands_over_mass(message))
            and message.receiver == self.index
            and message.sender in self.membership.schedule.possible_senders(self.index)
        )

    def promises(self, sent: Sequence[Letter]) -> list[Promise]:
        """What the device promises on the edges on which nothing is sent now."""
        spoken = {letter.edge for letter in sent}
        edges = [(self.index, receiver) for receiver in self._receivers]
        return [
            Promise(edge, self._outbox.next_sequence(edge), self._clock.promise_s(edge))
            for edge in edges
            if edge not in spoken
        ]

    def life_signs(self) -> list[LifeSign]:
        """What the device says to those that may send to it, if it may die.

        It dies between two rounds alone, so never before the clock that it has reached.
        """
        if self._clock.hardware.profile.battery_j is None:
            return []
        never_dies = not self.has_died and (self.is_done or self.is_in_last_round)
        until_s = inf if never_dies else self.now_s
        senders = self.membership.schedule.possible_senders(self.index)
        return [LifeSign((self.index, sender), until_s, self.has_died) for sender in senders]

    def listen(self, known: Sequence[Incoming]) -> None:
        """Let the radio take in what it has begun to by now, before anything is sent."""
        self._clock.listen(known)

    def send(self) -> list[Letter]:
        """The messages of this round, with promises about those of the next."""
        next_round = self.round_index + 1
        work = None if self.is_in_last_round else self._trainer.known_work(next_round)
        # What ends it is its leave, not the end of the run.
        self._is_leaving = self._horizon_s > self._leave_s <= self.now_s
        self._clock.foresee(work, next_round, hands_over=self._is_leaving)
        letters = super().send()
        if letters:
            stamps = [(letter.edge[1], letter.stamp) for letter in letters if letter.stamp]
            assert len(stamps) == len(letters), "free pace needs a clock"
            schedule = self.membership.schedule
            self._quiet_s = quiet_until_s(self._clock, schedule, self.index, self._place, stamps)
        return letters

    def presume_dead(self, receivers: Collection[int]) -> None:
        """From the next round on send nothing to these devices."""
        self._presumed_dead = frozenset(receivers)

    def state(self, arrays: Arrays) -> dict[str, Any]:
        """As of `Device`, with the radio's and with whom it presumes dead."""
        own = {"quiet_s": self._quiet_s, "presumed_dead": sorted(self._presumed_dead)}
        return {**super().state(arrays), **own}

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Become what `state` described."""
        super().restore(state, arrays)
        self._quiet_s = state["quiet_s"]
        self._presumed_dead = frozenset(state["presumed_dead"])

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
        assert self._figures is not None, "absorb follows step"
        assert self._meter is not None, "free pace needs a clock"
        start, figures = Stopwatch.start(), self._figures
        figures.staleness = self._staleness(arrivals)
        self._is_over = self.is_in_last_round
        self._mix_in([arrival.message for arrival in arrivals])
        work = self._gossip_work(0, len(arrivals))
        figures.work += work
        self._meter.end_free_round(work, figures.received_bytes)
        figures.stopwatch += start.stop()

    def leave(self, next_sequences: Mapping[Edge, int]) -> list[Letter]:  # noqa: ARG002
        """Leave for good: hand x and u over to a neighbour that stays.

        To one that can't die, if there is one, because nobody knows yet who has died of late; of
        those to one that is there now, if there is one; of those to the first that this round could
        send to, or else that it ever sends to. Not to one that it presumes dead. If there is
        nobody, the device keeps what it has.

        Returns:
            The message, if there is one: the device's last.
        """
        state, clock = self._gossip_state, self._clock
        clock.foresee(None, self.round_index + 1)
        self.has_left = True
        now = [edge.receiver for edge in self.membership.out_edges(self._place)]
        heirs = [
            receiver
            for receiver in (*now, *self._receivers)
            if clock.may_inherit(receiver) and receiver not in self._presumed_dead
        ]
        if not heirs or state.u <= 0:
            return []
        self._has_heir = True
        links, there = clock.hardware.links, self._attendance.is_present
        heir = min(heirs, key=lambda i: (links[i].is_mortal, not there(i, self.now_s)))
        return [
            self._outbox.write(
                (self.index, heir),
                self.round_index,
                "handover",
                whole(state.x, self._algorithm.layout),
                push_weight=state.u,
                notes=Will(0, (), {}).to_notes(),
                sent_in=self.round_index,
            )
        ]

    def report(self) -> RoundReport | None:
        """As of `Device`; then the device dies, if it can't pay for one more round."""
        report = super().report()
        assert self._meter is not None, "free pace needs a clock"
        if not (self.is_done or self._meter.has_charge):
            self.has_died = True
            self._clock.foresee(None, self.round_index)
        return report

    def final_snapshot(self, number: int) -> Snapshot:
        """As of `Device`; one that has died or left is not of the fleet any more."""
        gone: Literal["died", "left"] | None = "left" if self.has_left else None
        return replace(super().final_snapshot(number), gone="died" if self.has_died else gone)

    def _spend(self, work: Work, model: MeteredModel) -> None:
        """Let the clock go on by the work of the step, or as far where there was none."""
        assert self._figures is not None, "within a round"
        assert self._meter is not None, "free pace needs a clock"
        if self._figures.has_stepped:
            self._meter.step(work, self.round_index)
        else:
            self._meter.idle(self._trainer.step_work(model, self.round_index), self.round_index)

    def _staleness(self, arrivals: Sequence[Arrival]) -> Staleness:
        stamps = [arrival.stamp for arrival in arrivals if arrival.stamp is not None]
        assert len(stamps) == len(arrivals), "free pace needs a clock"
        return Staleness.of([self.now_s - stamp.start_s for stamp in stamps])

    def _out_edges(self) -> list[WeightedEdge]:
        """Edges on which the messages of this round are sent."""
        return self._edges

    def _degrees(self, work: Work) -> tuple[int, int]:
        """Absorbing is counted when it is known how much there is.

        Over links that are slower than the steps, messages of all rounds would queue up without
        end: a device that has to be quiet when the step ends sends none. Nor does one without mass.
        """
        end_s = self._clock.end_of_step_s(work, self.round_index)
        seconds = self.membership.schedule.seconds_per_round
        self._place = self.round_index if seconds is None else int(end_s / seconds)
        self._edges = []
        if self._quiet_s <= end_s and self._gossip_state.u > 0:
            self._edges = self._edges_to_those_there(work)
        return len(self._edges), 0

    def _edges_to_those_there(self, work: Work) -> list[WeightedEdge]:
        """Edges of this round to those that are there, by plan, when its step ends.

        That is later than without those who are not: never is anything sent to who has left.
        """
        edges = self.membership.out_edges(self._place)
        alive = [edge for edge in edges if edge.receiver not in self._presumed_dead]
        all_work = work + self._gossip_work(len(alive), 0)
        end_s = self._clock.end_of_step_s(all_work, self.round_index)
        return [edge for edge in alive if self._attendance.is_present(edge.receiver, end_s)]


def quiet_until_s(
    clock: FreeClock,
    schedule: Schedule,
    sender: int,
    place: int,
    stamps: Sequence[tuple[int, Stamp]],
) -> float:
    """When a device may send again after the messages of a round.

    Not before they have left. A half-duplex radio moreover divides the time in which it is
    awake evenly among its links, those on which it sends and those on which it hears, with one
    share to spare; a link uses no more than its share at either end. So what reaches such a
    radio never queues up for long, and nobody has to tell a sender how far its receivers are.

    Args:
        clock: of the sender.
        schedule: of the graphs.
        sender: the device.
        place: round of the schedule in which it has sent.
        stamps: receiver and stamp of each message.
    """
    hardware, until_s = clock.hardware, clock.timeline.radio_free_s
    own = _shares(schedule, sender, place) / hardware.duty_cycle.awake_part
    for receiver, stamp in stamps:
        listens = hardware.links[receiver].listens
        times = max(
            own if hardware.is_half_duplex else 1.0,
            1.0 if listens is None else _shares(schedule, receiver, place) / listens,
        )
        until_s = max(until_s, stamp.start_s + times * stamp.air_s)
    return until_s


def _shares(schedule: Schedule, device: int, place: int) -> int:
    """Into how many parts a half-duplex radio divides its time."""
    receivers = len(schedule.out_edges(device, place))
    return receivers + len(schedule.in_neighbors(device, place)) + 1


def _hands_over_mass(message: Message) -> bool:
    """Whether a message is all that a device had which has left: x and u, and no address."""
    return (
        message.kind == "handover"
        and is_will(message.notes)
        and Will.from_notes(message.notes) == Will(0, (), {})
    )
