"""What devices at free pace do with their time: their clocks, run without training.

At free pace no device waits for another one. A device that is awake computes: a step, then what
it takes to absorb the messages that have arrived. A radio that is still busy skips messages, so
how many a device sends in a round follows from the clocks of all.

The clocks run for the whole training where it is short. A long one is reckoned from two shorter
ones. They have the same devices and end as the long one does, by rounds or by virtual time, after n
and 2n rounds in place of N. So each has the phases of the long one: quick devices end first, and
then slow ones absorb fewer messages. The phases grow in proportion, and what happens once, such as
the first rounds, in which no radio is busy yet, does not grow. So a count of the long training is
that of the longer one, and (N - 2n) / n times what the longer one has more than the shorter one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from edgesim.assembly.free_clocks import EndOfRound, clocks_of
from edgesim.assembly.studied_scenario import StudiedScenario
from edgesim.hardware.timeline import Hardware
from edgesim.study import steady_state
from edgesim.study.critical_path import Limit
from edgesim.study.steady_state import (
    DeviceCycle,
    SteadyState,
    longest_sleep_cycle_s,
    without_absences,
)

# What each device does more in the longer one of two trainings, unless that takes too many events.
_ROUNDS = 120
_MESSAGES = 50
_MOST_EVENTS = 100_000  # of the longer one; they take a second or two


@dataclass(frozen=True, slots=True)
class WholeTraining:
    """The clocks of a fleet from the first step of a training to the last; one entry a device.

    Attributes:
        rounds: rounds that it does.
        end_s: its clock at the end.
        wait_s: awake seconds after its last step, until the last message to it has arrived.
    """

    rounds: tuple[int, ...]
    end_s: tuple[float, ...]
    wait_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FreePace:
    """A fleet at free pace.

    Attributes:
        steady_state: times of the devices, none of them waiting; means over the whole training
            where that is known.
        sent: of each device, in how many rounds it sends so many messages, all in proportion to the
            training; where it is reckoned, negative where shorter trainings have more of them.
        absorbed: of each device, in how many rounds it absorbs so many messages, likewise.
        whole: the whole training; None if it takes more rounds than were run.
    """

    steady_state: SteadyState
    sent: tuple[Mapping[int, int], ...]
    absorbed: tuple[Mapping[int, int], ...]
    whole: WholeTraining | None


def find_free_pace(
    studied: StudiedScenario, hardware: Sequence[Hardware], most_events: int | None = None
) -> FreePace:
    """Run the clocks of a fleet at free pace, and take means over rounds of each device.

    Args:
        studied: the scenario, as objects.
        hardware: hardware of each device; planned absences and leaves are left out.
        most_events: largest number of rounds and messages of a training from which a longer one is
            reckoned, unless a device then has no round; None for the usual number.
    """
    awake = [replace(own, duty_cycle=without_absences(own)) for own in hardware]
    counts = _of_training(studied, awake, studied.num_rounds, steady_state.FEW_EVENTS)
    shorter = None
    if counts is None:
        shorter = _two_shorter(studied, awake, most_events or _MOST_EVENTS)
    if shorter is not None:
        counts = _reckoned(shorter, studied.num_rounds)
    elif counts is None:
        counts = _of_training(studied, awake, studied.num_rounds)
    assert counts is not None, "the training of a study ends"
    return FreePace(
        steady_state=_steady_state(counts, awake, shorter),
        sent=tuple(own.sent for own in counts),
        absorbed=tuple(own.absorbed for own in counts),
        whole=None if shorter else _whole_training(counts),
    )


def _of_training(
    studied: StudiedScenario,
    hardware: Sequence[Hardware],
    num_rounds: int,
    most_events: float = inf,
) -> list[_Counts] | None:
    """Counts of a training; None if it has more events.

    A shorter one than the scenario's ends by virtual time as much earlier. Its counts are without
    the last round of each device: what this absorbs arrives after the last step, and grows with
    the length of the training (last_wait.py).
    """
    limit_s = studied.scenario.training.virtual_time_s
    end_s = inf if limit_s is None else limit_s * (num_rounds / studied.num_rounds)
    counts, events = [_Counts() for _ in hardware], 0
    for ended in clocks_of(studied, hardware, studied.schedule).run(num_rounds, end_s):
        events += 1 + len(ended.sent)
        if events > most_events:
            return None
        if num_rounds == studied.num_rounds or not ended.is_last:
            counts[ended.device].add(ended)
    return counts


@dataclass(frozen=True, slots=True)
class _TwoShorter:
    """Counts of a training of some rounds, and of one that is twice as long; one entry a device."""

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


def _two_shorter(
    studied: StudiedScenario, hardware: Sequence[Hardware], most_events: int
) -> _TwoShorter | None:
    """Two trainings from which the scenario's can be reckoned; None if it is not longer."""
    num_rounds, shorter = 1, _of_training(studied, hardware, 1)
    while 2 * num_rounds < studied.num_rounds:
        longer = _of_training(studied, hardware, 2 * num_rounds)
        assert shorter is not None, "without a limit to the events"
        assert longer is not None, "without a limit to the events"
        two = _TwoShorter(num_rounds, shorter, longer)
        if two.least_rounds > 0:
            is_enough = two.least_rounds >= _ROUNDS and two.least_messages >= _MESSAGES
            events = sum(own.rounds + own.messages for own in longer)
            if is_enough or 2 * events > most_events:
                return two
        num_rounds, shorter = 2 * num_rounds, longer
    return None


def _reckoned(two: _TwoShorter, num_rounds: int) -> list[_Counts]:
    """Counts of a training of so many rounds, all multiplied by the rounds of the shorter one."""
    weight = num_rounds - two.num_rounds, 2 * two.num_rounds - num_rounds
    return [
        _Counts.weighted(weight, (longer, shorter))
        for longer, shorter in zip(two.longer, two.shorter, strict=True)
    ]


def _whole_training(counts: Sequence[_Counts]) -> WholeTraining:
    return WholeTraining(
        rounds=tuple(own.rounds for own in counts),
        end_s=tuple(own.end_s for own in counts),
        wait_s=tuple(own.wait_s for own in counts),
    )


def _steady_state(
    counts: Sequence[_Counts], hardware: Sequence[Hardware], shorter: _TwoShorter | None
) -> SteadyState:
    """Means of the rounds of a whole training, or of one that was reckoned."""
    cycles = [
        own.cycle(awake, shorter is None) for own, awake in zip(counts, hardware, strict=True)
    ]
    slowest = max(range(len(cycles)), key=lambda device: (cycles[device].period_s, -device))
    return SteadyState(
        warm_up_rounds=shorter.num_rounds if shorter else 0,
        num_rounds=shorter.least_rounds if shorter else min(own.rounds for own in counts),
        devices=tuple(cycles),
        limits=_limits_of(slowest, cycles[slowest]),
        longest_sleep_cycle_s=longest_sleep_cycle_s(hardware),
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

    @classmethod
    def weighted(cls, weights: tuple[int, int], counts: tuple[_Counts, _Counts]) -> _Counts:
        """A weighted sum of the counts of two trainings, without an end."""
        pairs = tuple(zip(weights, counts, strict=True))

        def summed(counter: Callable[[_Counts], Mapping[int, int]]) -> Counter[int]:
            total = Counter[int]()
            for weight, own in pairs:
                for key, count in counter(own).items():
                    total[key] += weight * count
            return total

        return cls(
            sent=summed(lambda own: own.sent),
            absorbed=summed(lambda own: own.absorbed),
            senders=summed(lambda own: own.senders),
            compute_s=sum(weight * own.compute_s for weight, own in pairs),
            air_s=sum(weight * own.air_s for weight, own in pairs),
            lost_bytes=sum(weight * own.lost_bytes for weight, own in pairs),
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
                sender: count / rounds for sender, count in sorted(self.senders.items())
            },
        )
