"""An entry of the catalog: the profile of a device, and the source of every number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from edgesim.hardware.profiles import DeviceProfile, Radio

Evidence = Literal["measured", "vendor", "derived"]


@dataclass(frozen=True, slots=True)
class Source:
    """Source of a number.

    Attributes:
        evidence: measured by somebody, stated by the vendor, or derived from other numbers.
        citation: document and place. The citation of a derived number begins with its arithmetic,
            up to a colon; if the arithmetic uses a figure without a document, "Estimate: " stands
            before it.
    """

    evidence: Evidence
    citation: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its source."""

    value: float
    source: Source


def measured(value: float, citation: str) -> Figure:
    """A number that somebody measured."""
    return Figure(value, Source("measured", citation))


def vendor(value: float, citation: str) -> Figure:
    """A number that the vendor states."""
    return Figure(value, Source("vendor", citation))


def derived(value: float, citation: str) -> Figure:
    """A number computed from others; the citation opens with the arithmetic."""
    return Figure(value, Source("derived", citation))


def estimated(value: float, citation: str) -> Figure:
    """A derived number that rests on a figure without a document."""
    return derived(value, f"Estimate: {citation}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcedRadio:
    """A `Radio` whose numbers carry their sources."""

    name: str
    bandwidth_bps: Figure
    send_j_per_byte: Figure
    receive_j_per_byte: Figure
    is_half_duplex: bool


class Row(NamedTuple):
    """One number of a device, for a table."""

    quantity: str
    value: str
    evidence: Evidence
    citation: str


# Key of a source, name of the quantity in tables, unit.
_QUANTITIES: tuple[tuple[str, str, str], ...] = (
    ("int8_macs_per_s", "int8 rate", "MAC/s"),
    ("bits16_macs_per_s", "16-bit float rate", "MAC/s"),
    ("fp32_macs_per_s", "fp32 rate", "MAC/s"),
    ("memory_bytes", "memory", "MiB"),
    ("memory_bandwidth", "memory bandwidth", "B/s"),
    ("idle_power_w", "idle power", "W"),
    ("active_power_w", "active power", "W"),
    ("battery_j", "battery", "J"),
    ("radio.bandwidth_bps", "radio bandwidth", "bit/s"),
    ("radio.send_j_per_byte", "radio, sending", "J/B"),
    ("radio.receive_j_per_byte", "radio, receiving", "J/B"),
)
_RADIO_FIGURES = ("bandwidth_bps", "send_j_per_byte", "receive_j_per_byte")
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u"))


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A device of the catalog.

    Attributes:
        profile: its numbers.
        sources: source of every number by its field's name, "radio." in front of a radio's.
    """

    profile: DeviceProfile
    sources: Mapping[str, Source]

    def value(self, key: str) -> float:
        """The number whose source has this key."""
        _, in_radio, field = key.rpartition("radio.")
        number: float = getattr(self.profile.radio if in_radio else self.profile, field)
        return number

    def rows(self) -> list[Row]:
        """Every number with its unit and its source, in a fixed order."""
        return [
            Row(quantity, _with_unit(self.value(key), unit), source.evidence, source.citation)
            for key, quantity, unit in _QUANTITIES
            if (source := self.sources.get(key)) is not None
        ]


def catalog_entry(
    *, name: str, description: str, radio: SourcedRadio, **figures: Figure
) -> CatalogEntry:
    """Split figures into a profile and the sources of its numbers.

    Args:
        name: of the device.
        description: one line for people.
        radio: how it reaches its neighbours.
        figures: the other numbers, by the names of the profile's fields.
    """
    of_radio: dict[str, Figure] = {key: getattr(radio, key) for key in _RADIO_FIGURES}
    values: dict[str, Any] = {key: figure.value for key, figure in figures.items()}
    profile = DeviceProfile(
        name=name,
        description=description,
        radio=Radio(
            name=radio.name,
            is_half_duplex=radio.is_half_duplex,
            **{key: figure.value for key, figure in of_radio.items()},
        ),
        **values | {"memory_bytes": int(values["memory_bytes"])},
    )
    sources = {key: figure.source for key, figure in figures.items()}
    sources |= {f"radio.{key}": figure.source for key, figure in of_radio.items()}
    return CatalogEntry(profile, sources)


def _with_unit(value: float, unit: str) -> str:
    """Four digits with the largest prefix that leaves at least 1; nano for what is smaller."""
    if unit == "MiB":
        return f"{value / 2**20:g} MiB"  # the unit of the scenario's key
    scale, prefix = next((pair for pair in _PREFIXES if value >= pair[0]), (1e-9, "n"))
    return f"{value / scale:.4g} {prefix}{unit}"
