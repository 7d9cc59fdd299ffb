"""Section `fleet.churn`: devices that are absent, join late, or leave for good.

Rounds count from 0. Whether entries of one device overlap, and whether somebody is there in every
round, is for `topologies` to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field, model_validator

from edgesim.scenario.section import ContradictionError, Count, MustBe, Natural, Section


class AbsenceSection(Section):
    """A device that is away for a while: it sends nothing and nobody sends to it."""

    device: Natural = Field(description="number of the device")
    from_round: Natural = Field(description="first round without it")
    until_round: Count | None = Field(
        default=None, description="first round in which it is back; null: it stays away"
    )

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.until_round is not None and self.until_round <= self.from_round:
            raise ContradictionError(
                "until_round",
                f"is {self.until_round}; must be above from_round, {self.from_round}",
            )
        return self


class JoinSection(Section):
    """A device that is not there from the start."""

    device: Natural = Field(description="number of the device")
    round: Count = Field(description="first round in which it takes part")


class LeaveSection(Section):
    """A device that leaves for good, and hands over what it has."""

    device: Natural = Field(description="number of the device")
    round: Count = Field(
        description="round in which it leaves, or as soon after as it has its turn: one exchange "
        "in as many as there are devices"
    )


class RandomAbsenceSection(Section):
    """Absences by chance, of each device by itself."""

    absence_probability: Annotated[
        float, Field(gt=0, lt=1), MustBe("a number above 0 and below 1")
    ] = Field(description="share of rounds in which a device is absent")
    mean_absence_rounds: Annotated[float, Field(ge=1, le=1e9)] = Field(
        description="mean length of an absence"
    )

    @model_validator(mode="after")
    def _leaves_time_to_be_present(self) -> Self:
        shortest = self.absence_probability / (1 - self.absence_probability)
        if self.mean_absence_rounds < shortest:
            raise ContradictionError(
                "mean_absence_rounds",
                f"is {self.mean_absence_rounds:g}; must be at least {shortest:g} for "
                f"absence_probability: {self.absence_probability:g}, since a device is back for "
                "one round at least",
            )
        return self


class ChurnSection(Section):
    """Who is there in which round."""

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
        """Make sure that all devices are of the fleet.

        Raises:
            ContradictionError: one is not, with its key relative to this section's holder.
        """
        for key, device in self._devices():
            if device >= num_devices:
                raise ContradictionError(
                    f"churn.{key}.device",
                    f"is {device}; must be from 0 to {num_devices - 1}, one of the fleet's devices",
                )

    def _devices(self) -> Iterator[tuple[str, int]]:
        """Key and device of each entry."""
        for place, absence in enumerate(self.absent):
            yield f"absent.{place}", absence.device
        for place, join in enumerate(self.joins):
            yield f"joins.{place}", join.device
        for place, leave in enumerate(self.leaves):
            yield f"leaves.{place}", leave.device
