"""Output of `edgesim list keys` and of `list` for one entry: the schema as tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter

from edgesim.assembly.parts.options import Option
from edgesim.errors import EdgesimError, did_you_mean
from edgesim.scenario.guide import KeyGuide, example_of_kind, guide, guide_of_kind
from edgesim.scenario.plain import in_yaml
from edgesim.scenario.sweep import sweep_guide
from edgesim.study.tables.table import Table

_COLUMNS = ("key", "default", "example", "must be", "only with", "meaning")
_SWEEP = "sweep: {grid: {gossip.algorithm: [choco, deepsqueeze], seed: [1, 2, 3]}}"
_PROSE = frozenset({"must be", "only with", "meaning"})


class ListingError(EdgesimError, ValueError):
    """A name that is not in the catalog."""


def keys_table(prefix: str) -> Table:
    """Table of all keys that begin with a prefix; a single key is described in full.

    Raises:
        ListingError: no key begins with the prefix.
    """
    found = sweep_guide() if prefix.partition(".")[0] == "sweep" else guide(prefix)
    if not found:
        every = [entry.key for entry in guide()]
        raise ListingError(
            f"{prefix} is no key of a scenario; {did_you_mean(prefix, every, 'see `list keys`')}"
        )
    if prefix.startswith("sweep"):
        combined = "grid, zip and list are combined, each with each."
        return _table("", found, (combined, f"example: {_SWEEP}", "more: docs/sweeps.md"))
    if len(found) == 1:
        return _details(found[0])
    notes = ("A 0 in a key is the position of an item of a list, from 0.",)
    has_items = any(".0" in entry.key for entry in found)
    return _table("", found, notes if has_items else ())


def kind_table(
    holder: str,
    name: str,
    description: str,
    options: Mapping[str, Option],
    also: Collection[str] = (),
    arguments: Mapping[str, Parameter] | None = None,
) -> Table:
    """Keys of a part that chooses a section, with an example.

    Args:
        holder: key of the section.
        name: name of the entry.
        description: one line about the entry.
        options: of the entry, by name.
        also: keys of the section to show in the example.
        arguments: all that the entry takes, where a key of the section whose default is null is
            one that not every entry has: it has the entry's default, or is left out.
    """
    example = example_of_kind(holder, name, also)
    if needed := {n: o.example for n, o in options.items() if o.is_required}:
        example["options"] = needed
    *sections, last = holder.split(".")
    written = f"{last}: {in_yaml(example)}"
    if sections:
        written += f"   (in the section {'.'.join(sections)})"
    chosen = [entry for entry in _own(guide_of_kind(holder, name), holder) if not entry.is_choice]
    notes = [f"example: {written}"]
    notes += [f"more: edgesim list keys {e.key}" for e in chosen if e.slot.sections]
    chosen = [entry for entry in chosen if entry.key != f"{holder}.options"]
    if arguments is not None:
        chosen = [fitted for entry in chosen for fitted in _fitted(entry, arguments)]
    if not chosen and not options:
        return Table(f"{name}: {description}", ("",), (("it has no options",),), tuple(notes))
    rows = _option_rows(f"{holder}.options", options)
    return _table(f"{name}: {description}", chosen, notes, rows, with_choices=False)


def _fitted(entry: KeyGuide, arguments: Mapping[str, Parameter]) -> list[KeyGuide]:
    """A key as an entry with these arguments has it; none if the entry lacks it."""
    if entry.default != "null":
        return [entry]
    argument = arguments.get(entry.key.rpartition(".")[2])
    if argument is None:
        return []
    if argument.default is None:
        return [entry]
    default = None if argument.default is Parameter.empty else in_yaml(argument.default)
    must_be = entry.must_be.removesuffix(" or null")
    meaning = entry.meaning.partition("; null: ")[0]
    return [replace(entry, default=default, must_be=must_be, meaning=meaning)]


def value_table(
    section: str,
    value: Mapping[str, str],
    description: str,
    notes: Sequence[str],
    options: Mapping[str, Option],
) -> Table:
    """Table of the keys of a section in which one key has a certain value, with an example.

    Args:
        section: key of the section.
        value: the one key with its value.
        description: one line about the entry.
        notes: further lines below the table.
        options: of the entry, by name.
    """
    ((key, name),) = value.items()
    place = f"{section}.task_options" if key == "task" else f"{section}.options"
    rows = [entry for entry in _own(guide(section), section) if entry.key != f"{section}.{key}"]
    more = [f"more: edgesim list keys {entry.key}" for entry in rows if entry.slot.sections]
    example = f"example: --set {section}.{key}={name}"
    own = _option_rows(place, options)
    return _table(f"{name}: {description}", rows, (*notes, *more, example), own)


def _option_rows(place: str, options: Mapping[str, Option]) -> list[tuple[str, ...]]:
    """A row for each option of a part."""
    return [
        (
            f"{place}.{name}",
            "required" if option.is_required else in_yaml(option.default),
            in_yaml(option.example),
            option.must_be,
            "",
            option.meaning,
        )
        for name, option in options.items()
    ]


def _own(entries: Sequence[KeyGuide], holder: str) -> list[KeyGuide]:
    """Keys of a section, without keys of sections inside it."""
    return [entry for entry in entries if entry.key.rpartition(".")[0] == holder]


def _table(
    title: str,
    entries: Sequence[KeyGuide],
    notes: Sequence[str],
    further: Sequence[tuple[str, ...]] = (),
    *,
    with_choices: bool = True,
) -> Table:
    rows = (
        *further,
        *(
            (
                entry.key,
                "required" if entry.default is None else entry.default,
                in_yaml(entry.example),
                entry.must_be,
                entry.condition if with_choices else "",
                entry.meaning,
            )
            for entry in entries
        ),
    )
    empty = {place for place in range(len(_COLUMNS)) if not any(row[place] for row in rows)}
    kept = [place for place in range(len(_COLUMNS)) if place not in empty or not rows]
    return Table(
        title,
        tuple(_COLUMNS[place] for place in kept),
        tuple(tuple(row[place] for place in kept) for row in rows),
        tuple(notes),
        _PROSE,
    )


def _details(entry: KeyGuide) -> Table:
    rows = [
        ("meaning", entry.meaning),
        ("must be", entry.must_be),
        ("default", "none: it is required" if entry.default is None else entry.default),
        ("only with", entry.condition),
        ("example", f"--set {entry.override}"),
    ]
    return Table(entry.key, ("", ""), tuple(row for row in rows if row[1]))
