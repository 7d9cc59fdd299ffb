"""When a fleet in lockstep repeats itself, and its events of one period after the other.

Clocks and radios count from each other alone. If a period of the graphs moves all of them by the
same time, the next period does the same, and so do all that follow. This holds for devices that
never sleep, whose steps and messages take the same time each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from edgesim.hardware.duty_cycle import DutyCycle
from edgesim.hardware.timeline import Hardware, Timeline
from edgesim.study.critical_path import Event
from topologies import Schedule

_ROUNDING = 1e-9  # relative rounding error of sums of times
_Key = tuple[int, int | None, bool]  # sender or computing device, receiver, whether it is received


def is_repeatable(hardware: Sequence[Hardware], schedule: Schedule) -> bool:
    """Whether a fleet may repeat itself: no chance, no sleep, graphs with a period.

    Args:
        hardware: of each device, without planned absences.
        schedule: of the graphs.
    """
    if schedule.period is None:
        return False
    for device, own in enumerate(hardware):
        cycle = own.duty_cycle
        if own.compute_jitter or not (isinstance(cycle, DutyCycle) and cycle.is_sleepless):
            return False
        for receiver in schedule.possible_receivers(device):
            if own.links[receiver].loss or own.links[receiver].jitter_s:
                return False
    return True


class Repetition:
    """Looks whether a fleet repeats itself.

    Args:
        period: rounds after which its graphs repeat.
    """

    def __init__(self, period: int) -> None:
        self.period = period
        self._times_s: list[float] = []
        self._rounds: deque[dict[_Key, Event]] = deque(maxlen=2 * period)

    def whole(self, num_rounds: int) -> int:
        """The rounds of so many that are whole periods."""
        return num_rounds // self.period * self.period

    def is_reached(self, clocks: Sequence[Timeline]) -> bool:
        """Whether the period since the last call moved all clocks and radios by the same time."""
        before_s = self._times_s
        self._times_s = [time_s for own in clocks for time_s in (own.now_s, own.radio_free_s)]
        if not before_s:
            return False
        moved_s = [now_s - then_s for now_s, then_s in zip(self._times_s, before_s, strict=True)]
        return max(moved_s) - min(moved_s) <= _ROUNDING * max(moved_s)

    def begin_round(self) -> None:
        """Keep the events of the last two periods, this round included."""
        self._rounds.append({})

    def keep(self, event: Event, *, is_received: bool) -> None:
        """Keep an event of this round; a message is sent, or received by a busy radio."""
        self._rounds[-1][event.device, event.receiver, is_received] = event

    def newest(self) -> Callable[[Event], Event]:
        """The same event in the last period, of an event of the one before; else the event."""
        rounds = list(self._rounds)
        again: dict[int, Event] = {}
        for before, after in zip(rounds, rounds[self.period :], strict=False):
            again |= {id(own): after[key] for key, own in before.items() if key in after}
        return lambda event: again.get(id(event), event)
