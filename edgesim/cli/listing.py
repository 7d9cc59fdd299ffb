"""Output of `edgesim list`: the names that scenarios can use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edgesim.cli.catalog_names import Catalog
from edgesim.cli.key_tables import ListingError, keys_table, kind_table, value_table
from edgesim.data.source import NamedSource
from edgesim.errors import ScenarioError, did_you_mean
from edgesim.hardware.catalog import PROFILES
from edgesim.scenario.files import load_scenario
from edgesim.scenario.shipped import shipped_scenarios
from edgesim.study.tables.table import Table

_PROSE = frozenset({"what it is", "source"})


def catalog_table(what: Catalog, name: str | None) -> Table:
    """Table of a catalog, or of one of its entries in full.

    Raises:
        ListingError: the catalog has no such entry.
    """
    if what == "keys":
        return keys_table(name or "")
    if what == "devices":
        return _devices() if name is None else _device(name)
    entries = dict(_CATALOGS[what]())
    if name is None:
        notes = (_OWN[what],) if what in _OWN else ()
        return Table("", ("name", "what it is"), tuple(entries.items()), notes, prose=_PROSE)
    if name not in entries:
        remedy = did_you_mean(name, entries, f"see `edgesim list {what}`")
        raise ListingError(f"{name} is none of the {what}; {remedy}")
    if what == "scenarios":
        return _scenario(name, entries[name])
    holder = _HOLDERS.get(what)
    if holder is not None:
        return kind_table(holder, name, entries[name])
    if what == "models":
        return value_table("model", {"name": name}, entries[name], _notes_on_model(name))
    return value_table("data", {"source": name}, entries[name], _notes_on_dataset(name))


def _notes_on_model(name: str) -> tuple[str, ...]:
    from edgesim.models.catalog import MODELS

    side = MODELS[name].min_side
    return (f"takes images of at least {side}x{side} pixels, see data.image_size",)


def _notes_on_dataset(name: str) -> tuple[str, ...]:
    from edgesim.data.sources import SOURCES

    source = SOURCES[name]
    expects = getattr(source, "expects", None)
    notes = [f"files: {expects}"] if expects else ["files: none"]
    if isinstance(source, NamedSource):
        notes.append("or train*.parquet and test*.parquet; data.download: true fetches the files")
        if source.default_path:
            notes.append(f"without data.path the files of {source.default_path} are read")
    if source.statistics:
        mean, std = (", ".join(f"{value:g}" for value in row) for row in source.statistics)
        notes.append(f"pixels are normalised by the published mean {mean} and deviation {std}")
    else:
        notes.append("pixels are normalised by mean and deviation of all training images")
    return tuple(notes)


def _devices() -> Table:
    """Table of all profiles; letters say how each number is known."""
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

    return [(name, kind.description) for name, kind in ALGORITHMS.items()]


def _compressors() -> list[tuple[str, str]]:
    from edgesim.compression.catalog import COMPRESSORS

    return [(name, kind.description) for name, kind in COMPRESSORS.items()]


def _scenarios() -> list[tuple[str, str]]:
    return [(name, _describe(path)) for name, path in shipped_scenarios().items()]


def _scenario(name: str, description: str) -> Table:
    rows = (
        ("what it is", description),
        ("file", str(shipped_scenarios()[name])),
        ("train it", f"edgesim run {name}"),
        ("change it", f"edgesim new my-{name.rpartition('/')[2]} --from {name}"),
    )
    return Table(name, ("", ""), rows)


def _describe(path: Path) -> str:
    try:
        return load_scenario(path).description
    except ScenarioError as error:
        return f"not usable: {error}"


# Key of the section that an entry of a catalog chooses.
_HOLDERS: dict[Catalog, str] = {
    "topologies": "topology",
    "algorithms": "gossip",
    "compressors": "gossip.compressor",
}

_OWN: dict[Catalog, str] = {
    "models": "or one of your own, a torch.nn.Module: model.name: ./file.py:Name or "
    "package.module:Name, see docs/own-parts.md",
    "datasets": "or one of your own, arrays of any shape: data.source: ./file.py:Name or "
    "package.module:Name, see docs/own-parts.md",
}
"""How scenarios refer to parts outside the catalogs."""

_CATALOGS: dict[Catalog, Callable[[], list[tuple[str, str]]]] = {
    "topologies": _topologies,
    "models": _models,
    "datasets": _datasets,
    "algorithms": _algorithms,
    "compressors": _compressors,
    "scenarios": _scenarios,
}
