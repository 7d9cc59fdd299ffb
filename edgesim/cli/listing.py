"""What `edgesim list` prints: the names that scenarios can use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from edgesim.errors import EdgesimError, ScenarioError
from edgesim.hardware.catalog import PROFILES
from edgesim.scenario.files import load_scenario
from edgesim.similar import did_you_mean
from edgesim.study.table import Table

Catalog = Literal[
    "topologies", "models", "datasets", "algorithms", "compressors", "devices", "scenarios"
]

_PROSE = frozenset({"what it is", "source"})


class ListingError(EdgesimError, ValueError):
    """A name that is not in the catalog."""


def catalog_table(what: Catalog, name: str | None) -> Table:
    """A catalog, or one device of it with the sources of its numbers.

    Raises:
        ListingError: a name that is no device, or beside another catalog.
    """
    if what == "devices":
        return _devices() if name is None else _device(name)
    if name is not None:
        raise ListingError(f"list {what} takes no name, got {name}; only devices have details")
    return Table("", ("name", "what it is"), tuple(_CATALOGS[what]()), prose=_PROSE)


def _devices() -> Table:
    """All profiles; the letters say how the numbers are known."""
    wanted = (
        *("int8 rate", "fp32 rate", "memory", "memory bandwidth", "idle power", "active power"),
        "radio bandwidth",
    )
    lines = []
    for name, entry in PROFILES.items():
        rows = {row.quantity: row for row in entry.rows()}
        cells = (f"{rows[quantity].value} {rows[quantity].evidence[0]}" for quantity in wanted)
        lines.append((name, entry.profile.description, *cells))
    return Table(
        "devices; m measured, v vendor's, d derived; sources: edgesim list devices NAME",
        ("name", "what it is", "int8", "fp32", "memory", "bandwidth", "idle", "active", "radio"),
        tuple(lines),
        prose=_PROSE,
    )


def _device(name: str) -> Table:
    if name not in PROFILES:
        remedy = did_you_mean(name, PROFILES, "see `edgesim list devices`")
        raise ListingError(f"{name} is no device; {remedy}")
    entry = PROFILES[name]
    columns = ("quantity", "value", "evidence", "source")
    rows = tuple((row.quantity, row.value, row.evidence, row.citation) for row in entry.rows())
    return Table(entry.profile.description, columns, rows, prose=_PROSE)


def _topologies() -> list[tuple[str, str]]:
    from topologies import KINDS

    return [(name, kind.description) for name, kind in KINDS.items()]


def _models() -> list[tuple[str, str]]:
    from edgesim.models.catalog import MODELS

    return [(name, kind.description) for name, kind in MODELS.items()]


def _datasets() -> list[tuple[str, str]]:
    from edgesim.data.sources import SOURCES

    return [(name, source.description) for name, source in SOURCES.items()]


def _algorithms() -> list[tuple[str, str]]:
    from edgesim.gossip.catalog import ALGORITHMS

    return list(ALGORITHMS.items())


def _compressors() -> list[tuple[str, str]]:
    from edgesim.compression.catalog import COMPRESSORS

    return [(name, kind.description) for name, kind in COMPRESSORS.items()]


def _scenarios() -> list[tuple[str, str]]:
    folder = Path("scenarios")
    if not folder.is_dir():
        raise ScenarioError(f"{folder.absolute()}: no such folder; call this beside scenarios/")
    return [(str(path), _describe(path)) for path in sorted(folder.rglob("*.yaml"))]


def _describe(path: Path) -> str:
    try:
        return load_scenario(path).description
    except ScenarioError as error:
        return f"not usable: {error}"


_CATALOGS: dict[Catalog, Callable[[], list[tuple[str, str]]]] = {
    "topologies": _topologies,
    "models": _models,
    "datasets": _datasets,
    "algorithms": _algorithms,
    "compressors": _compressors,
    "scenarios": _scenarios,
}
