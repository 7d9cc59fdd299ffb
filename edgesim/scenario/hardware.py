"""Hardware of devices: profiles, duty cycles, and the network between devices.

Every key names its unit.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from edgesim.hardware.layer_kinds import LayerKind
from edgesim.scenario.section import (
    LARGEST,
    ContradictionError,
    Count,
    DeviceCount,
    DeviceName,
    MustBe,
    Quantity,
    Section,
)

SLOWEST_MBPS = 1e-6
HIGHEST_LOSS = 0.99  # share of lost packets; each packet is then sent a hundred times

NotNegative = Annotated[float, Field(ge=0, le=LARGEST)]
"""A number, at least 0."""

Jitter = Annotated[float, Field(ge=0, le=3)]
"""Standard deviation of a logarithm."""

PROFILE_NAME = r"^[a-z0-9][a-z0-9-]*$"
LONGEST_NAME = 60

ProfileName = Annotated[
    str,
    Field(pattern=PROFILE_NAME, max_length=LONGEST_NAME),
    MustBe("lower-case letters, digits and '-', a letter or digit first, at most 60"),
]

_RADIO_KEYS = ("bandwidth_mbps", "send_uj_per_byte", "receive_uj_per_byte", "half_duplex")


class RadioSection(Section):
    """Radio of a profile; absent keys have the values of the profile named in based_on."""

    name: str | None = Field(default=None, description="technology")
    bandwidth_mbps: Quantity | None = Field(default=None, description="million bits per second")
    send_uj_per_byte: NotNegative | None = Field(
        default=None, description="microjoules above idle to send a byte"
    )
    receive_uj_per_byte: NotNegative | None = Field(
        default=None, description="microjoules above idle to receive a byte"
    )
    half_duplex: bool | None = Field(default=None, description="the radio either sends or receives")


class LayerTimeSection(Section):
    """Time of one kind of layer in a training step, forward and backward pass: a sum of parts."""

    layer: LayerKind = Field(description="kind of layer, with its precision")
    call_us: NotNegative = Field(default=0.0, description="microseconds of a call of any size")
    ps_per_mac: NotNegative = Field(
        default=0.0,
        description="picoseconds of a multiply-accumulate; in poolings of a comparison",
    )
    ns_per_entry: NotNegative = Field(
        default=0.0, description="nanoseconds of a number that goes in or comes out"
    )
    ns_per_far_entry: NotNegative = Field(
        default=0.0,
        description="nanoseconds more of such a number beyond the first 2,097,152 of a layer",
    )
    ns_per_weight: NotNegative = Field(default=0.0, description="nanoseconds of a weight")


class ProfileKeys(Section):
    """Figures of a device; absent keys have the values of the profile named in based_on."""

    int8_gmacs_per_s: Quantity | None = Field(
        default=None, description="billions of 8-bit multiply-accumulates per second"
    )
    bits16_gmacs_per_s: Quantity | None = Field(
        default=None, description="billions of 16-bit float multiply-accumulates per second"
    )
    fp32_gmacs_per_s: Quantity | None = Field(
        default=None, description="billions of fp32 multiply-accumulates per second"
    )
    memory_mib: Quantity | None = Field(
        default=None, description="memory that training can use, MiB"
    )
    memory_gbytes_per_s: Quantity | None = Field(
        default=None, description="billion bytes per second between memory and processor"
    )
    elementwise_gops_per_s: Quantity | None = Field(
        default=None,
        description="billions of operations per second outside of multiply-accumulates; null: they "
        "take no longer than their memory traffic",
    )
    layer_times: Annotated[tuple[LayerTimeSection, ...], Field(strict=False)] | None = Field(
        default=None,
        description="measured times of kinds of layers, which replace the rates for these layers",
    )
    idle_power_w: NotNegative | None = Field(default=None, description="watts while it waits")
    active_power_w: Quantity | None = Field(
        default=None, description="watts while it computes, idle power included"
    )
    battery_wh: Quantity | Literal["plugged_in"] | None = Field(
        default=None, description="energy of the battery in watt-hours, or plugged_in"
    )
    radio: RadioSection | None = Field(default=None, description="radio to the neighbours")

    @model_validator(mode="after")
    def _each_layer_has_one_time(self) -> Self:
        kinds = [time.layer for time in self.layer_times or ()]
        for place, kind in enumerate(kinds):
            if kind in kinds[:place]:
                raise ContradictionError(
                    f"layer_times.{place}.layer", f"is {kind}, as an earlier one; drop one of them"
                )
        return self


class ProfileSection(ProfileKeys):
    """A profile that the user defines."""

    name: ProfileName = Field(
        description=("name by which fleet.profile or an item of fleet.devices refers to it")
    )
    description: str = Field(default="", description="one line for people")
    based_on: ProfileName | None = Field(
        default=None, description="profile from which missing figures are taken"
    )

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.based_on is None:
            optional = {"battery_wh", "radio", "elementwise_gops_per_s", "layer_times"}
            figures = [key for key in ProfileKeys.model_fields if key not in optional]
            missing = [key for key in figures if getattr(self, key) is None]
            missing += [
                f"radio.{key}"
                for key in _RADIO_KEYS
                if self.radio is None or getattr(self.radio, key) is None
            ]
            if missing:
                raise ContradictionError(
                    missing[0],
                    f"is missing; a profile without based_on needs {', '.join(missing)}",
                )
        return self


class DutyCycleSection(Section):
    """A device that sleeps for a part of each period."""

    period_s: Quantity = Field(description="seconds from one awakening to the next")
    awake_s: Quantity = Field(description="awake seconds of each period")
    offset_s: Annotated[float, Field(ge=-LARGEST, le=LARGEST)] = Field(
        default=0.0, description="virtual time at which one of the periods begins"
    )

    @model_validator(mode="after")
    def _fits_the_period(self) -> Self:
        if self.awake_s > self.period_s:
            raise ContradictionError(
                "awake_s", f"is {self.awake_s:g}; must be at most period_s, {self.period_s:g}"
            )
        return self


class DeviceGroup(ProfileKeys):
    """Devices of one kind; figures that are given here replace those of the profile."""

    profile: ProfileName = Field(
        description="profile of `edgesim list devices` or of hardware.profiles"
    )
    count: DeviceCount = Field(
        default=1, description="number of consecutive devices; by default the number of names"
    )
    name: DeviceName | None = Field(
        default=None, description="name of a single device, as a graph file or a trace has it"
    )
    names: Annotated[tuple[DeviceName, ...], Field(strict=False)] = Field(
        default=(), description="names of several devices, as a graph file or a trace has them"
    )
    compute_jitter: Jitter | None = Field(
        default=None, description="random variation of step times; null: fleet.compute_jitter"
    )
    duty_cycle: DutyCycleSection | None = Field(
        default=None,
        description="times at which the device is awake; null: fleet.duty_cycle. In lockstep it "
        "costs time and changes no learning",
    )

    @model_validator(mode="before")
    @classmethod
    def _names_are_counted(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        names = data.get("names")
        if names and isinstance(names, list | tuple) and "count" not in data:
            return {**data, "count": len(names)}
        return data

    @model_validator(mode="after")
    def _each_has_a_name(self) -> Self:
        if self.name is not None and self.names:
            raise ContradictionError("names", "is set beside name; keep one of them")
        if self.name is not None and self.count > 1:
            raise ContradictionError(
                "name", f"names one device, but count is {self.count}; give names, one for each"
            )
        if self.names and len(self.names) != self.count:
            raise ContradictionError(
                "count", f"is {self.count}, but there are {len(self.names)} names; drop it"
            )
        return self

    @property
    def device_names(self) -> tuple[str, ...]:
        """Names of its devices, in a row; none if it has none."""
        return self.names or (() if self.name is None else (self.name,))


class HardwareSection(Section):
    """Profiles that the user defines, and the prices of energy."""

    profiles: Annotated[tuple[ProfileSection, ...], Field(strict=False)] = Field(
        default=(), description="profiles beside those of `edgesim list devices`"
    )
    energy_table: Literal["profile", "horowitz_45nm", "jouppi_7nm"] = Field(
        default="profile",
        description=(
            "price of computing: the profile's active power, or a table of energies of operations"
        ),
    )

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [profile.name for profile in self.profiles]
        for place, name in enumerate(names):
            if name in names[:place]:
                raise ContradictionError(
                    f"profiles.{place}.name", f"is {name}, the name of an earlier one; rename one"
                )
        return self


class NetworkSection(Section):
    """Links between devices; a graph file may give other values for single links."""

    bandwidth_mbps: Quantity | None = Field(
        default=None,
        description=(
            "largest bandwidth of each link, shared with no other; null: that of the slower radio"
        ),
    )
    latency_ms: NotNegative = Field(
        default=0.0, description="time from the last bit sent to the last bit received"
    )
    jitter_ms: NotNegative = Field(
        default=0.0, description="largest delay that is added to the latency"
    )
    loss: Annotated[float, Field(ge=0, le=HIGHEST_LOSS)] = Field(
        default=0.0,
        description="probability that a packet is lost and sent again; no message is lost. In "
        "lockstep it costs time and energy and changes no learning",
    )
    packet_bytes: Count = Field(default=1460, description="payload of a packet")
    half_duplex: bool | None = Field(
        default=None,
        description="whether radios either send or receive, one message at a time; false: they "
        "also receive any number at once; null: as in their profiles",
    )


def given(section: ProfileKeys) -> dict[str, Any]:
    """The figures of a profile that a section sets, without the radio's and the layers'."""
    keys = (key for key in ProfileKeys.model_fields if key not in ("radio", "layer_times"))
    return {key: getattr(section, key) for key in keys if getattr(section, key) is not None}
