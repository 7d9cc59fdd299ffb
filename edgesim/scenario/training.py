"""Sections `training` and `evaluation`: length, learning rates, times of evaluations."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from edgesim.scenario.catalog import OPTIMIZERS, SCHEDULES, TASKS
from edgesim.scenario.own_parts import OPTIONS, ChosenBy, NamedIn, Options, OwnPart, shipped_part
from edgesim.scenario.section import (
    LARGEST_FACTOR,
    SMALLEST_FACTOR,
    ContradictionError,
    Count,
    Factor,
    MustBe,
    Natural,
    Quantity,
    Rate,
    RoundCount,
    Section,
)

_LR = "learning rate gamma before the schedule's factors"
_STEP_ON = (
    "what a step moves: the numerator x, as published, or the model z = x/u, so that a push weight "
    "does not change its length; null: x in lockstep, z at free pace"
)
StepOn = Literal["numerator", "model"] | None


class OptimizerSection(Section):
    """Local optimizer of each device (docs/reference.md, section 3.5)."""

    kind: Literal["sgd"] = Field(default="sgd", description="stochastic gradient descent")
    lr: Factor = Field(description=_LR)
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.9, description="beta")
    nesterov: bool = Field(default=True, description="Nesterov's look-ahead momentum")
    weight_decay: Annotated[float, Field(ge=0, le=LARGEST_FACTOR)] = Field(
        default=0.0, description="factor of the parameters, which are added to the gradient"
    )
    momentum_kind: Literal["local", "quasi_global"] = Field(
        default="local",
        description=(
            "momentum of the device's own gradients, or of the model's movement over whole rounds"
        ),
    )

    step_on: StepOn = Field(default=None, description=_STEP_ON)

    @model_validator(mode="after")
    def _momentum_is_there(self) -> Self:
        if self.momentum == 0 and self.momentum_kind == "quasi_global":
            raise ContradictionError(
                "momentum", "is 0, but momentum_kind: quasi_global needs it above 0"
            )
        if self.momentum == 0 and self.nesterov:
            raise ContradictionError(
                "nesterov", "is true, but momentum is 0; write nesterov: false"
            )
        return self


class OtherOptimizer(Section):
    """An optimizer of the catalog without a section of its own, or your own (docs/own-parts.md)."""

    kind: Annotated[OwnPart, NamedIn(OPTIMIZERS)]
    lr: Factor = Field(description=_LR)
    step_on: StepOn = Field(default=None, description=_STEP_ON)
    options: Options = Field(default_factory=dict, description=OPTIONS)


Optimizer = Annotated[
    OptimizerSection | OtherOptimizer, ChosenBy("kind", OPTIMIZERS, default="sgd")
]


class ScheduleSection(Section):
    """Learning rate over the epochs (docs/reference.md, section 5)."""

    kind: Literal["steps"] = Field(default="steps", description="rates that fall at milestones")
    milestones: Annotated[
        tuple[Count, ...],
        Field(strict=False),
        MustBe("a list of epochs, each at least 1 and later than the one before"),
    ] = Field(default=(), description="epochs at which the learning rate is multiplied by factor")
    factor: Rate = Field(default=0.1, description="multiplies the learning rate at each milestone")
    warmup_epochs: Natural = Field(
        default=0,
        description=(
            "number of first epochs, in which the learning rate is warmup_factor times lr"
        ),
    )
    warmup_factor: Rate = Field(default=0.1, description="multiplies lr during warm-up")

    @model_validator(mode="after")
    def _milestones_increase(self) -> Self:
        for earlier, later in pairwise(self.milestones):
            if later <= earlier:
                raise ContradictionError(
                    "milestones", f"has {later} after {earlier}; must increase"
                )
        return self

    def least_rates(self, lr: float) -> dict[str, float]:
        """The least rate that each key leads to."""
        in_warmup = sum(milestone < self.warmup_epochs for milestone in self.milestones)
        rates = {"factor": lr * self.factor ** len(self.milestones)}
        if self.warmup_epochs:
            rates["warmup_factor"] = lr * self.factor**in_warmup * self.warmup_factor
        return rates


class OtherSchedule(Section):
    """A schedule of the catalog without a section of its own, or your own (docs/own-parts.md)."""

    kind: Annotated[OwnPart, NamedIn(SCHEDULES)]
    options: Options = Field(default_factory=dict, description=OPTIONS)

    warmup_epochs: ClassVar[int] = 0

    def least_rates(self, lr: float) -> dict[str, float]:  # noqa: ARG002
        """Empty: the rates of an own schedule are not known yet."""
        return {}


Schedule = Annotated[ScheduleSection | OtherSchedule, ChosenBy("kind", SCHEDULES, default="steps")]


class TrainingSection(Section):
    """Length of the run, optimizer and its schedule."""

    alternatives: ClassVar[frozenset[str]] = frozenset({"epochs", "rounds"})

    epochs: RoundCount | None = Field(
        default=None, description="passes of the fleet over its data; give epochs or rounds"
    )
    rounds: RoundCount | None = Field(
        default=None, description="rounds of each device; give epochs or rounds"
    )
    virtual_time_s: Quantity | None = Field(
        default=None,
        description=(
            "limit of virtual time at free pace: the first step of a device that ends then "
            "or later is its last; epochs or rounds are an upper limit"
        ),
    )
    task: Annotated[OwnPart, NamedIn(TASKS)] = Field(
        default=shipped_part(TASKS, "classification"),
        description=(
            "loss and measures: of classes, of numbers, of the next token at each position "
            "of a sequence, or your own"
        ),
    )
    task_options: Options | None = Field(default=None, description=OPTIONS)
    device_seeds: Literal["own", "shared"] = Field(
        default="own",
        description="random streams of training (order of samples, augmentation, dropout, "
        "rounding, compression): each device has its own, or all draw the same numbers; the "
        "paper: shared (docs/reference.md, section 9.15)",
    )
    optimizer: Optimizer = Field(description="local optimizer of each device")
    schedule: Schedule = Field(
        default=ScheduleSection(), description="learning rate over the epochs"
    )

    @property
    def said(self) -> str:
        """Length and milestones in words."""
        parts = [
            f"{getattr(self, key):g} {word}"
            for key, word in (
                ("epochs", "epochs"),
                ("rounds", "rounds"),
                ("virtual_time_s", "s of virtual time"),
            )
            if getattr(self, key) is not None
        ]
        if milestones := getattr(self.schedule, "milestones", ()):
            parts.append(f"milestones {', '.join(map(str, milestones))}")
        return ", ".join(parts)

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.epochs is None and self.rounds is None:
            raise ContradictionError("epochs", "is missing; give epochs or rounds")
        if self.epochs is not None and self.rounds is not None:
            raise ContradictionError("rounds", "is set beside epochs; give one of the two")
        return self

    @model_validator(mode="after")
    def _rates_stay_numbers_of_fp32(self) -> Self:
        for key, rate in self.schedule.least_rates(self.optimizer.lr).items():
            if rate < SMALLEST_FACTOR:
                raise ContradictionError(
                    f"schedule.{key}",
                    f"is {getattr(self.schedule, key):g}: the learning rate falls to {rate:g}; "
                    f"must stay at least {SMALLEST_FACTOR:g}: raise it, or give fewer milestones",
                )
        return self


MOST_GOSSIP_ROUNDS = 100_000  # of an evaluation; each costs as much as gossip of a round
MOST_EVALUATIONS = 100_000  # each of them writes a table with all of them

_MOST = f"; at most {MOST_EVALUATIONS:,} evaluations in all"


class EvaluationSection(Section):
    """When models are tested and on how much; the end of training always is an evaluation."""

    alternatives: ClassVar[frozenset[str]] = frozenset(
        {"every_epochs", "every_rounds", "every_virtual_s"}
    )

    every_epochs: Count | None = Field(
        default=1,
        description="epochs between evaluations; null, or with training.virtual_time_s: only at "
        f"the end{_MOST}",
    )
    every_rounds: Count | None = Field(
        default=None, description=f"rounds between evaluations, instead of every_epochs{_MOST}"
    )
    every_virtual_s: Quantity | None = Field(
        default=None,
        description=f"virtual seconds between evaluations, instead of every_epochs{_MOST}",
    )
    samples: Count | None = Field(
        default=None,
        description="use the first N test samples, or validation samples, of a fixed shuffle; "
        "null: all",
    )
    own_samples: Natural | None = Field(
        default=None,
        description="test samples of each device's own that models are evaluated on too, at most, "
        "where data.partition says whose they are; null: all, 0: none",
    )
    device_models: Literal["every", "final", "never"] = Field(
        default="final",
        description=(
            "evaluations in which devices' own models are tested, beside the averaged model"
        ),
    )
    gossip_rounds: Annotated[int, Field(ge=0, le=MOST_GOSSIP_ROUNDS)] = Field(
        default=0,
        description="further rounds of gossip alone, from a copy of the fleet's state, after which "
        "devices' own models are evaluated once more; the paper: 50 (docs/reference.md, section 8)",
    )
    device_sample: Count | Literal["all"] = Field(
        default=50,
        description=(
            "largest number of devices whose own models are evaluated; in a larger fleet "
            "they are a sample drawn by the seed, the same in every evaluation"
        ),
    )
    batch_size: Count = Field(default=256, description="test samples per forward pass")

    @model_validator(mode="before")
    @classmethod
    def _rounds_replace_the_default(cls, section: object) -> object:
        if isinstance(section, dict) and any(
            section.get(key) is not None for key in ("every_rounds", "every_virtual_s")
        ):
            return {"every_epochs": None, **section}
        return section

    @property
    def gossip_states(self) -> Literal["every", "final", "never"]:
        """Evaluations that need the states of the devices' gossip algorithm."""
        return self.device_models if self.gossip_rounds else "never"

    @model_validator(mode="after")
    def _further_gossip_is_of_device_models(self) -> Self:
        if self.gossip_rounds and self.device_models == "never":
            raise ContradictionError(
                "gossip_rounds",
                f"is {self.gossip_rounds}; devices' own models, which it is for, are not "
                "evaluated: set device_models: final",
            )
        return self

    @model_validator(mode="after")
    def _one_interval(self) -> Self:
        intervals = [
            key
            for key in ("every_epochs", "every_rounds", "every_virtual_s")
            if getattr(self, key) is not None
        ]
        if len(intervals) > 1:
            raise ContradictionError(
                intervals[1], f"is set beside {intervals[0]}; give one of the two"
            )
        return self
