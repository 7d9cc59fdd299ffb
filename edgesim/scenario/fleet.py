"""Section `fleet` of a scenario: its devices, and how they run."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from edgesim.errors import device_label
from edgesim.scenario.churn import ChurnSection
from edgesim.scenario.hardware import (
    DeviceGroup,
    DutyCycleSection,
    Jitter,
    NotNegative,
    ProfileName,
)
from edgesim.scenario.pace import PACES, PaceName, PaceRules
from edgesim.scenario.section import (
    MOST_DEVICES,
    ContradictionError,
    Count,
    DeviceCount,
    DeviceName,
    MustBe,
    Rate,
    Section,
)

DEFAULT_TIMEOUT_S = 30.0  # a Bluetooth LE link is given up after 32 s at most


class FleetSection(Section):
    """How many devices, and how they run."""

    devices: Annotated[
        DeviceCount | Annotated[tuple[DeviceGroup, ...], Field(strict=False, min_length=1)],
        MustBe(
            f"a whole number from 1 to {MOST_DEVICES}, or a list such as "
            "[{profile: raspberry-pi-4b, count: 4}]"
        ),
    ] = Field(description="number of devices, or a list of groups of devices")
    profile: ProfileName | None = Field(
        default=None,
        description="profile of each device (edgesim list devices); null: no clock and no energy",
    )
    names: Annotated[tuple[DeviceName, ...], Field(strict=False)] = Field(
        default=(),
        description="names of all devices in the order of fleet.devices; without it the items of "
        "fleet.devices or the file of the graph may name them",
    )
    compute_jitter: Jitter = Field(
        default=0.0, description="standard deviation of the logarithm of a step's time"
    )
    duty_cycle: DutyCycleSection | None = Field(
        default=None, description="times at which devices are awake; null: always"
    )
    churn: ChurnSection | None = Field(
        default=None,
        description=("presence of devices: absences, joins, leaves; null: all are always present"),
    )
    presumed_dead_after_s: NotNegative | None = Field(
        default=None,
        description="at free pace: seconds of its own clock after which a neighbour stops sending "
        f"to a device whose battery is empty; null: {DEFAULT_TIMEOUT_S:g}",
    )
    enforce_memory: Literal["warn", "refuse"] = Field(
        default="refuse", description="what to do if a device's memory is too small for the run"
    )
    pace: PaceName = Field(
        default="lockstep",
        description="lockstep: a device enters a round when all messages of the last one are "
        "absorbed; free: it does not wait until its last step, and absorbs what has arrived by "
        "its own clock",
    )
    devices_per_actor: Count | Literal["auto"] = Field(
        default=1, description="devices packed into one Ray actor; never changes a result"
    )
    accelerator: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="where models compute; auto: on GPUs if there are any"
    )
    gpus_per_actor: Rate | Literal["auto"] = Field(
        default="auto", description="share of a GPU for each actor; auto: equal shares of all"
    )

    placement: Literal["auto", "spread", "pack", "by_node"] = Field(
        default="auto",
        description=(
            "nodes of a cluster on which actors start; auto: in proportion to their CPUs, "
            "spread: equally many on each, pack: on as few nodes as can hold them, by_node: "
            "one actor with many devices on each; never changes a result"
        ),
    )

    @property
    def rules(self) -> PaceRules:
        """What the pace means to the fleet."""
        return PACES[self.pace]

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        if isinstance(self.devices, int):
            return self.devices
        return sum(group.count for group in self.devices)

    @property
    def timeout_s(self) -> float:
        """How long a device is silent before its neighbours presume it dead."""
        given_s = self.presumed_dead_after_s
        return DEFAULT_TIMEOUT_S if given_s is None else given_s

    @property
    def groups(self) -> tuple[DeviceGroup, ...]:
        """Groups of devices in order; empty if the scenario lists none."""
        if not isinstance(self.devices, int):
            return self.devices
        if self.profile is None:
            return ()
        return (DeviceGroup(profile=self.profile, count=self.devices),)

    @property
    def listed_names(self) -> tuple[str, ...]:
        """Names of all devices in the order of `devices`; none if these have none."""
        if self.names or isinstance(self.devices, int):
            return self.names
        return tuple(name for group in self.devices for name in group.device_names)

    def label(self, device: int) -> str:
        """A device in a message: `device 3`, or `device 3 (gateway)`."""
        return device_label(device, self.names)

    @property
    def numbers(self) -> dict[str, int]:
        """Number of the device of each name; the groups must be in the order of numbers."""
        return {name: device for device, name in enumerate(self.names)}

    @model_validator(mode="after")
    def _names_are_of_all_and_differ(self) -> Self:
        listed, key = self.listed_names, "names"
        if not isinstance(self.devices, int):
            named = [bool(group.device_names) for group in self.devices]
            if self.names and any(named):
                raise ContradictionError("names", "is set beside names in devices; drop it")
            if any(named):
                key = "devices"
                if not all(named):
                    raise ContradictionError(
                        f"devices.{named.index(False)}", "has no name, but others have; name all"
                    )
        if listed and len(listed) != self.num_devices:
            raise ContradictionError(
                "names", f"are {len(listed)}, but there are {self.num_devices} devices; name all"
            )
        if len(set(listed)) < len(listed):
            twice = next(name for place, name in enumerate(listed) if name in listed[:place])
            raise ContradictionError(key, f"has the name {twice!r} twice; names must differ")
        return self

    @model_validator(mode="after")
    def _is_not_too_large(self) -> Self:
        if self.num_devices > MOST_DEVICES:
            raise ContradictionError(
                "devices",
                f"are {self.num_devices:,} in all; must be at most {MOST_DEVICES:,}",
            )
        return self

    @model_validator(mode="after")
    def _one_way_to_name_profiles(self) -> Self:
        if self.profile is not None and not isinstance(self.devices, int):
            raise ContradictionError(
                "profile", "is set beside a list of devices, which names the profile of each"
            )
        return self

    @model_validator(mode="after")
    def _who_leaves_in_turn_is_not_presumed_dead(self) -> Self:
        if self.rules.waits_for_all and self.presumed_dead_after_s is not None:
            raise ContradictionError(
                "presumed_dead_after_s",
                "is set; in lockstep a device whose battery is empty hands over, and nobody sends "
                "to it in vain: remove it, or set fleet.pace: free",
            )
        return self

    @model_validator(mode="after")
    def _churn_is_of_its_devices(self) -> Self:
        if self.churn is not None:
            self.churn.check_devices(self.num_devices)
            self.churn.check_units(self.rules)
        return self

    @model_validator(mode="after")
    def _nodes_divide_devices(self) -> Self:
        if self.placement == "by_node" and self.devices_per_actor not in (1, "auto"):
            raise ContradictionError(
                "devices_per_actor",
                f"is {self.devices_per_actor}; must be auto or absent for placement: by_node, "
                "where the devices of a node share one actor",
            )
        return self

    @model_validator(mode="after")
    def _shares_are_of_gpus(self) -> Self:
        if self.accelerator == "cpu" and self.gpus_per_actor != "auto":
            raise ContradictionError(
                "gpus_per_actor",
                f"is {self.gpus_per_actor:g}; must be auto or absent for accelerator: cpu",
            )
        return self
