"""Section `fleet.churn`: devices that are absent, join late, or leave for good.

In lockstep entries count rounds, from 0; at free pace, where every device has rounds of its own,
they are in seconds of virtual time. Whether entries of one device overlap, and whether somebody is
there, is for `topologies` to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from edgesim.scenario.hardware import NotNegative
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
"""A device: its number, or where devices have names its name."""

Pace = Literal["lockstep", "free"]

_SHORTEST_ABSENCE_S = 1e-3  # mean of those by chance, each of which is drawn


class _Entry(Section):
    """Something that happens in a round, or at a time.

    Attributes:
        in_rounds: keys that count rounds, those first that an entry must have.
        in_seconds: the key that means the same at free pace, for each of them.
        num_needed: how many of them an entry must have, by pace.
    """

    in_rounds: ClassVar[tuple[str, ...]]
    in_seconds: ClassVar[tuple[str, ...]]
    num_needed: ClassVar[dict[Pace, int]] = {"lockstep": 1, "free": 1}

    def check_unit(self, pace: Pace) -> None:
        """Make sure that the entry is in rounds in lockstep and in seconds at free pace.

        Raises:
            ContradictionError: it is not, or lacks a key.
        """
        wrong, right = self.in_seconds, self.in_rounds
        what = "is in seconds, but in lockstep churn counts rounds"
        if pace == "free":
            wrong, right = right, wrong
            what = "counts rounds, of which each device has its own at fleet.pace: free"
        for key, instead in zip(wrong, right, strict=True):
            if getattr(self, key) is not None:
                raise ContradictionError(key, f"{what}; give {instead}")
        for key in right[: self.num_needed[pace]]:
            if getattr(self, key) is None:
                must_be = "a number of seconds" if pace == "free" else "a whole number of rounds"
                raise ContradictionError(key, f"is missing; must be {must_be}")

    def words(self, pace: Pace) -> dict[str, Any]:
        """Keys and values of that unit, as `topologies` takes them."""
        unit = self.in_rounds if pace == "lockstep" else self.in_seconds
        other = {*self.in_rounds, *self.in_seconds} - {*unit}
        return self.model_dump(exclude=other)


class AbsenceSection(_Entry):
    """A device that is away for a while: it sends nothing and nobody sends to it."""

    in_rounds = ("from_round", "until_round")
    in_seconds = ("from_s", "until_s")
    num_needed: ClassVar[dict[Pace, int]] = {"lockstep": 1, "free": 2}

    device: DeviceReference = Field(description="number of the device, or its name if it has one")
    from_round: Natural | None = Field(
        default=None, description="in lockstep: first round without it"
    )
    until_round: Count | None = Field(
        default=None,
        description="in lockstep: first round in which it is back; null: it stays away",
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

    def check_unit(self, pace: Pace) -> None:
        """As of every entry; a device that stays away for good leaves, where it has a clock."""
        if pace == "free" and self.from_s is not None and self.until_s is None:
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
    """A device that leaves for good, and hands over what it has."""

    in_rounds = ("round",)
    in_seconds = ("at_s",)

    device: DeviceReference = Field(description="number of the device, or its name if it has one")
    round: Count | None = Field(
        default=None,
        description="in lockstep: round in which it leaves, or as soon after as it has its turn: "
        "one exchange in as many as there are devices",
    )
    at_s: Quantity | None = Field(
        default=None,
        description="at free pace: the step that ends at that virtual time or later is its last",
    )


class RandomAbsenceSection(_Entry):
    """Absences by chance, of each device by itself."""

    in_rounds = ("mean_absence_rounds",)
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
        if self.mean_absence_rounds is not None and self.mean_absence_rounds < shortest:
            raise ContradictionError(
                "mean_absence_rounds",
                f"is {self.mean_absence_rounds:g}; must be at least {shortest:g} for "
                f"absence_probability: {self.absence_probability:g}, since a device is back for "
                "one round at least",
            )
        return self


class ChurnSection(Section):
    """Who is there when: in which round, or at free pace at which virtual time."""

    absent: Annotated[tuple[AbsenceSection, ...], Field(strict=False)] = Field(
        default=(), description="absences as planned"
    )
    joins: Annotated[tuple[JoinSection, ...], Field(strict=False)] = Field(
        default=(), description="devices that join late"
    )
    leaves: Annotated[tuple[LeaveSection, ...], Field(strict=False)] = Field(
        default=(), description="devices that leave for good"
    )
    random: RandomAbsenceSection | None = Field(
        default=None, description="absences by chance beside them; null: none"
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.absent or self.joins or self.leaves or self.random):
            raise ContradictionError(
                "absent", "is missing; give absent, joins, leaves or random, or no churn"
            )
        return self

    def check_devices(self, num_devices: int) -> None:
        """Make sure that all devices that are given by number are of the fleet.

        Raises:
            ContradictionError: one is not, with its key relative to this section's holder.
        """
        for key, device in self.devices():
            if isinstance(device, int) and device >= num_devices:
                raise ContradictionError(
                    f"churn.{key}.device",
                    f"is {device}; must be from 0 to {num_devices - 1}, one of the fleet's devices",
                )

    def check_units(self, pace: Pace) -> None:
        """Make sure that all entries are in the unit of the pace.

        Raises:
            ContradictionError: one is not, with its key relative to this section's holder.
        """
        for key, entry in self._entries():
            try:
                entry.check_unit(pace)
            except ContradictionError as error:
                raise ContradictionError(f"churn.{key}.{error.key}", error.problem) from error

    def words(self, pace: Pace, numbers: Mapping[str, int]) -> dict[str, Any]:
        """Arguments of `build_churn`, or at free pace of `build_timed_churn`.

        Args:
            pace: of the fleet.
            numbers: device of each name.
        """

        def by_number(entry: _Entry) -> dict[str, Any]:
            words = entry.words(pace)
            return words | {"device": numbers.get(words["device"], words["device"])}

        return {
            "absent": list(map(by_number, self.absent)),
            "joins": list(map(by_number, self.joins)),
            "leaves": list(map(by_number, self.leaves)),
            "random": None if self.random is None else self.random.words(pace),
        }

    def devices(self) -> Iterator[tuple[str, int | str]]:
        """Key and device of each entry, in the order of `words`."""
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
