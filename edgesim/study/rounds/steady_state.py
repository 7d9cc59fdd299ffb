"""The rhythm of a fleet in lockstep: its clocks, run without training.

At free pace see free_pace.py. The clocks run for the whole training where it is short. Of a long
one they run for some rounds of its steady state.

In lockstep every device waits for its in-neighbours. In the steady state all devices of a strongly
connected fleet have the same cycle time: the largest mean time per round of any cycle of devices
that wait for each other. The number of rounds until then is not known beforehand. Whether the
fleet has settled shows in the cycle times: they are equal.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

from edgesim.hardware.timeline import NOBODY, Hardware, Stamp, Timeline
from edgesim.hardware.work import Work
from edgesim.study.rounds.critical_path import Event, Limit, limits_of
from edgesim.study.rounds.round_ends import RoundEnds, ends_of, without_absences
from topologies import Schedule, first_exchange, with_everyone

_LEAST_WARM_UP = 20  # exchanges
_LEAST_ROUNDS = 120  # a multiple of the length of most short cycles of waiting
SLEEPS = 10  # periods of the longest duty cycle that are averaged over
_MOST_EVENTS = 150_000  # steps and messages of all devices; they take some seconds
FEW_EVENTS = 20_000  # steps and messages of a short training; they take a quarter of a second
_ROUNDING = 1e-9  # relative rounding error of sums of times
_SETTLED = 0.01  # largest difference between cycle times of a settled fleet, relative

WorkInRound = Callable[[int, int], Work]
"""Work of a device (first) in a round (second)."""

BytesBetween = Callable[[int, int], int]
"""Length of a message from a device (first) to another (second)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCycle:
    """How a device spends its time: means of a round in the steady state or the whole training.

    Attributes:
        period_s: cycle time, from the end of one round to the end of the next.
        compute_s: awake seconds of the step.
        wait_s: awake seconds in which the device did not compute.
        air_s: seconds in which the device's radio sent.
        lost_bytes: bytes that were sent again.
        waits_for: in-neighbour whose message ended most waits of the device; None without a wait,
            and where most ended with the seconds of a contact trace.
        absorbed_from: at free pace, messages absorbed in a round, by their sender.
        most_wait_s: longest `wait_s` of a round, in lockstep.
        most_late_s: longest time by which a round in lockstep ended after the seconds of a contact
            trace that it stands for; 0 without a trace.
        most_lost_bytes: largest `lost_bytes` of a round, in lockstep.
    """

    period_s: float
    compute_s: float
    wait_s: float
    air_s: float
    lost_bytes: float
    waits_for: int | None
    absorbed_from: Mapping[int, float] = field(default_factory=dict)
    most_wait_s: float = 0.0
    most_late_s: float = 0.0
    most_lost_bytes: float = 0.0

    @property
    def utilisation(self) -> float:
        """Share of the time in which the device computes; 0 if it never does anything."""
        return self.compute_s / self.period_s if self.period_s else 0.0

    @property
    def waiting(self) -> float:
        """Share of the time in which the device waits; 0 if it never does anything."""
        return self.wait_s / self.period_s if self.period_s else 0.0

    @property
    def sleep_s(self) -> float:
        """Seconds of a round in which the device sleeps."""
        rest_s = self.period_s - self.compute_s - self.wait_s
        return rest_s if rest_s > _ROUNDING * self.period_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyState:
    """Steady state of a fleet, in lockstep or at free pace.

    Attributes:
        warm_up_rounds: rounds that were run before anything was counted; at free pace rounds of the
            shorter of two trainings from which a long one is reckoned (free_pace.py).
        num_rounds: rounds over which means are taken; at free pace those that each device does
            more, at least, in the longer one.
        devices: times of each device, in the order of their numbers.
        limits: what the cycle time consists of, the longest part first: events of which each had
            to end before the next one could begin.
        late_limits: what the latest round on a contact trace took its time for, the longest first;
            empty if none ended late.
        longest_sleep_cycle_s: period of the longest duty cycle; 0 where nobody sleeps.
        ends: when devices with a battery end their rounds, by number; all rounds that the clocks
            ran from the beginning of the training on are kept, eight bytes each.
        is_free: whether the fleet is at free pace, where each device has a cycle time of its own.
        is_whole: whether the rounds are those of the whole training, and all means are over it.
    """

    warm_up_rounds: int
    num_rounds: int
    devices: tuple[DeviceCycle, ...]
    limits: tuple[Limit, ...]
    longest_sleep_cycle_s: float
    ends: Mapping[int, RoundEnds] = field(repr=False)
    is_free: bool = False
    is_whole: bool = False
    late_limits: tuple[Limit, ...] = ()

    @property
    def period_s(self) -> float:
        """Cycle time of the slowest device; in lockstep all devices have it in the end."""
        return max(device.period_s for device in self.devices)

    @property
    def is_settled(self) -> bool:
        """Whether all devices have the same cycle time, as far as they need to have it.

        They need not at free pace, nor in the mean over a whole training.
        """
        if self.is_free or self.is_whole:
            return True
        shortest = min(device.period_s for device in self.devices)
        return self.period_s - shortest <= _SETTLED * self.period_s

    def end_s(self, device: int, rounds: int, last_s: float = 0.0) -> float:
        """When a device with a battery has ended so many rounds, and was awake for a last time."""
        cycle, ends = self.devices[device], self.ends[device]
        awake_s = cycle.compute_s + cycle.wait_s
        end_s = ends.end_s(rounds, period_s=cycle.period_s, awake_s=awake_s)
        return ends.sleep.after(end_s, last_s) if last_s else end_s

    @property
    def busiest(self) -> int:
        """The device that others wait for: it computes for the largest share of its time.

        At free pace, where all devices compute all the time, it is the slowest one.
        """
        if self.is_free:
            periods = [device.period_s for device in self.devices]
            return periods.index(max(periods))
        shares = [device.utilisation for device in self.devices]
        return shares.index(max(shares))


def is_short(schedule: Schedule, num_rounds: int) -> bool:
    """Whether a training in lockstep has so few steps and messages that all are counted.

    On a contact trace they may be more: few of its rounds say nothing of the others.
    """
    schedule = with_everyone(schedule)
    events_of_round = schedule.num_devices + edges_of_exchange(schedule) / schedule.exchange_every
    most = _MOST_EVENTS if is_trace(schedule) else FEW_EVENTS
    return num_rounds * events_of_round <= most


def is_trace(schedule: Schedule) -> bool:
    """Whether contacts by time say who meets whom, and do not repeat."""
    return schedule.seconds_per_round is not None and schedule.period is None


def edges_of_exchange(schedule: Schedule) -> int:
    """Messages of the first exchange."""
    exchange = first_exchange(schedule)
    return sum(len(schedule.out_edges(i, exchange)) for i in range(schedule.num_devices))


def find_steady_state(
    hardware: Sequence[Hardware],
    schedule: Schedule,
    work: WorkInRound,
    message_bytes: BytesBetween,
    seed: int,
    most_events: int | None = None,
    num_rounds: int | None = None,
) -> SteadyState:
    """Run the clocks of a fleet until it has settled, then average over further rounds.

    A training of at most `FEW_EVENTS` steps and messages is run whole instead.

    Args:
        hardware: hardware of each device; planned absences in seconds are left out.
        schedule: the graphs that say which device sends to which.
        work: work of each step.
        message_bytes: length of each message.
        seed: seed of the scenario, so that jitter and losses are those of a run.
        most_events: largest number of steps and messages; None for the usual number.
        num_rounds: of the training; None if it is not known, or longer than any.
    """
    cycles = [without_absences(own) for own in hardware]
    hardware = [replace(own, duty_cycle=c) for own, c in zip(hardware, cycles, strict=True)]
    num_devices, every = len(hardware), schedule.exchange_every  # rounds per exchange
    edges = edges_of_exchange(schedule)
    most_groups = max(2, (most_events or _MOST_EVENTS) // (num_devices * every + edges))
    most_rounds = most_groups * every
    warm_up = min(max(_LEAST_WARM_UP, 2 * num_devices), most_groups // 2) * every
    period = schedule.period or every
    least = min(-(-_LEAST_ROUNDS // period) * period, most_rounds - warm_up)
    is_whole = num_rounds is not None and is_short(schedule, num_rounds)
    if is_whole:
        assert num_rounds is not None, "a whole training has an end"
        warm_up, least = 0, num_rounds
    fleet = _Fleet(
        clocks=[Timeline(own, seed, device) for device, own in enumerate(hardware)],
        schedule=schedule,
        work=work,
        message_bytes=message_bytes,
    )
    for round_index in range(warm_up):
        fleet.run_round(round_index)
    fleet.begin_to_count()
    # The means must include whole sleeping periods, also of a device that sleeps for hours.
    longest_cycle_s = longest_sleep_cycle_s(hardware)
    end_s = fleet.now_s + SLEEPS * longest_cycle_s
    round_index = warm_up
    while round_index < warm_up + least or (
        not is_whole and fleet.now_s < end_s and round_index < most_rounds
    ):
        for _ in range(1 if is_whole else every):
            fleet.run_round(round_index)
            round_index += 1
    counted = round_index - warm_up
    return SteadyState(
        warm_up_rounds=warm_up,
        num_rounds=counted,
        devices=fleet.cycles(counted),
        limits=fleet.limits(counted),
        late_limits=limits_of(fleet.latest, 0.0, fleet.latest_end_s, 1),
        longest_sleep_cycle_s=longest_cycle_s,
        ends=ends_of(fleet.ends_s, hardware),
        is_whole=is_whole,
    )


def longest_sleep_cycle_s(hardware: Sequence[Hardware]) -> float:
    """Period of the longest duty cycle of devices without absences; 0 where nobody sleeps."""
    cycles = map(without_absences, hardware)
    return max((cycle.period_s for cycle in cycles if not cycle.is_sleepless), default=0.0)


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A message of a round, and the event of sending it."""

    sender: int
    stamp: Stamp
    event: Event


@dataclass(slots=True)
class _Sums:
    """Counts of one device since `begin_to_count`."""

    start_s: float = 0.0
    compute_s: float = 0.0
    wait_s: float = 0.0
    air_s: float = 0.0
    lost_bytes: int = 0
    lost_in_round: int = 0
    most_wait_s: float = 0.0
    most_late_s: float = 0.0
    most_lost_bytes: int = 0
    waited_for: Counter[int] = field(default_factory=Counter)


@dataclass(slots=True)
class _Fleet:
    """Clocks of all devices, and sums of what they measure."""

    clocks: list[Timeline]
    schedule: Schedule
    work: WorkInRound
    message_bytes: BytesBetween
    ends_s: list[array[float]] = field(default_factory=list)  # of all rounds, by device
    latest: Event | None = None  # that ended the latest round on a contact trace
    latest_end_s: float = 0.0
    _most_late_s: float = 0.0
    _sums: list[_Sums] = field(default_factory=list)
    _next_sequence: Counter[tuple[int, int]] = field(default_factory=Counter)
    _clock_events: list[Event | None] = field(default_factory=list)  # which the clock stands after
    _radio_events: list[Event | None] = field(default_factory=list)  # that keep the radio busy

    def __post_init__(self) -> None:
        self._clock_events = [None] * len(self.clocks)
        self._radio_events = [None] * len(self.clocks)
        self.ends_s = [array("d") for _ in self.clocks]
        self.begin_to_count()

    @property
    def now_s(self) -> float:
        """Clock of the slowest device."""
        return min(clock.now_s for clock in self.clocks)

    def begin_to_count(self) -> None:
        """Set all sums to zero."""
        self._sums = [_Sums(start_s=clock.now_s) for clock in self.clocks]

    def run_round(self, round_index: int) -> None:
        """Run one round of all devices."""
        inboxes: list[list[_Arrival]] = [[] for _ in self.clocks]
        is_there = self.schedule.presence.is_present
        for device, clock in enumerate(self.clocks):
            if not is_there(device, round_index):
                clock.be_absent(round_index * len(self.clocks) + device)
                continue
            begin_s, before = clock.begin_s(round_index), self._clock_events[device]
            if begin_s > clock.now_s:  # it was away until this moment of a contact trace
                before = _until_moment(device)
            step_s = clock.step(self.work(device, round_index), round_index)
            self._clock_events[device] = Event(device, None, begin_s, step_s, 0.0, before)
            for receiver, _ in self.schedule.out_edges(device, round_index):
                inboxes[receiver].append(self._send(device, clock, receiver))
        for device, clock in enumerate(self.clocks):
            if not is_there(device, round_index):
                continue
            inbox, sums = inboxes[device], self._sums[device]
            last = self._last_event(device, inbox)
            step_end_s = clock.now_s
            time = clock.end_round([(one.sender, one.stamp) for one in inbox])
            if time.is_by_trace:
                self._clock_events[device] = _until_moment(device)
            elif clock.now_s > step_end_s:
                self._clock_events[device] = last
            sums.compute_s += time.compute_s
            sums.wait_s += time.wait_s
            sums.most_wait_s = max(sums.most_wait_s, time.wait_s)
            self._note_lateness(device, time.end_s, round_index)
            sums.most_lost_bytes = max(sums.most_lost_bytes, sums.lost_in_round)
            sums.lost_in_round = 0
            if time.waited_for != NOBODY or time.is_by_trace:
                sums.waited_for[time.waited_for] += 1
        for clock, ends_s in zip(self.clocks, self.ends_s, strict=True):
            ends_s.append(clock.now_s)

    def _note_lateness(self, device: int, end_s: float, round_index: int) -> None:
        """Keep by how much rounds end late on a contact trace, and what ended the latest one."""
        if round_s := self.clocks[device].hardware.round_s:
            late_s, sums = end_s - (round_index + 1) * round_s, self._sums[device]
            sums.most_late_s = max(sums.most_late_s, late_s)
            if late_s > self._most_late_s:
                self._most_late_s, self.latest_end_s = late_s, end_s
                self.latest = self._clock_events[device]

    def cycles(self, num_rounds: int) -> tuple[DeviceCycle, ...]:
        """Means over the rounds since `begin_to_count`."""
        return tuple(
            DeviceCycle(
                period_s=(clock.now_s - sums.start_s) / num_rounds,
                compute_s=sums.compute_s / num_rounds,
                wait_s=sums.wait_s / num_rounds,
                air_s=sums.air_s / num_rounds,
                lost_bytes=sums.lost_bytes / num_rounds,
                waits_for=_most_frequent(sums.waited_for),
                most_wait_s=sums.most_wait_s,
                most_late_s=sums.most_late_s,
                most_lost_bytes=sums.most_lost_bytes,
            )
            for clock, sums in zip(self.clocks, self._sums, strict=True)
        )

    def limits(self, num_rounds: int) -> tuple[Limit, ...]:
        """What the rounds of the slowest device since `begin_to_count` took their time for."""
        passed_s = [
            clock.now_s - sums.start_s for clock, sums in zip(self.clocks, self._sums, strict=True)
        ]
        slowest = passed_s.index(max(passed_s))
        since_s, end_s = self._sums[slowest].start_s, self.clocks[slowest].now_s
        return limits_of(self._clock_events[slowest], since_s, end_s, num_rounds)

    def _send(self, sender: int, clock: Timeline, receiver: int) -> _Arrival:
        edge = sender, receiver
        is_busy = clock.radio_free_s > clock.now_s
        cause = self._radio_events[sender] if is_busy else self._clock_events[sender]
        begin_s = max(clock.now_s, clock.radio_free_s)
        stamp = clock.send(edge, self.message_bytes(*edge), self._next_sequence[edge])
        self._next_sequence[edge] += 1
        self._sums[sender].air_s += stamp.air_s
        self._sums[sender].lost_bytes += stamp.lost_bytes
        self._sums[sender].lost_in_round += stamp.lost_bytes
        delay_s = stamp.arrival_s - clock.radio_free_s
        event = Event(sender, receiver, begin_s, stamp.air_s, delay_s, cause)
        self._radio_events[sender] = event
        return _Arrival(sender, stamp, event)

    def _last_event(self, device: int, inbox: Sequence[_Arrival]) -> Event | None:
        """Event with which the last message of a round is received."""
        if not inbox:
            return None
        if not self.clocks[device].hardware.is_half_duplex:
            return max(inbox, key=lambda one: (one.stamp.arrival_s, -one.sender)).event
        radio = copy(self.clocks[device])  # it receives the messages now, the clock itself later
        for one in sorted(inbox, key=lambda one: (one.stamp.first_bit_s, one.sender)):
            event = one.event
            if radio.radio_free_s > one.stamp.first_bit_s:
                cause, begin_s = self._radio_events[device], radio.radio_free_s
                event = Event(one.sender, device, begin_s, one.stamp.air_s, 0.0, cause)
            radio.listen(one.stamp)
            self._radio_events[device] = event
        return self._radio_events[device]


def _until_moment(device: int) -> Event:
    """All time until a moment of a contact trace."""
    return Event(device, None, 0.0, 0.0, 0.0, None, is_by_trace=True)


def _most_frequent(waited_for: Counter[int]) -> int | None:
    """The device that occurs most often, None if that is nobody; of several, the lowest number."""
    most = min(waited_for, key=lambda device: (-waited_for[device], device), default=NOBODY)
    return None if most == NOBODY else most
