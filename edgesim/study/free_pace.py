"""What devices at free pace do with their time: their clocks, run for some rounds without training.

At free pace no device waits for another one. A device that is awake computes: a step, then what
it takes to absorb the messages that have arrived. A radio that is still busy skips messages, so
how many a device sends in a round follows from the clocks of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from edgesim.assembly.free_clocks import EndOfRound, clocks_of
from edgesim.assembly.studied_scenario import StudiedScenario
from edgesim.hardware.timeline import Hardware
from edgesim.study.critical_path import Limit
from edgesim.study.steady_state import (
    DeviceCycle,
    SteadyState,
    longest_sleep_cycle_s,
    without_absences,
)

_WARM_UP = 20  # rounds of a device that are not counted
_ROUNDS = 120  # rounds of the slowest device that are counted, if the clocks come to so many
_MOST_EVENTS = 100_000  # rounds and messages of all devices; they take some seconds


@dataclass(frozen=True, slots=True)
class FreePace:
    """A fleet at free pace.

    Attributes:
        steady_state: times of the devices, none of them waiting.
        sent: of each device, in how many of the counted rounds it sends so many messages.
        absorbed: of each device, in how many of these rounds it absorbs so many messages.
    """

    steady_state: SteadyState
    sent: tuple[Mapping[int, int], ...]
    absorbed: tuple[Mapping[int, int], ...]


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
    sums = [_Sums() for _ in awake]
    events, most_events = 0, most_events or _MOST_EVENTS
    for rounds, ended in enumerate(clocks_of(studied, awake, studied.schedule).run(), 1):
        sums[ended.device].add(ended)
        events += 1 + len(ended.sent)
        if rounds % len(sums) == 0:  # to look at all devices after each round would take long
            least = min(own.rounds for own in sums)
            if least >= _WARM_UP + _ROUNDS or (events >= most_events and least):
                break
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
        ),
        sent=tuple(own.sent for own in sums),
        absorbed=tuple(own.absorbed for own in sums),
    )


def _limits_of(device: int, cycle: DeviceCycle) -> tuple[Limit, ...]:
    """What a round of a device consists of: it computes while it is awake."""
    limits = [Limit("computing", device, None, cycle.compute_s)]
    if cycle.sleep_s:
        limits.append(Limit("sleep", device, None, cycle.sleep_s))
    return tuple(sorted(limits, key=lambda limit: -limit.seconds))


@dataclass(slots=True)
class _Sums:
    """Counts of one device: of all its rounds until it has warmed up, then of those after that."""

    rounds: int = 0
    warm_up: int = 0
    sent: Counter[int] = field(default_factory=Counter)
    absorbed: Counter[int] = field(default_factory=Counter)
    senders: Counter[int] = field(default_factory=Counter)
    compute_s: float = 0.0
    air_s: float = 0.0
    lost_bytes: int = 0

    @property
    def counted(self) -> int:
        """Rounds that the sums are of."""
        return self.rounds - self.warm_up

    def add(self, ended: EndOfRound) -> None:
        """Count a round."""
        if ended.rounds_done == _WARM_UP + 1:
            self.warm_up = _WARM_UP
            self.sent, self.absorbed, self.senders = Counter(), Counter(), Counter()
            self.compute_s, self.air_s, self.lost_bytes = 0.0, 0.0, 0
        self.rounds = ended.rounds_done
        self.sent[len(ended.sent)] += 1
        self.absorbed[len(ended.absorbed)] += 1
        self.senders.update(sender for sender, _, _ in ended.absorbed)
        self.compute_s += ended.compute_s
        self.air_s += ended.air_s
        self.lost_bytes += ended.lost_bytes

    def cycle(self, hardware: Hardware) -> DeviceCycle:
        """Means of a round."""
        compute_s = self.compute_s / self.counted
        return DeviceCycle(
            # It computes whenever it is awake, so sleep stretches each round alike in the long run.
            period_s=compute_s / without_absences(hardware).awake_part,
            compute_s=compute_s,
            wait_s=0.0,
            air_s=self.air_s / self.counted,
            lost_bytes=self.lost_bytes / self.counted,
            waits_for=None,
            absorbed_from={
                sender: count / self.counted for sender, count in sorted(self.senders.items())
            },
        )
