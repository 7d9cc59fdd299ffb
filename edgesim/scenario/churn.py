"""Section `fleet.churn`: devices that are absent, join late, or leave for good.

In lockstep entries count rounds, from 0. At free pace, where rounds of devices do not coincide,
entries are in seconds of virtual time. `topologies` checks that entries of one device do not
overlap and that some device is always there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from edgesim.scenario.hardware import NotNegative
from edgesim.scenario.pace import PaceRules
from edgesim.scenario.section import (
    LARGEST,
    ContradictionError,
    Count,
    DeviceName,
    MustBe,
    Natural,
    Quantity,
    Section,
)

DeviceReference = Annotated[
    Natural | DeviceName, MustBe("a whole number, at least 0, or the name of a device")
]
"""A device: its number, or its name where devices have names."""

_ROUNDING = 1e-12  # of probabilities such as 0.8, which floats do not have exactly
_SHORTEST_ABSENCE_S = 1e-3  # least mean of random absences, each of which costs a draw


class _Entry(Section):
    """An event of churn, in a round or at a time.

    Attributes:
        in_rounds: keys that count rounds; required keys stand first.
        in_seconds: for each of these keys, the key of the same meaning at free pace.
        num_needed: number of required keys in rounds.
        num_needed_s: number of required keys in seconds.
    """

    in_rounds: ClassVar[tuple[str, ...]]
    in_seconds: ClassVar[tuple[str, ...]]
    num_needed: ClassVar[int] = 1
    num_needed_s: ClassVar[int] = 1
    said_of_rounds: ClassVar[str] = "a whole number of rounds"

    def check_unit(self, pace: PaceRules) -> None:
        """Make sure that the entry is in rounds in lockstep and in seconds at free pace.

        Raises:
            ContradictionError: the entry has the other unit, or lacks a required key.
        """
        wrong, right, needed = self.in_seconds, self.in_rounds, self.num_needed
        what, must_be = (
            "is in seconds, but in lockstep churn counts rounds",
            self.said_of_rounds,
        )
        if pace.goes_by_clock:
            wrong, right, needed = right, wrong, self.num_needed_s
            what = "counts rounds, of which each device has its own at fleet.pace: free"
            must_be = "a number of seconds"
        for key, instead in zip(wrong, right, strict=True):
            if getattr(self, key) is not None:
                raise ContradictionError(key, f"{what}; give {instead}")
        for key in right[:needed]:
            if getattr(self, key) is None:
                raise ContradictionError(key, f"is missing; must be {must_be}")

    def arguments(self, pace: PaceRules) -> dict[str, Any]:
        """Keys and values in the unit of the pace, as arguments for `topologies`."""
        unit = self.in_seconds if pace.goes_by_clock else self.in_rounds
        other = {*self.in_rounds, *self.in_seconds} - {*unit}
        return self.model_dump(exclude=other)


class AbsenceSection(_Entry):
    """A device that is away for a while: it sends nothing, and no device sends to it."""

    in_rounds = ("from_round", "until_round")
    in_seconds = ("from_s", "until_s")
    num_needed_s: ClassVar[int] = 2

    device: DeviceReference = Field(description="number of the device, or its name if it has one")
    from_round: Natural | None = Field(
        default=None, description="in lockstep: first round without it"
    )
    until_round: Count | None = Field(
        default=None,
        description="in lockstep: first round in which it is back; null: it never comes back",
    )
    from_s: NotNegative | None = Field(
        default=None, description="at free pace: virtual time from which on it is away"
    )
    until_s: NotNegative | None = Field(
        default=None, description="at free pace: virtual time at which it is back"
    )

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        for begin, end in (("from_round", "until_round"), ("from_s", "until_s")):
            start, stop = getattr(self, begin), getattr(self, end)
            if start is not None and stop is not None and stop <= start:
                raise ContradictionError(end, f"is {stop:g}; must be above {begin}, {start:g}")
        return self

    def check_unit(self, pace: PaceRules) -> None:
        """Check the unit; at free pace also that the absence ends, since else the device leaves."""
        if pace.goes_by_clock and self.from_s is not None and self.until_s is None:
            raise ContradictionError(
                "until_s",
                "is missing; say when the device is back, or name it in churn.leaves, if it is not",
            )
        super().check_unit(pace)


class JoinSection(_Entry):
    """A device that is not there from the start."""

    in_rounds = ("round",)
    in_seconds = ("at_s",)

    device: DeviceReference = Field(description="number of the device, or its name if it has one")
    round: Count | None = Field(
        default=None, description="in lockstep: first round in which it takes part"
    )
    at_s: Quantity | None = Field(
        default=None, description="at free pace: virtual time from which on it takes part"
    )


class LeaveSection(_Entry):
    """A device that leaves for good and hands over its mass."""

    in_rounds = ("round",)
    in_seconds = ("at_s",)

    device: DeviceReference = Field(description="number of the device, or its name if it has one")
    round: Count | None = Field(
        default=None,
        description=(
            "in lockstep: first round in which it may leave; it leaves in its first turn "
            "from then on; with n devices, each has its turn in one of n exchanges"
        ),
    )
    at_s: Quantity | None = Field(
        default=None,
        description=(
            "at free pace: virtual time; the first step that ends then or later is its last"
        ),
    )


class RandomAbsenceSection(_Entry):
    """Random absences, drawn for each device independently."""

    in_rounds = ("mean_absence_rounds",)
    said_of_rounds = "a number of rounds, at least 1"
    in_seconds = ("mean_absence_s",)

    absence_probability: Annotated[
        float, Field(gt=0, lt=1), MustBe("a number above 0 and below 1")
    ] = Field(description="share of rounds, or of the time, in which a device is absent")
    mean_absence_rounds: Annotated[float, Field(ge=1, le=1e9)] | None = Field(
        default=None, description="in lockstep: mean length of an absence"
    )
    mean_absence_s: Annotated[float, Field(ge=_SHORTEST_ABSENCE_S, le=LARGEST)] | None = Field(
        default=None, description="at free pace: mean length of an absence"
    )

    @model_validator(mode="after")
    def _leaves_time_to_be_present(self) -> Self:
        shortest = self.absence_probability / (1 - self.absence_probability)
        given = self.mean_absence_rounds
        if given is not None and given < shortest * (1 - _ROUNDING):
            raise ContradictionError(
                "mean_absence_rounds",
                f"is {given:g}; must be at least {shortest:g} for "
                f"absence_probability: {self.absence_probability:g}, since a device is back for "
                "one round at least",
            )
        return self


class ChurnSection(Section):
    """Devices that come and go: by rounds in lockstep, by virtual time at free pace."""

    absent: Annotated[tuple[AbsenceSection, ...], Field(strict=False)] = Field(
        default=(), description="planned absences"
    )
    joins: Annotated[tuple[JoinSection, ...], Field(strict=False)] = Field(
        default=(), description="devices that join late"
    )
    leaves: Annotated[tuple[LeaveSection, ...], Field(strict=False)] = Field(
        default=(), description="devices that leave for good"
    )
    random: RandomAbsenceSection | None = Field(
        default=None, description="random absences in addition; null: none"
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.absent or self.joins or self.leaves or self.random):
            raise ContradictionError(
                "absent", "is missing; give absent, joins, leaves or random, or no churn"
            )
        return self

    def check_devices(self, num_devices: int) -> None:
        """Make sure that all numbers of devices are in the range of the fleet.

        Raises:
            ContradictionError: a number is not; its key is relative to the section `fleet`.
        """
        for key, device in self.devices():
            if isinstance(device, int) and device >= num_devices:
                raise ContradictionError(
                    f"churn.{key}.device",
                    f"is {device}; must be from 0 to {num_devices - 1}, one of the fleet's devices",
                )

    def check_units(self, pace: PaceRules) -> None:
        """Make sure that all entries are in the unit of the pace.

        Raises:
            ContradictionError: an entry is not; its key is relative to the section `fleet`.
        """
        for key, entry in self._entries():
            try:
                entry.check_unit(pace)
            except ContradictionError as error:
                raise ContradictionError(f"churn.{key}.{error.key}", error.problem) from error

    def arguments(self, pace: PaceRules, numbers: Mapping[str, int]) -> dict[str, Any]:
        """Arguments of `build_churn`, or at free pace of `build_timed_churn`.

        Args:
            pace: pace of the fleet.
            numbers: number of the device of each name.
        """

        def by_number(entry: _Entry) -> dict[str, Any]:
            given = entry.arguments(pace)
            return given | {"device": numbers.get(given["device"], given["device"])}

        return {
            "absent": list(map(by_number, self.absent)),
            "joins": list(map(by_number, self.joins)),
            "leaves": list(map(by_number, self.leaves)),
            "random": None if self.random is None else self.random.arguments(pace),
        }

    def devices(self) -> Iterator[tuple[str, int | str]]:
        """Key and device of each entry, in the order of `arguments`."""
        for key, entry in self._entries():
            if (device := getattr(entry, "device", None)) is not None:
                yield key, device

    def _entries(self) -> Iterator[tuple[str, _Entry]]:
        """Key and value of each entry."""
        for name in ("absent", "joins", "leaves"):
            for place, entry in enumerate(getattr(self, name)):
                yield f"{name}.{place}", entry
        if self.random is not None:
            yield "random", self.random
