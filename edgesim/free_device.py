"""A device at free pace: it never waits in virtual time, and absorbs what has arrived by its clock.

Per round, driven from outside:

    device.step(model)                     # local step, which ends at t
    device.promises(())                    # if it `listens_first`: nothing leaves before t
    device.listen(known)                   #     what its radio has begun to take in by t
    letters = device.send()                # what leaves on each active out-edge
    device.promises(letters)               # for edges on which nothing leaves
    device.arrived(known)                  # which messages to absorb, in which order
    device.absorb(arrivals)
    device.report()

A message leaves only if those of earlier rounds have left, and if half-duplex radios can keep up
with such messages (`quiet_until_s`): else the round is a local step alone.
After its last step a device takes in all that is still on its way to it, so that no mass is left on
the road. hardware/free_clock.py says when what arrives, fleet/promises.py when that is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from numpy.typing import NDArray

from edgesim.compression.wire import Message
from edgesim.device import Device
from edgesim.hardware.free_clock import FreeClock, Incoming, MessageKey
from edgesim.hardware.timeline import Stamp
from edgesim.hardware.work import Work
from edgesim.mail import Arrival, Letter, Promise
from edgesim.membership import WeightedEdge
from edgesim.reports import Staleness, Stopwatch
from edgesim.state_tree import Arrays
from topologies import Schedule, possible_receivers


class FreeDevice(Device):
    """See above.

    Args:
        horizon_s: the step that ends at that virtual time or later is the last; infinity for none.
        options: as of `Device`; its meter has a `FreeClock`.
    """

    def __init__(self, *, horizon_s: float, **options: Any) -> None:  # noqa: ANN401
        super().__init__(**options)
        self._horizon_s = horizon_s
        self._receivers = possible_receivers(self.membership.schedule, self.index)
        self._is_over = False
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
        return self._is_over or super().is_done

    @property
    def is_in_last_round(self) -> bool:
        """Whether the round under way is the last; known when its step has ended."""
        return super().is_in_last_round or self.now_s >= self._horizon_s

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

    def expects(self, message: Message) -> bool:
        """Whether such a message can be due: of our algorithm, on an edge that there is."""
        return (
            message.algorithm == self._algorithm.name
            and message.kind == "share"
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

    def listen(self, known: Sequence[Incoming]) -> None:
        """Let the radio take in what it has begun to by now, before anything is sent."""
        self._clock.listen(known)

    def send(self) -> list[Letter]:
        """The messages of this round, with promises about those of the next."""
        next_round = self.round_index + 1
        work = None if self.is_in_last_round else self._trainer.known_work(next_round)
        self._clock.foresee(work, next_round)
        letters = super().send()
        if letters:
            stamps = [(letter.edge[1], letter.stamp) for letter in letters if letter.stamp]
            assert len(stamps) == len(letters), "free pace needs a clock"
            schedule = self.membership.schedule
            self._quiet_s = quiet_until_s(self._clock, schedule, self.index, self._place, stamps)
        return letters

    def state(self, arrays: Arrays) -> dict[str, Any]:
        """As of `Device`, with the radio's."""
        return {**super().state(arrays), "quiet_s": self._quiet_s}

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Become what `state` described."""
        super().restore(state, arrays)
        self._quiet_s = state["quiet_s"]

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

    def _staleness(self, arrivals: Sequence[Arrival]) -> Staleness:
        return Staleness.of(
            [self.round_index - arrival.message.round_index for arrival in arrivals],
            [self.now_s - a.stamp.start_s for a in arrivals if a.stamp is not None],
        )

    def _out_edges(self) -> list[WeightedEdge]:
        """Edges on which the messages of this round are sent."""
        return self._edges

    def _degrees(self, work: Work) -> tuple[int, int]:
        """Absorbing is counted when it is known how much there is.

        Over links that are slower than the steps, messages of all rounds would queue up without
        end: a device that has to be quiet when the step ends sends none.
        """
        end_s = self._clock.end_of_step_s(work, self.round_index)
        seconds = self.membership.schedule.seconds_per_round
        self._place = self.round_index if seconds is None else int(end_s / seconds)
        self._edges = self.membership.out_edges(self._place) if self._quiet_s <= end_s else []
        return len(self._edges), 0


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
