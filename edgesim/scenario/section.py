"""What all sections of a scenario share: strictness, scalar types, errors that name a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]
"""A whole number, at least 1."""

Natural = Annotated[int, Field(ge=0)]
"""A whole number, at least 0."""

MOST_DEVICES = 10_000  # of a fleet: what one machine can hold is some thousands

DeviceCount = Annotated[int, Field(ge=1, le=MOST_DEVICES)]
"""A number of devices."""

Rate = Annotated[float, Field(gt=0, le=1)]
"""A number in (0, 1]."""

Probability = Annotated[float, Field(ge=0, le=1)]
"""A number in [0, 1]."""

Positive = Annotated[float, Field(gt=0)]
"""A number above 0."""


@dataclass(frozen=True, slots=True)
class MustBe:
    """Says what a key must be where its type and range would say it badly.

    Attributes:
        text: continues the sentence "must be".
    """

    text: str


DeviceName = Annotated[
    str,
    Field(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=100),
    MustBe("the name of a device: text of 1 to 100 characters; a number in quotes"),
]
"""A name of a device."""

PathText = Annotated[str, Field(min_length=1), MustBe("the path of a file or folder")]
"""A path; relative to the scenario file's folder, or for an override to the current one."""


class Section(BaseModel):
    """A mapping of a scenario: frozen, no unknown keys, no silent conversion of types.

    A truth value is no number, text is no number, `nan` and `inf` are refused; a whole number is
    accepted where a fraction is meant.

    Attributes:
        alternatives: keys of which at most one is set; an override of one unsets the others.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)

    alternatives: ClassVar[frozenset[str]] = frozenset()


class ContradictionError(ValueError):
    """Keys of a section do not go together; raised by the section's own validators.

    Attributes:
        key: the key to change, relative to the section, dots between its parts.
        problem: continues the sentence that starts with the key: what is wrong; what is right.
    """

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key} {problem}")
        self.key = key
        self.problem = problem
