"""What is asked of a fleet first: does it fit, how long, what limits, which battery ends.

Everything here is a view of the costs of an iteration (iteration.py) and of the whole training
(training.py); tables/answer_text.py says it in sentences.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from edgesim.study.changes import Advice
from edgesim.study.iteration import DeviceCosts, IterationCosts
from edgesim.study.rounds.critical_path import LimitKind, seconds_by_kind
from edgesim.study.training import Training, training_of


@dataclass(frozen=True, slots=True)
class Need:
    """Memory of the devices of one profile that all have enough of it, or all too little.

    Attributes:
        devices: numbers of the devices.
        profile: name of their profile; None without profiles.
        needed_bytes: memory of the one that holds the most, at the peak of a round.
        available_bytes: memory that the profile has for training; None without profiles.
    """

    devices: tuple[int, ...]
    profile: str | None
    needed_bytes: int
    available_bytes: int | None

    @property
    def free_bytes(self) -> int | None:
        """Memory that stays free; negative: memory that is missing; None without profiles."""
        return None if self.available_bytes is None else self.available_bytes - self.needed_bytes

    @property
    def fits(self) -> bool | None:
        """Whether the memory is large enough; None without profiles."""
        return None if self.free_bytes is None else self.free_bytes >= 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a fleet engineer asks first.

    Attributes:
        costs: costs of an iteration.
        training: the whole training.
        needs: memory by profile, the scarcest first.
        advice: settings that help most; None if nobody asked for them.
    """

    costs: IterationCosts
    training: Training
    needs: tuple[Need, ...]
    advice: Advice | None = field(default=None)

    @property
    def fits(self) -> bool | None:
        """Whether all devices have the memory; None without profiles."""
        verdicts = [need.fits for need in self.needs]
        return None if None in verdicts else all(verdicts)

    @property
    def links_differ(self) -> bool:
        """Whether links have rates of their own: by a graph file, or by unlike radios."""
        radios = {device.profile.radio for device in self.costs.devices if device.profile}
        schedule = self.costs.studied.schedule
        return len(radios) > 1 or any(
            schedule.link_attributes(sender, receiver)
            for sender in range(schedule.num_devices)
            for receiver in schedule.possible_receivers(sender)
        )

    @property
    def channel_s(self) -> float | None:
        """Seconds that radios send in a round, one after the other; None of fewer than three."""
        air_s = [
            device.time.cycle.air_s
            for device in self.costs.devices
            if device.time and device.profile and device.profile.radio.is_half_duplex
        ]
        return sum(air_s) if len(air_s) > 2 else None

    @property
    def by_kind(self) -> dict[LimitKind, float]:
        """What the time of a round consists of, in seconds, the longest part first."""
        state = self.costs.steady_state
        return seconds_by_kind(state.limits) if state else {}

    @property
    def limit(self) -> LimitKind | None:
        """What takes most of the time of a round; None without profiles."""
        return next(iter(self.by_kind), None)


def answer_of(costs: IterationCosts, advice: Advice | None = None) -> Answer:
    """The answer for a scenario.

    Args:
        costs: costs of an iteration.
        advice: settings that help most, if they were looked for.
    """
    return Answer(costs, training_of(costs), _needs(costs), advice)


def _needs(costs: IterationCosts) -> tuple[Need, ...]:
    """Memory by profile; of a profile whose memory is too small for some devices alone, twice."""
    groups: dict[tuple[str, int, bool | None] | None, list[DeviceCosts]] = {}
    for device in costs.devices:
        profile = device.profile
        key = None if profile is None else (profile.name, profile.memory_bytes, device.fits)
        groups.setdefault(key, []).append(device)
    needs = [
        Need(
            devices=tuple(device.device for device in devices),
            profile=None if key is None else key[0],
            needed_bytes=max(device.faithful_memory.total for device in devices),
            available_bytes=None if key is None else key[1],
        )
        for key, devices in groups.items()
    ]
    return tuple(sorted(needs, key=lambda need: need.free_bytes or 0))
