"""What devices at free pace do with their time: their clocks, run without training.

At free pace no device waits for another one. A device that is awake computes: a step, then what
it takes to absorb the messages that have arrived. A radio that is still busy skips messages, so
how many a device sends in a round follows from the clocks of all.

The clocks run for the whole training where it is short. A long one is reckoned from two shorter
ones. They have the same devices and end as the long one does, by rounds or by virtual time, after n
and 4n rounds in place of N. So each has the phases of the long one: quick devices end first, and
then slow ones absorb fewer messages. The phases grow in proportion, and what happens once, such as
the first rounds, in which no radio is busy yet, does not grow. So a count of the long training is

    c(N) = c(4n) + (N - 4n) / (3n) (c(4n) - c(n))
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from edgesim.assembly.free_clocks import EndOfRound, clocks_of
from edgesim.assembly.studied_scenario import StudiedScenario
from edgesim.hardware.timeline import Hardware
from edgesim.study.rounds import steady_state
from edgesim.study.rounds.critical_path import Limit
from edgesim.study.rounds.round_ends import ends_of, without_absences
from edgesim.study.rounds.steady_state import (
    DeviceCycle,
    SteadyState,
    longest_sleep_cycle_s,
)

# What each device does more in the longer one of two trainings, unless that takes too many events.
_ROUNDS = 120
_MESSAGES = 50
_TIMES = 4  # as many rounds as the shorter one
_MOST_EVENTS = 100_000  # of the longer one; they take a second or two
_PATIENCE = 3  # times as many, until each device has a further round, and for contact traces


@dataclass(frozen=True, slots=True)
class WholeTraining:
    """A training from the first step to the last; one entry a device.

    Attributes:
        rounds: rounds that it does; whole numbers unless they are reckoned.
        end_s: its clock at the end.
        wait_s: awake seconds after its last step, until the last message to it has arrived.
    """

    rounds: tuple[float, ...]
    end_s: tuple[float, ...]
    wait_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FreePace:
    """A fleet at free pace.

    Attributes:
        steady_state: times of the devices, none of them waiting; means over the whole training.
        sent: of each device, in how many rounds it sends so many messages, all in proportion to the
            training; where it is reckoned, negative where shorter trainings have more of them.
        absorbed: of each device, in how many rounds it absorbs so many messages, likewise.
        whole: the whole training.
    """

    steady_state: SteadyState
    sent: tuple[Mapping[int, int], ...]
    absorbed: tuple[Mapping[int, int], ...]
    whole: WholeTraining


def find_free_pace(
    studied: StudiedScenario, hardware: Sequence[Hardware], most_events: int | None = None
) -> FreePace:
    """Run the clocks of a fleet at free pace, and take means over rounds of each device.

    Args:
        studied: the scenario, as objects.
        hardware: hardware of each device; planned absences and leaves are left out.
        most_events: largest number of rounds and messages of a training from which a longer one is
            reckoned, as far as that is known before; None for the usual number.
    """
    awake = [replace(own, duty_cycle=without_absences(own)) for own in hardware]
    most_events = most_events or _MOST_EVENTS
    few_events = steady_state.FEW_EVENTS
    if studied.schedule.seconds_per_round is not None:
        few_events = _PATIENCE * most_events  # graphs by time are no quicker in a shorter training
    counts, shorter = _of_training(studied, awake, studied.num_rounds, few_events), None
    if counts is None:
        shorter = _two_shorter(studied, awake, most_events)
        if shorter is None:
            counts = _of_training(studied, awake, studied.num_rounds)
        else:
            counts = _reckoned(shorter, studied.num_rounds)
    assert counts is not None, "the training of a study ends"
    state = _steady_state(counts, awake, shorter)
    if shorter is None:
        whole = WholeTraining(
            rounds=tuple(own.rounds for own in counts),
            end_s=tuple(own.end_s for own in counts),
            wait_s=tuple(own.wait_s for own in counts),
        )
    else:
        whole = _reckoned_end(studied, counts, state, awake, (_TIMES - 1) * shorter.num_rounds)
    return FreePace(
        steady_state=state,
        sent=tuple(own.sent for own in counts),
        absorbed=tuple(own.absorbed for own in counts),
        whole=whole,
    )


def trace_notices(studied: StudiedScenario, state: SteadyState | None) -> list[str]:
    """A notice that a long training on a contact trace is reckoned from a part of it."""
    is_by_time = studied.schedule.seconds_per_round is not None
    if not is_by_time or state is None or state.is_whole:
        return []
    if not state.is_free:
        if not steady_state.is_trace(studied.schedule):
            return []
        first, last = state.warm_up_rounds, state.warm_up_rounds + state.num_rounds - 1
        said = (
            f"topology: times, and what follows from them, are those of rounds {first:,} to "
            f"{last:,} of the trace, and can be far off; messages and bytes are counted over the "
            "whole training; a shorter training (training.rounds or epochs) is run whole"
        )
        return [said]
    said = (
        f"topology: the training has more than {_PATIENCE * _MOST_EVENTS:,} rounds and messages, "
        "so times, messages and energies are reckoned from the first contacts of the trace and can "
        "be far off; a shorter training (training.rounds, epochs or virtual_time_s) is run whole"
    )
    return [said]


def _of_training(
    studied: StudiedScenario,
    hardware: Sequence[Hardware],
    num_rounds: int,
    most_events: float = inf,
) -> list[_Counts] | None:
    """Counts of a training; None if it has more events.

    A shorter one than the scenario's ends by virtual time as much earlier.
    """
    limit_s = studied.scenario.training.virtual_time_s
    end_s = inf if limit_s is None else limit_s * (num_rounds / studied.num_rounds)
    counts, events = [_Counts() for _ in hardware], 0
    for ended in clocks_of(studied, hardware, studied.schedule).run(num_rounds, end_s):
        events += 1 + len(ended.sent)
        if events > most_events:
            return None
        counts[ended.device].add(ended)
    return counts


@dataclass(frozen=True, slots=True)
class _TwoShorter:
    """Counts of a training of some rounds, and of a longer one; one entry a device."""

    num_rounds: int
    shorter: Sequence[_Counts]
    longer: Sequence[_Counts]

    @property
    def least_rounds(self) -> int:
        """Rounds that the longer one has more, of the device with the fewest."""
        return min(b.rounds - a.rounds for a, b in zip(self.shorter, self.longer, strict=True))

    @property
    def least_messages(self) -> int:
        """Messages that the longer one has more, of the device that sends the fewest."""
        return min(b.messages - a.messages for a, b in zip(self.shorter, self.longer, strict=True))

    @property
    def next_events(self) -> int:
        """Rounds and messages that a training as much longer again is expected to have."""
        first, second = (sum(own.rounds + own.messages for own in counts) for counts in self._both)
        return second + _TIMES * (second - first)

    @property
    def _both(self) -> tuple[Sequence[_Counts], Sequence[_Counts]]:
        return self.shorter, self.longer


def _two_shorter(
    studied: StudiedScenario, hardware: Sequence[Hardware], most_events: int
) -> _TwoShorter | None:
    """Two trainings from which the scenario's can be reckoned; None if it is hardly longer."""
    num_rounds, shorter = 1, _of_training(studied, hardware, 1)
    while 2 * _TIMES * num_rounds <= studied.num_rounds:
        longer = _of_training(studied, hardware, _TIMES * num_rounds)
        assert shorter is not None, "without a limit to the events"
        assert longer is not None, "without a limit to the events"
        two = _TwoShorter(num_rounds, shorter, longer)
        is_enough = two.least_rounds >= _ROUNDS and two.least_messages >= _MESSAGES
        limit = most_events if two.least_rounds else _PATIENCE * most_events
        if is_enough or two.next_events > limit:
            return two
        num_rounds, shorter = _TIMES * num_rounds, longer
    return None


def _reckoned(two: _TwoShorter, num_rounds: int) -> list[_Counts]:
    """Counts of a training of so many rounds, all times what the longer one has more rounds."""
    n = two.num_rounds
    weights = num_rounds - n, _TIMES * n - num_rounds
    return [
        _Counts.weighted(weights, (longer, shorter))
        for longer, shorter in zip(two.longer, two.shorter, strict=True)
    ]


def _reckoned_end(
    studied: StudiedScenario,
    counts: Sequence[_Counts],
    state: SteadyState,
    hardware: Sequence[Hardware],
    times: int,
) -> WholeTraining:
    """The end of a training whose counts were reckoned, times so much.

    Sleep stretches the time of rounds and waits by the share of the time in which a device is
    awake, as it does in the mean over whole cycles.
    """
    limit_s = studied.scenario.training.virtual_time_s
    rounds, ends_s, waits_s = [], [], []
    for own, cycle, awake in zip(counts, state.devices, hardware, strict=True):
        by_time = inf if limit_s is None else limit_s / cycle.period_s
        rounds.append(min(studied.num_rounds, by_time))
        waits_s.append(max(own.wait_s / times, 0.0))
        last_s = waits_s[-1] / without_absences(awake).awake_part
        ends_s.append(rounds[-1] * cycle.period_s + last_s)
    return WholeTraining(tuple(rounds), tuple(ends_s), tuple(waits_s))


def _steady_state(
    counts: Sequence[_Counts], hardware: Sequence[Hardware], shorter: _TwoShorter | None
) -> SteadyState:
    """Means of the rounds of a whole training, or of one that was reckoned."""
    pairs = zip(counts, hardware, strict=True)
    cycles = [own.cycle(awake, is_whole=shorter is None) for own, awake in pairs]
    slowest = max(range(len(cycles)), key=lambda device: (cycles[device].period_s, -device))
    return SteadyState(
        warm_up_rounds=shorter.num_rounds if shorter else 0,
        num_rounds=shorter.least_rounds if shorter else min(own.rounds for own in counts),
        devices=tuple(cycles),
        limits=_limits_of(slowest, cycles[slowest]),
        longest_sleep_cycle_s=longest_sleep_cycle_s(hardware),
        ends=ends_of([own.ends_s for own in counts], hardware),
        is_free=True,
        is_whole=shorter is None,
    )


def _limits_of(device: int, cycle: DeviceCycle) -> tuple[Limit, ...]:
    """What a round of a device consists of: it computes while it is awake."""
    limits = [Limit("computing", device, None, cycle.compute_s)]
    if cycle.sleep_s:
        limits.append(Limit("sleep", device, None, cycle.sleep_s))
    return tuple(sorted(limits, key=lambda limit: -limit.seconds))


@dataclass(slots=True)
class _Counts:
    """Counts of the rounds of one device.

    Attributes:
        sent: numbers of rounds, by the number of messages sent.
        absorbed: numbers of rounds, by the number of messages absorbed.
        senders: messages absorbed, by their sender.
        compute_s: awake seconds of steps and messages.
        air_s: seconds for which the radio is busy.
        lost_bytes: bytes sent again.
        end_s: its clock at the end.
        rest_s: seconds from its last step until the last message to it has arrived.
        wait_s: those of them in which it is awake.
        ends_s: its clock at the end of each round, without the last wait; none if reckoned.
    """

    sent: Counter[int] = field(default_factory=Counter)
    absorbed: Counter[int] = field(default_factory=Counter)
    senders: Counter[int] = field(default_factory=Counter)
    compute_s: float = 0.0
    air_s: float = 0.0
    lost_bytes: int = 0
    end_s: float = 0.0
    rest_s: float = 0.0
    wait_s: float = 0.0
    ends_s: array[float] = field(default_factory=lambda: array("d"))

    @classmethod
    def weighted(cls, weights: tuple[int, int], counts: tuple[_Counts, _Counts]) -> _Counts:
        """A weighted sum of the counts of two trainings; messages are 0 if there were fewer."""
        pairs = tuple(zip(weights, counts, strict=True))

        def summed(counter: Callable[[_Counts], Mapping[int, int]]) -> Counter[int]:
            total = Counter[int]()
            for weight, own in pairs:
                for key, count in counter(own).items():
                    total[key] += weight * count
            return total

        def rounds_by_messages(counter: Callable[[_Counts], Mapping[int, int]]) -> Counter[int]:
            total = summed(counter)
            messages = sum(number * rounds for number, rounds in total.items())
            return total if messages >= 0 else Counter({0: total.total()})

        return cls(
            sent=rounds_by_messages(lambda own: own.sent),
            absorbed=rounds_by_messages(lambda own: own.absorbed),
            senders=summed(lambda own: own.senders),
            compute_s=sum(weight * own.compute_s for weight, own in pairs),
            air_s=max(sum(weight * own.air_s for weight, own in pairs), 0.0),
            lost_bytes=max(sum(weight * own.lost_bytes for weight, own in pairs), 0),
            wait_s=sum(weight * own.wait_s for weight, own in pairs),
        )

    @property
    def rounds(self) -> int:
        """Number of the rounds."""
        return self.sent.total()

    @property
    def messages(self) -> int:
        """Number of messages sent."""
        return sum(messages * rounds for messages, rounds in self.sent.items())

    def add(self, ended: EndOfRound) -> None:
        """Count a round."""
        self.end_s, self.rest_s, self.wait_s = ended.end_s, ended.rest_s, ended.wait_s
        self.ends_s.append(ended.end_s - ended.rest_s)
        self.sent[len(ended.sent)] += 1
        self.absorbed[len(ended.absorbed)] += 1
        self.senders.update(sender for sender, _, _ in ended.absorbed)
        self.compute_s += ended.compute_s
        self.air_s += ended.air_s
        self.lost_bytes += ended.lost_bytes

    def cycle(self, hardware: Hardware, is_whole: bool) -> DeviceCycle:
        """Means of a round."""
        rounds = self.rounds
        compute_s = self.compute_s / rounds
        if is_whole:
            period_s = (self.end_s - self.rest_s) / rounds
        else:
            # It computes whenever it is awake, so sleep stretches each round alike in the long run.
            period_s = compute_s / without_absences(hardware).awake_part
        return DeviceCycle(
            period_s=period_s,
            compute_s=compute_s,
            wait_s=0.0,
            air_s=self.air_s / rounds,
            lost_bytes=self.lost_bytes / rounds,
            waits_for=None,
            absorbed_from={
                sender: max(count / rounds, 0.0) for sender, count in sorted(self.senders.items())
            },
        )
