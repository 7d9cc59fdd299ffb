"""Who is there in which round: absences, devices that join late, devices that leave for good."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

from topologies.churn_entries import check_devices, check_overlaps, entries_by_device
from topologies.errors import TopologyError
from topologies.random_absence import RandomAbsence
from topologies.spans import FOREVER, Span, is_on, off_spans


class Presence(Protocol):
    """Who is there in which round: a pure function of the round, the same on every device."""

    def is_present(self, device: int, round_index: int) -> bool:
        """Whether a device exchanges messages in a round."""

    def join_round(self, device: int) -> int:
        """First round in which a device takes part; it is absent before."""

    def leave_round(self, device: int) -> int | None:
        """Round from which on a device is to leave for good; None if it stays.

        It counts as present from then on: its successor answers for its edges.
        """

    def spans(self, device: int) -> tuple[Span, ...]:
        """Rounds in which a device can be present, increasing: chance may keep it away in some."""


@dataclass(frozen=True, slots=True)
class Everyone:
    """Everybody is there, always."""

    def is_present(self, device: int, round_index: int) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def join_round(self, device: int) -> int:  # noqa: ARG002
        """From the start."""
        return 0

    def leave_round(self, device: int) -> None:
        """Nobody leaves."""

    def spans(self, device: int) -> tuple[Span, ...]:  # noqa: ARG002
        """All rounds."""
        return ((0, FOREVER),)


EVERYONE = Everyone()
"""The presence of a fleet without churn."""


@dataclass(frozen=True, slots=True)
class Absence:
    """A device is away for a while.

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
    """A device takes part from this round on, at least 1."""

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
    """A device leaves for good in this round, at least 1, or as soon after as it can."""

    device: int
    round: int

    def __str__(self) -> str:
        return f"leaves in round {self.round}"

    @property
    def away(self) -> Span:
        """Rounds without the device."""
        return self.round, FOREVER


_Entry: TypeAlias = Absence | Joining | Leaving


@dataclass(frozen=True)
class Churn:
    """Absences, joins and leaves as planned, and absences by chance.

    Somebody is there in every round: where chance would leave nobody, it keeps nobody away. It does
    not touch the edges of a device that is to have left, for which its successor answers.

    Args:
        num_devices: of the fleet.
        absences: of any devices.
        joins: one for a device at most.
        leaves: likewise.
        chance: of further absences; None if there are none.

    Raises:
        TopologyError: an unknown device, a span that ends before it begins, two entries of one
            device that overlap, a device that is never there, or a round without any.
    """

    num_devices: int
    absences: tuple[Absence, ...] = ()
    joins: tuple[Joining, ...] = ()
    leaves: tuple[Leaving, ...] = ()
    chance: RandomAbsence | None = None

    def __post_init__(self) -> None:
        entries: tuple[_Entry, ...] = (*self.absences, *self.joins, *self.leaves)
        check_devices(entries, self.num_devices)
        for entry in entries:
            _check_rounds(entry)
        check_overlaps(self._entries)
        for device, own in self._entries.items():
            self._check_device(device, own)
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
        return self._join_rounds.get(device, 0)

    def leave_round(self, device: int) -> int | None:
        """Round from which on a device is to leave for good; None if it stays."""
        return self._leave_rounds.get(device)

    def spans(self, device: int) -> tuple[Span, ...]:
        """Rounds in which a device can be present, increasing: chance may keep it away in some."""
        return off_spans(self._away.get(device, ()))

    def _is_there(self, device: int, round_index: int) -> bool:
        """Whether plan and chance let a device itself, not its successor, take part in a round."""
        leave_round = self.leave_round(device)
        has_left = leave_round is not None and round_index >= leave_round
        is_away = has_left or is_on(self._away.get(device, ()), round_index)
        assert self.chance is not None, "nobody else asks"
        return not (is_away or self.chance.is_absent(device, round_index))

    def _check_device(self, device: int, own: Sequence[_Entry]) -> None:
        """Refuse entries of one device, in order, that do not go together."""
        if self.join_round(device) == self.leave_round(device):
            raise TopologyError(
                f"device {device} {own[-1]}, in which it joins; let it stay for a while, or "
                "remove it"
            )
        if not self.spans(device):
            raise TopologyError(
                f"device {device} {own[0]}, so it is never there; let it come back, or remove it"
            )

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

    @cached_property
    def _entries(self) -> dict[int, list[_Entry]]:
        """Entries of each device by their first round."""
        every: tuple[_Entry, ...] = (*self.joins, *self.absences, *self.leaves)
        return entries_by_device(every)

    @cached_property
    def _away(self) -> dict[int, tuple[int, ...]]:
        """Rounds in which each device goes and comes back, in turn."""
        away: dict[int, tuple[int, ...]] = {}
        for device, own in self._entries.items():
            spans = [entry.away for entry in own if not isinstance(entry, Leaving)]
            away[device] = tuple(round_index for span in spans for round_index in span)
        return away

    @cached_property
    def _join_rounds(self) -> dict[int, int]:
        return {entry.device: entry.round for entry in self.joins}

    @cached_property
    def _leave_rounds(self) -> dict[int, int]:
        return {entry.device: entry.round for entry in self.leaves}


def build_churn(
    num_devices: int,
    *,
    seed: int,
    absent: Iterable[Mapping[str, Any]] = (),
    joins: Iterable[Mapping[str, Any]] = (),
    leaves: Iterable[Mapping[str, Any]] = (),
    random: Mapping[str, Any] | None = None,
) -> Churn:
    """Build churn from a scenario's words, which are the arguments of the classes above.

    Raises:
        TopologyError: it can't be; see `Churn` and `RandomAbsence`.
    """
    return Churn(
        num_devices,
        tuple(Absence(**words) for words in absent),
        tuple(Joining(**words) for words in joins),
        tuple(Leaving(**words) for words in leaves),
        RandomAbsence(**random, seed=seed) if random is not None else None,
    )


def _check_rounds(entry: _Entry) -> None:
    start, end = entry.away
    if start < 0 or end <= start or (isinstance(entry, Leaving) and start == 0):
        raise TopologyError(
            f"device {entry.device} {entry}; absences must end after they begin, joins and leaves "
            "be in round 1 or later"
        )
