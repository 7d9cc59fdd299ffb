"""What devices at free pace do with their time: their clocks, run without training.

At free pace no device waits for another one. A device that is awake computes: a step, then what
it takes to absorb the messages that have arrived. A radio that is still busy skips messages, so
how many a device sends in a round follows from the clocks of all.

The clocks run for the whole training where it is short: radios are free in the first rounds, so
these send more messages than later ones. Of a long training they run for some rounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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

_WARM_UP = 20  # rounds of a device that are not counted
_ROUNDS = 120  # rounds of the slowest device that are counted, if the clocks come to so many
_MESSAGES = 20  # of each device in the rounds that are counted, unless that takes too many events
_MOST_EVENTS = 100_000


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
        sent: of each device, in how many of the counted rounds it sends so many messages.
        absorbed: of each device, in how many of these rounds it absorbs so many messages.
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
        most_events: largest number of rounds and messages, unless a device then has no round;
            None for the usual number.
    """
    awake = [replace(own, duty_cycle=without_absences(own)) for own in hardware]
    whole = None
    sums = _of_training(studied, awake)
    if sums is None:
        sums = _of_rounds(studied, awake, most_events or _MOST_EVENTS)
    else:
        whole = WholeTraining(
            rounds=tuple(own.rounds for own in sums),
            end_s=tuple(own.end_s for own in sums),
            wait_s=tuple(own.wait_s for own in sums),
        )
    cycles = tuple(own.cycle(hardware) for own, hardware in zip(sums, awake, strict=True))
    slowest = max(range(len(cycles)), key=lambda device: (cycles[device].period_s, -device))
    return FreePace(
        steady_state=SteadyState(
            warm_up_rounds=min(own.warm_up for own in sums),
            num_rounds=min(own.counted for own in sums),
            devices=cycles,
            limits=_limits_of(slowest, cycles[slowest]),
            longest_sleep_cycle_s=longest_sleep_cycle_s(awake),
            is_free=True,
            is_whole=whole is not None,
        ),
        sent=tuple(own.sent for own in sums),
        absorbed=tuple(own.absorbed for own in sums),
        whole=whole,
    )


def _of_training(studied: StudiedScenario, hardware: Sequence[Hardware]) -> list[_Sums] | None:
    """Counts of the whole training; None if it takes more than a few events."""
    limit_s = studied.scenario.training.virtual_time_s
    sums, events = [_Sums(ends=True) for _ in hardware], 0
    clocks = clocks_of(studied, hardware, studied.schedule)
    for ended in clocks.run(studied.num_rounds, inf if limit_s is None else limit_s):
        sums[ended.device].add(ended)
        events += 1 + len(ended.sent)
        if events > steady_state.FEW_EVENTS:
            return None
    return sums


def _of_rounds(
    studied: StudiedScenario, hardware: Sequence[Hardware], most_events: int
) -> list[_Sums]:
    """Counts of some rounds of a training that has more of them."""
    sums, events = [_Sums() for _ in hardware], 0
    for rounds, ended in enumerate(clocks_of(studied, hardware, studied.schedule).run(), 1):
        sums[ended.device].add(ended)
        events += 1 + len(ended.sent)
        if rounds % len(sums) == 0:  # to look at all devices after each round would take long
            least = min(own.rounds for own in sums)
            has_enough = least >= _WARM_UP + _ROUNDS and (
                events >= steady_state.FEW_EVENTS or min(own.messages for own in sums) >= _MESSAGES
            )
            if has_enough or (events >= most_events and least):
                break
    return sums


def _limits_of(device: int, cycle: DeviceCycle) -> tuple[Limit, ...]:
    """What a round of a device consists of: it computes while it is awake."""
    limits = [Limit("computing", device, None, cycle.compute_s)]
    if cycle.sleep_s:
        limits.append(Limit("sleep", device, None, cycle.sleep_s))
    return tuple(sorted(limits, key=lambda limit: -limit.seconds))


@dataclass(slots=True)
class _Sums:
    """Counts of one device: of all its rounds until it has warmed up, then of those after that.

    Attributes:
        ends: whether the rounds are those of a whole training: then all of them count.
    """

    ends: bool = False
    rounds: int = 0
    warm_up: int = 0
    sent: Counter[int] = field(default_factory=Counter)
    absorbed: Counter[int] = field(default_factory=Counter)
    senders: Counter[int] = field(default_factory=Counter)
    messages: int = 0
    compute_s: float = 0.0
    air_s: float = 0.0
    lost_bytes: int = 0
    end_s: float = 0.0
    rest_s: float = 0.0
    wait_s: float = 0.0

    @property
    def counted(self) -> int:
        """Rounds that the sums are of."""
        return self.rounds - self.warm_up

    def add(self, ended: EndOfRound) -> None:
        """Count a round."""
        if ended.rounds_done == _WARM_UP + 1 and not self.ends:
            self.warm_up, self.messages = _WARM_UP, 0
            self.sent, self.absorbed, self.senders = Counter(), Counter(), Counter()
            self.compute_s, self.air_s, self.lost_bytes = 0.0, 0.0, 0
        self.rounds, self.end_s = ended.rounds_done, ended.end_s
        self.rest_s, self.wait_s = ended.rest_s, ended.wait_s
        self.messages += len(ended.sent)
        self.sent[len(ended.sent)] += 1
        self.absorbed[len(ended.absorbed)] += 1
        self.senders.update(sender for sender, _, _ in ended.absorbed)
        self.compute_s += ended.compute_s
        self.air_s += ended.air_s
        self.lost_bytes += ended.lost_bytes

    def cycle(self, hardware: Hardware) -> DeviceCycle:
        """Means of a round."""
        compute_s = self.compute_s / self.counted
        if self.ends:
            period_s = (self.end_s - self.rest_s) / self.rounds
        else:
            # It computes whenever it is awake, so sleep stretches each round alike in the long run.
            period_s = compute_s / without_absences(hardware).awake_part
        return DeviceCycle(
            period_s=period_s,
            compute_s=compute_s,
            wait_s=0.0,
            air_s=self.air_s / self.counted,
            lost_bytes=self.lost_bytes / self.counted,
            waits_for=None,
            absorbed_from={
                sender: count / self.counted for sender, count in sorted(self.senders.items())
            },
        )
