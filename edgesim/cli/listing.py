"""Output of `edgesim list`: the names that scenarios can use, and what columns mean."""

from __future__ import annotations

import json
from pathlib import Path

from edgesim.assembly.parts.options import Option, options_of, parameters_of
from edgesim.cli.catalog_names import What
from edgesim.cli.column_tables import columns_table
from edgesim.cli.key_tables import ListingError, keys_table, kind_table, value_table
from edgesim.cli.metric_table import metrics_table
from edgesim.errors import ScenarioError, did_you_mean
from edgesim.hardware.catalog import PROFILES
from edgesim.scenario import catalog
from edgesim.scenario.catalog import Catalog
from edgesim.scenario.files import load_scenario, read_scenario_text
from edgesim.scenario.guide import has_section, names_of_sections
from edgesim.scenario.own_parts import FORM
from edgesim.scenario.shipped import shipped_scenarios
from edgesim.scenario.sweep import has_sweep, parse_sweep
from edgesim.study.tables.table import Table

_PROSE = frozenset({"what it is", "source"})
_COUNTED = "parameters are of colour images and ten classes; `edgesim cost` has those of a scenario"

# The key of a scenario at which a name of each kind stands.
_KEYS: dict[What, str] = {
    "topologies": "topology.kind",
    "models": "model.name",
    "norms": "model.norm",
    "datasets": "data.source",
    "partitions": "data.partition.kind",
    "tasks": "training.task",
    "algorithms": "gossip.algorithm",
    "compressors": "gossip.compressor.kind",
    "optimizers": "training.optimizer.kind",
    "schedules": "training.schedule.kind",
}

_CATALOGS: dict[What, tuple[Catalog, ...]] = {
    "topologies": (catalog.TOPOLOGIES,),
    "models": (catalog.MODELS, catalog.MODULES),
    "norms": (catalog.NORMS,),
    "datasets": (catalog.SOURCES, catalog.ARRAYS),
    "partitions": (catalog.PARTITIONS,),
    "tasks": (catalog.TASKS,),
    "algorithms": (catalog.ALGORITHMS,),
    "compressors": (catalog.COMPRESSORS,),
    "optimizers": (catalog.OPTIMIZERS,),
    "schedules": (catalog.SCHEDULES,),
}


def catalog_table(what: What, name: str | None) -> Table:
    """Table of a catalog, or of one of its entries in full.

    Raises:
        ListingError: the catalog has no such entry.
    """
    if what == "keys":
        return keys_table(name or "")
    if what == "columns":
        return columns_table(name)
    if what == "metrics":
        return metrics_table(name)
    if what == "devices":
        return _devices() if name is None else _device(name)
    if what == "schema":
        raise ListingError(f"{name} is given; the schema is one whole: edgesim list schema")
    entries = dict(_entries(what))
    if name is None:
        notes = _notes_on_own(what) if what in _CATALOGS else ()
        if what == "models":
            notes = (_COUNTED, *notes)
        return Table("", ("name", "what it is"), tuple(entries.items()), notes, prose=_PROSE)
    if name not in entries:
        remedy = did_you_mean(name, entries, f"see `edgesim list {what}`")
        raise ListingError(f"{name} is none of the {what}; {remedy}")
    if what == "scenarios":
        return _scenario(name, entries[name])
    holder, _, key = _KEYS[what].rpartition(".")
    options, also = _options(what, name), _given_by_scenario(what, name)
    if name in names_of_sections(holder):
        arguments = parameters_of(catalog.ALGORITHMS[name]) if what == "algorithms" else None
        return kind_table(holder, name, entries[name], options, also, arguments)
    return value_table(holder, {key: name}, entries[name], _notes(what, name), options)


def schema_text() -> str:
    """The JSON schema of scenario files."""
    from edgesim.scenario.json_schema import scenario_json_schema

    return json.dumps(scenario_json_schema())


def _entries(what: What) -> list[tuple[str, str]]:
    """Names of a catalog's entries, each with one line."""
    if what == "topologies":
        return _topologies()
    if what == "scenarios":
        return _scenarios()
    return [(name, of.description(name)) for of in _CATALOGS[what] for name in of]


def _options(what: What, name: str) -> dict[str, Option]:
    """Options of an entry; none where its keys stand in a section of their own."""
    if has_section(_KEYS[what].rpartition(".")[0], name):
        return {}
    called = (of for of in _CATALOGS.get(what, ()) if name in of and of.given is not None)
    return next((options_of(of[name], of.given or ()) or {} for of in called), {})


def _given_by_scenario(what: What, name: str) -> set[str]:
    """Keyword arguments that an entry needs and that edgesim gives."""
    called = (of for of in _CATALOGS.get(what, ()) if name in of and of.given)
    return {key for of in called for key in parameters_of(of[name]) if key in (of.given or ())}


def _notes_on_own(what: What) -> tuple[str, ...]:
    """How scenarios name what is in no catalog."""
    if not any(of.group for of in _CATALOGS[what]):
        return ()
    return (f"or one of your own: {_KEYS[what]}: {FORM}, see docs/own-parts.md",)


def _notes(what: What, name: str) -> tuple[str, ...]:
    """Further lines about an entry that is made in a way of its own."""
    if what == "models" and name in catalog.MODELS:
        return _notes_on_model(name)
    return _notes_on_dataset(name) if what == "datasets" and name in catalog.SOURCES else ()


def _notes_on_model(name: str) -> tuple[str, ...]:
    from edgesim.models.catalog import MODELS

    side = MODELS[name].min_side
    return (f"takes images of at least {side}x{side} pixels, see data.image_size",)


def _notes_on_dataset(name: str) -> tuple[str, ...]:
    # They load numpy, which other lists do without.
    from edgesim.data.source import FolderSource, NamedSource
    from edgesim.data.sources import SOURCES

    source = SOURCES[name]
    expects = getattr(source, "expects", None)
    notes = [f"files: {expects}"] if expects else ["files: none"]
    if isinstance(source, NamedSource):
        notes.append("or train*.parquet and test*.parquet; data.download: true fetches the files")
        if source.default_path:
            notes.append(f"without data.path the files of {source.default_path} are read")
    if isinstance(source, FolderSource):
        notes.append(f"owners, for data.partition by_owner: {source.owners}")
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
    radio = entry.profile.radio
    way = "half-duplex: it sends or receives" if radio.is_half_duplex else "full-duplex"
    notes = (f"radio: {radio.name}; {way}; network.half_duplex overrides it",)
    return Table(entry.profile.description, columns, rows, notes, prose=_PROSE)


def _topologies() -> list[tuple[str, str]]:
    from topologies import KINDS

    return [(name, kind.description) for name, kind in KINDS.items()]


def _scenarios() -> list[tuple[str, str]]:
    return [(name, _describe(path)) for name, path in shipped_scenarios().items()]


def _scenario(name: str, description: str) -> Table:
    path = shipped_scenarios()[name]
    rows = [("what it is", description)] if description else []
    rows.append(("file", str(path)))
    if has_sweep(path):
        rows.append(("run all cells", f"edgesim sweep {name}"))
    else:
        rows.append(("train it", f"edgesim run {name}"))
        rows.append(("change it", f"edgesim new my-{name.rpartition('/')[2]} --from {name}"))
    return Table(name, ("", ""), tuple(rows))


def _describe(path: Path) -> str:
    try:
        if has_sweep(path):
            sweep = parse_sweep(read_scenario_text(path), str(path), path.parent)
            return f"{sweep.cells[0].scenario.description} ({len(sweep.cells)} cells)"
        return load_scenario(path).description
    except ScenarioError as error:
        return f"not usable: {error}"
