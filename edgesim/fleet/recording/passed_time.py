"""Time that work has taken, without pauses: what tells how long the rest takes."""

from __future__ import annotations

from dataclasses import dataclass

# Progress that comes so late, and so many times as late as usual, comes after a pause.
PAUSE_S, PAUSE_FACTOR, STEPS_BEFORE_PAUSE = 20.0, 10.0, 3


@dataclass(slots=True)
class PassedTime:
    """Adds up the times between signs of progress.

    A pause, such as a wait for disk space, a stopped process or a machine that slept, counts like a
    usual step.

    Attributes:
        seconds: so far.
    """

    seconds: float = 0.0
    _num_steps: int = 0

    def add(self, step_s: float) -> None:
        """Take notice of progress, so many seconds after the last one."""
        self.seconds += self._without_pause(step_s)
        self._num_steps += 1

    def _without_pause(self, step_s: float) -> float:
        if self._num_steps < STEPS_BEFORE_PAUSE:
            return step_s
        mean_s = self.seconds / self._num_steps
        return mean_s if step_s > max(PAUSE_S, PAUSE_FACTOR * mean_s) else step_s
