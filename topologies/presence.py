"""Presence of devices by rounds: absences, late joins, leaves for good."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Protocol

from topologies.churn_entries import PlannedChurn
from topologies.errors import TopologyError
from topologies.random_absence import RandomAbsence
from topologies.spans import FOREVER, Span, is_on, off_spans


class Presence(Protocol):
    """Presence of devices: a pure function of device and round, the same on every device."""

    def is_present(self, device: int, round_index: int) -> bool:
        """Whether a device exchanges messages in a round."""

    def join_round(self, device: int) -> int:
        """First round in which a device takes part; it is absent before."""

    def leave_round(self, device: int) -> int | None:
        """Round from which on a device leaves for good; None if it stays.

        The device counts as present after it has left, since its successor answers for its edges.
        """

    def spans(self, device: int) -> tuple[Span, ...]:
        """Rounds in which a device is present, increasing, without random absences."""


@dataclass(frozen=True, slots=True)
class Everyone:
    """Every device is present in every round."""

    def is_present(self, device: int, round_index: int) -> bool:  # noqa: ARG002
        """True for every device and round."""
        return True

    def join_round(self, device: int) -> int:  # noqa: ARG002
        """Round 0, the start."""
        return 0

    def leave_round(self, device: int) -> None:
        """None: no device leaves."""

    def spans(self, device: int) -> tuple[Span, ...]:  # noqa: ARG002
        """All rounds."""
        return ((0, FOREVER),)


EVERYONE = Everyone()
"""The presence of a fleet without churn."""


@dataclass(frozen=True, slots=True)
class Absence:
    """An absence of a device.

    Attributes:
        device: number of the device.
        from_round: first round without it.
        until_round: first round in which it is back; None if it stays away.
    """

    device: int
    from_round: int
    until_round: int | None = None

    def __str__(self) -> str:
        until = "for ever" if self.until_round is None else f"until round {self.until_round}"
        return f"is absent from round {self.from_round} {until}"

    @property
    def away(self) -> Span:
        """Rounds without the device."""
        return self.from_round, FOREVER if self.until_round is None else self.until_round


@dataclass(frozen=True, slots=True)
class Joining:
    """A device joins in this round, at least 1."""

    device: int
    round: int

    def __str__(self) -> str:
        return f"joins in round {self.round}"

    @property
    def away(self) -> Span:
        """Rounds without the device."""
        return 0, self.round


@dataclass(frozen=True, slots=True)
class Leaving:
    """A device leaves for good in this round, at least 1, or in its first turn afterwards."""

    device: int
    round: int

    def __str__(self) -> str:
        return f"leaves in round {self.round}"

    @property
    def away(self) -> Span:
        """Rounds without the device."""
        return self.round, FOREVER


@dataclass(frozen=True)
class Churn(PlannedChurn[int]):
    """Planned absences, joins and leaves, and random absences.

    At least one device is present in every round: in a round in which plan and chance would leave
    none, random absences are ignored. Random absences do not apply to a device that has left, since
    its successor answers for its edges.

    Args:
        num_devices: number of devices of the fleet.
        absences: planned absences.
        joins: planned joins, at most one for each device.
        leaves: planned leaves, at most one for each device.
        chance: random absences; None without them.

    Raises:
        TopologyError: an unknown device, a span that ends before it begins, two entries of one
            device that overlap, a device that is never there, or a round without any.
    """

    LATER: ClassVar[str] = "in round 1 or later"

    num_devices: int
    absences: tuple[Absence, ...] = ()
    joins: tuple[Joining, ...] = ()
    leaves: tuple[Leaving, ...] = ()
    chance: RandomAbsence | None = None

    def __post_init__(self) -> None:
        self._check_entries()
        for device, own in self._entries.items():
            if not self.spans(device):
                raise TopologyError(
                    f"device {device} {own[0]}, so it is never there; let it come back, or remove "
                    "it"
                )
        self._check_that_somebody_is_there()

    def is_present(self, device: int, round_index: int) -> bool:
        """Whether a device exchanges messages in a round."""
        if is_on(self._away.get(device, ()), round_index):
            return False
        leave_round = self.leave_round(device)
        if self.chance is None or (leave_round is not None and round_index >= leave_round):
            return True
        if not self.chance.is_absent(device, round_index):
            return True
        return not any(self._is_there(other, round_index) for other in range(self.num_devices))

    def join_round(self, device: int) -> int:
        """First round in which a device takes part; it is absent before."""
        return self._joins.get(device, 0)

    def leave_round(self, device: int) -> int | None:
        """Round from which on a device leaves for good; None if it stays."""
        return self._leaves.get(device)

    def spans(self, device: int) -> tuple[Span, ...]:
        """Rounds in which a device is present, increasing, without random absences."""
        return off_spans(self._away.get(device, ()))

    def _is_there(self, device: int, round_index: int) -> bool:
        """Whether the device itself, not its successor, is present by plan and chance."""
        leave_round = self.leave_round(device)
        has_left = leave_round is not None and round_index >= leave_round
        is_away = has_left or is_on(self._away.get(device, ()), round_index)
        assert self.chance is not None, "called with random absences only"
        return not (is_away or self.chance.is_absent(device, round_index))

    def _check_that_somebody_is_there(self) -> None:
        """Refuse a round in which all devices are absent by plan or have left."""
        spans = [entry.away for own in self._entries.values() for entry in own]
        steps = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
        num_away = 0
        for (round_index, step), (next_round, _) in pairwise([*steps, (FOREVER, 0)]):
            num_away += step
            # Changes of one round count together.
            if num_away == self.num_devices and next_round > round_index:
                raise TopologyError(
                    f"all {self.num_devices} devices are absent or have left in round "
                    f"{round_index}; one must be there in every round"
                )


def build_churn(
    num_devices: int,
    *,
    seed: int,
    absent: Iterable[Mapping[str, Any]] = (),
    joins: Iterable[Mapping[str, Any]] = (),
    leaves: Iterable[Mapping[str, Any]] = (),
    random: Mapping[str, Any] | None = None,
) -> Churn:
    """Build churn from the keys of a scenario, which are the arguments of the classes above.

    Raises:
        TopologyError: as for `Churn` and `RandomAbsence`.
    """
    return Churn(
        num_devices,
        tuple(Absence(**words) for words in absent),
        tuple(Joining(**words) for words in joins),
        tuple(Leaving(**words) for words in leaves),
        RandomAbsence(**random, seed=seed) if random is not None else None,
    )
