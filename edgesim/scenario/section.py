"""What all sections of a scenario share: strictness, scalar types, errors that name a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from edgesim.errors import CONTROLS, ScenarioError

LARGEST_WHOLE = 2**31 - 1  # fits numpy, torch, pyarrow and Ray, and so do sums of many
LARGEST_SEED = 2**63 - 1
LARGEST = 1e9  # of any figure in its unit; sums of times do not overflow
SMALLEST = 1e-6

# Of factors that tensors are multiplied with: fp32 holds 1e-38 to 3e38, and their products with
# push weights and with shares of momentum, or divided by them, stay well inside.
LARGEST_FACTOR, SMALLEST_FACTOR = 1e30, 1e-30

Count = Annotated[int, Field(ge=1, le=LARGEST_WHOLE)]
"""A whole number, at least 1."""

Natural = Annotated[int, Field(ge=0, le=LARGEST_WHOLE)]
"""A whole number, at least 0."""

Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]
"""Root of streams of random numbers."""

MOST_ROUNDS = 100_000_000  # of each device; rounds.parquet has a row for every device and round

RoundCount = Annotated[int, Field(ge=1, le=MOST_ROUNDS)]
"""A length of training."""

MOST_LINKS = 200_000  # of a graph, as `topologies` has it; a test holds the two equal

MOST_DEVICES = 10_000  # of a fleet: what one machine can hold is some thousands

DeviceCount = Annotated[int, Field(ge=1, le=MOST_DEVICES)]
"""A number of devices."""

Rate = Annotated[float, Field(gt=0, le=1)]
"""A number in (0, 1]."""

Probability = Annotated[float, Field(ge=0, le=1)]
"""A number in [0, 1]."""

Quantity = Annotated[float, Field(ge=SMALLEST, le=LARGEST)]
"""A number that something is divided by."""

Seconds = Annotated[float, Field(gt=0, le=LARGEST)]
"""A time that something may take."""

Factor = Annotated[float, Field(ge=SMALLEST_FACTOR, le=LARGEST_FACTOR)]
"""A number that tensors of fp32 are multiplied with."""


@dataclass(frozen=True, slots=True)
class MustBe:
    """Describes what a key must be, where its type and range do not describe it well.

    Attributes:
        text: continues the sentence "must be".
    """

    text: str


DeviceName = Annotated[
    str,
    Field(pattern=rf"^[^{CONTROLS}]+$", max_length=100),
    MustBe("the name of a device: text of 1 to 100 characters; a number in quotes"),
]
"""A name of a device."""

PathText = Annotated[str, Field(min_length=1), MustBe("the path of a file or folder")]
"""A path; relative to the scenario file's folder, or for an override to the current one."""


class Section(BaseModel):
    """A mapping of a scenario: frozen, no unknown keys, no silent conversion of types.

    Booleans and text are not accepted as numbers, nor are `nan` and `inf`; a whole number is
    accepted as a float.

    Attributes:
        alternatives: keys of which at most one is set; an override of one unsets the others.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)

    alternatives: ClassVar[frozenset[str]] = frozenset()

    def __setattr__(self, key: str, value: object) -> None:
        """Refuse it, and say what to do.

        Raises:
            ScenarioError: always, but for what pydantic keeps of its own.
        """
        if not key.startswith("_"):
            raise ScenarioError(
                f"{key}: a scenario does not change; make another one, as in "
                "edgesim.load_scenario(scenario, training__epochs=3)"
            )
        super().__setattr__(key, value)


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
