"""The block `sweep:` of a scenario file, which makes many scenarios of one: its cells."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError
from yaml.nodes import MappingNode, Node

from edgesim.errors import ScenarioError, did_you_mean, with_notes
from edgesim.scenario.cell_names import cell_names
from edgesim.scenario.cell_settings import columns_of
from edgesim.scenario.file_references import KEYS, absolute_reference
from edgesim.scenario.files import (
    checked_scenario,
    compose_scenario,
    read_scenario_text,
    scenario_of,
)
from edgesim.scenario.guide import KeyGuide, guide, is_key
from edgesim.scenario.outline import SCENARIO, Slot
from edgesim.scenario.overrides import apply_overrides, parts_of
from edgesim.scenario.plain import in_yaml, plain_value
from edgesim.scenario.problems import nearest
from edgesim.scenario.scale import scaled
from edgesim.scenario.schema import Scenario
from edgesim.scenario.section import MustBe, Section
from edgesim.scenario.shipped import scenario_file
from edgesim.scenario.strict_yaml import (
    ONLY,
    OVERRIDE,
    PATHS,
    SWEEP,
    find,
    mapping,
    place,
    to_value,
)

KEY = "sweep"
TARGETS = "paper."  # begins keys that only stand beside a result
MOST_CELLS = 10_000
_BY_SETTINGS = "by settings that the file has anyway; keep one of the two"
_AXIS = "a mapping from keys to lists of values, such as {gossip.algorithm: [choco, deepsqueeze]}"
_CELLS = "a list of mappings, such as [{seed: 1, training.epochs: 5}, {seed: 2}]"
_Values = Annotated[tuple[Any, ...], Field(strict=False, min_length=1)]
_Axes = Annotated[dict[str, _Values], MustBe(_AXIS)]


class SweepSection(Section):
    """Settings in which the cells of a sweep differ; several parts are combined, each with each."""

    grid: _Axes = Field(
        default={}, description="values of each key, every one combined with every other"
    )
    zip: _Axes = Field(
        default={}, description="values of each key, the first with the first, and so on"
    )
    list: Annotated[tuple[dict[str, Any], ...], Field(strict=False), MustBe(_CELLS)] = Field(
        default=(), description="settings of each cell, key by key"
    )


@dataclass(frozen=True, slots=True)
class Cell:
    """One scenario of a sweep.

    Attributes:
        name: of its folder, made of its settings.
        settings: the values that the sweep gives it, by key (`columns_of`).
        scenario: that it runs.
    """

    name: str
    settings: Mapping[str, Any]
    scenario: Scenario


@dataclass(frozen=True, slots=True)
class Sweep:
    """A checked sweep.

    Attributes:
        name: of the scenario that the cells vary.
        keys: of the cells' settings, in the order of the file.
        cells: all of them; each passed the checks that need no data.
        left_out: names of cells that are not to be run now.
        scale: share of their length that the cells are trained for.
    """

    name: str
    keys: tuple[str, ...]
    cells: tuple[Cell, ...]
    left_out: frozenset[str] = frozenset()
    scale: float = 1.0

    @property
    def wanted(self) -> tuple[Cell, ...]:
        """Cells that are to be run."""
        return tuple(cell for cell in self.cells if cell.name not in self.left_out)


def parse_sweep(
    text: str, name: str, folder: Path, overrides: Sequence[str] = (), *, origin: str = OVERRIDE
) -> Sweep:
    """The sweep of a scenario file with a block `sweep`.

    Args:
        text: YAML of the file.
        name: of the file, for messages.
        folder: that relative paths are relative to.
        overrides: each `key.path=value`; of all cells, beneath the settings of the sweep.
        origin: what messages put before an override.

    Raises:
        ScenarioError: a key, a value or a cell can't be used; the message names it.
    """
    root = compose_scenario(text, name, overrides)
    pair = find(root, KEY)
    if pair is None:
        raise ScenarioError(
            f"{name}: has no sweep; add the block sweep, such as sweep: {{grid: {{seed: [1, 2]}}}}"
        )
    section = _section(pair[1], place(pair[0].start_mark), folder)
    _check_keys(section, pair[1])
    base = mapping([p for p in root.value if p[0].value != KEY], like=root)
    base = apply_overrides(base, overrides, origin)
    settings = list(_settings(section, place(pair[0].start_mark)))
    _check_has_effect(overrides, settings, origin)
    names = cell_names([_trained(cell) for cell in settings], _keys(settings))
    columns = columns_of(settings)
    cells = tuple(
        Cell(cell_name, shown, _scenario(base, folder, cell_name, cell, name))
        for cell_name, shown, cell in zip(names, columns, settings, strict=True)
    )
    _check_distinct(cells, name)
    return Sweep(cells[0].scenario.name, _keys(columns), cells)


def _keys(cells: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for cell in cells for key in cell))


def _check_distinct(cells: Sequence[Cell], file: str, why: str = _BY_SETTINGS) -> None:
    """Refuse two cells that run the same scenario, which would count as two repetitions."""
    first_with: dict[str, str] = {}
    for cell in cells:
        trained = cell.scenario.model_copy(update={"paper": None}).model_dump_json()
        if (first := first_with.setdefault(trained, cell.name)) != cell.name:
            raise ScenarioError(
                f"{file}: sweep: the cells {first} and {cell.name} are the same scenario, {why}"
            )


def chosen(sweep: Sweep, only: Sequence[str], name: str, *, origin: str = ONLY) -> Sweep:
    """The sweep without the cells that have other values.

    A cell has a value if setting the key to it changes nothing of its scenario.

    Args:
        sweep: to choose from.
        only: each `key.path=value`; a cell must have all of them.
        name: of the sweep, for messages.
        origin: what messages put before a value.

    Raises:
        ScenarioError: a key or a value can't be used, or no cell has all values.
    """
    has = {cell.name: _has_all(cell.scenario, only, origin) for cell in sweep.cells}
    if not any(isinstance(found, bool) for found in has.values()):
        raise next(found for found in has.values() if isinstance(found, ScenarioError))
    left_out = frozenset(name for name, found in has.items() if found is not True)
    if len(left_out) == len(sweep.cells):
        raise ScenarioError(
            f"{' '.join(f'{origin}{value}' for value in only)}: no cell of {name} has this; "
            f"`edgesim validate {name}` has a table of all cells"
        )
    return replace(sweep, left_out=left_out)


def _has_all(scenario: Scenario, only: Sequence[str], origin: str) -> bool | ScenarioError:
    """Whether a scenario has all values; an error if it can't have them."""
    try:
        content = scenario.model_dump(mode="json")
        return all(scenario_of(content, [value], origin=origin) == scenario for value in only)
    except ScenarioError as error:
        return error


def scaled_sweep(sweep: Sweep, scale: float, origin: str = "--scale") -> Sweep:
    """The sweep with cells of shorter training; `scale.scaled` has the arguments.

    Raises:
        ScenarioError: a cell cannot be shortened so much, or two cells become the same scenario.
    """
    cells = [replace(cell, scenario=scaled(cell.scenario, scale, origin)) for cell in sweep.cells]
    wanted = [cell for cell in cells if cell.name not in sweep.left_out]
    _check_distinct(wanted, f"{origin} {scale:g}", "by this scale; leave one of the two out")
    return replace(sweep, cells=tuple(cells), scale=scale)


def sweep_guide() -> list[KeyGuide]:
    """Keys of the block, as `guide` gives those of a scenario."""
    examples = {
        "grid": {"gossip.algorithm": ["choco", "deepsqueeze"], "seed": [1, 2, 3]},
        "zip": {"fleet.devices": [8, 16], "data.batch_size": [32, 16]},
        "list": [{"seed": 1}, {"seed": 2, "training.epochs": 5}],
    }
    found = []
    for name, field in SweepSection.model_fields.items():
        slot = Slot.of_key(SweepSection, name)
        assert slot is not None, "a key of the section"
        found.append(
            KeyGuide(
                key=f"{KEY}.{name}",
                meaning=field.description or "",
                must_be=slot.must_be,
                default=in_yaml(plain_value(field.default)),
                example=examples[name],
                choices=(),
                slot=slot,
            )
        )
    return found


def has_sweep(given: Path | str) -> bool:
    """Whether a scenario file has a block `sweep`.

    Raises:
        ScenarioError: the file can't be read.
    """
    path = scenario_file(given)
    return find(compose_scenario(read_scenario_text(path), str(path)), KEY) is not None


def _section(node: Node, where: str, folder: Path) -> SweepSection:
    value = to_value(node, folder)
    try:
        return SweepSection.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join([KEY, *map(str, first["loc"][:1])])
        if first["type"] == "extra_forbidden":
            parts = SweepSection.model_fields
            remedy = did_you_mean(str(first["loc"][0]), parts, f"known: {', '.join(parts)}")
            raise ScenarioError(f"{where}: {key} is an unknown key; {remedy}") from error
        slot = Slot.of_key(SweepSection, str(first["loc"][0])) if first["loc"] else None
        wanted = slot.must_be if slot else Slot(SweepSection).must_be
        raise ScenarioError(f"{where}: {key} must be {wanted}") from error


def _check_keys(section: SweepSection, node: Node) -> None:
    """Refuse keys that are none of a scenario's, with the nearest one."""
    axes = [("grid", key) for key in section.grid] + [("zip", key) for key in section.zip]
    axes += [("list", key) for cell in section.list for key in cell]
    for part, key in dict.fromkeys(axes):
        if is_key(key) or guide(key) or _is_inside_options(key):
            continue
        inner = find(node, part)
        named = find(inner[1], key) if inner is not None else None
        where = place((named or inner or (node, node))[0].start_mark)
        guesses = " or ".join(nearest(key, [entry.key for entry in guide()]))
        remedy = f"did you mean {guesses}?" if guesses else "`edgesim list keys` has all keys"
        raise ScenarioError(f"{where}: sweep.{part}: {key} is no key of a scenario; {remedy}")


def _check_has_effect(
    overrides: Sequence[str], settings: Sequence[Mapping[str, Any]], origin: str
) -> None:
    """Refuse an override that every cell overrides."""
    for override in overrides:
        key = parts_of(override.partition("=")[0])
        replacing = [[own for own in cell if _replaces(parts_of(own), key)] for cell in settings]
        if all(replacing):
            own = replacing[0][0]
            raise ScenarioError(
                f"{origin}{override}: has no effect, since the sweep sets {own} in every cell; "
                f"choose cells by their values of {own}, or change the sweep"
            )


def _replaces(own: list[str], key: list[str]) -> bool:
    """Whether a setting of a cell undoes that of a key: of itself, or of an alternative to it."""
    if key[: len(own)] == own:
        return True
    slot: Slot | None = SCENARIO if own[:-1] == key[:-1] else None
    for part in own[:-1]:
        slot = slot and slot.key(part)
    sections = slot.sections if slot else ()
    return any({own[-1], key[-1]} <= section.alternatives for section in sections)


def _is_inside_options(key: str) -> bool:
    """Whether a key is one of the arguments of one's own part."""
    return re.search(r"(^|\.)(task_)?options\.", key) is not None


def _settings(section: SweepSection, where: str) -> Iterator[dict[str, Any]]:
    """Settings of each cell, in the order of the file."""
    lengths = {key: len(values) for key, values in section.zip.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{key} has {length}" for key, length in lengths.items())
        raise ScenarioError(f"{where}: sweep.zip: all keys must have as many values: {said}")
    twice = [key for key in section.grid if key in section.zip]
    both = {**section.grid, **section.zip}
    twice += [key for cell in section.list for key in cell if key in both]
    if twice:
        raise ScenarioError(f"{where}: sweep: {twice[0]} is given twice; keep one of the two")
    zipped = [
        dict(zip(section.zip, values, strict=True))
        for values in zip(*section.zip.values(), strict=True)
    ] or [{}]
    listed = list(section.list) or [{}]
    for cell in listed:
        _check_all_kept([*section.grid, *section.zip, *cell], where)
    num_cells = prod(map(len, section.grid.values())) * len(zipped) * len(listed)
    if num_cells > MOST_CELLS:
        raise ScenarioError(f"{where}: sweep: {num_cells:,} cells; must be at most {MOST_CELLS:,}")
    if not any((section.grid, section.zip, section.list)):
        remedy = "add one, such as grid: {seed: [1, 2]}"
        raise ScenarioError(f"{where}: sweep: names no key; {remedy}")
    for values in product(*section.grid.values()):
        grid = dict(zip(section.grid, values, strict=True))
        for pairs in zipped:
            for cell in listed:
                yield grid | pairs | cell


def _check_all_kept(keys: Sequence[str], where: str) -> None:
    """Refuse a setting that a later one of the same cell undoes.

    Args:
        keys: of a cell, in the order in which they are set.
        where: the sweep is, for messages.
    """
    for place_in_cell, key in enumerate(keys):
        for later in keys[place_in_cell + 1 :]:
            if _replaces(parts_of(later), parts_of(key)):
                raise ScenarioError(
                    f"{where}: sweep: {key} has no effect in a cell that sets {later} after it; "
                    f"keep one of the two, or set {later} before {key}: a cell sets the keys of "
                    "grid first, then those of zip, then those of list"
                )


def _scenario(
    base: MappingNode, folder: Path, cell_name: str, cell: Mapping[str, Any], file: str
) -> Scenario:
    """The scenario of a cell.

    Raises:
        ScenarioError: it can't be used; the message names the cell.
    """
    overrides = [f"{key}={in_yaml(_absolute(key, cell[key], folder))}" for key in cell]
    try:
        return checked_scenario(apply_overrides(base, overrides, SWEEP), folder)
    except ScenarioError as error:
        first, *others = str(error).splitlines()
        more = f" (and {len(others)} more)" if others else ""
        named = with_notes(ScenarioError(f"{file}: cell {cell_name}: {first}{more}"), error)
        raise named from (error if others else error.__cause__)


def _absolute(key: str, value: object, folder: Path) -> object:
    """A value with the file that it names relative to the folder, where its key takes a file."""
    last = key.rpartition(".")[2]
    if not isinstance(value, str) or not value:
        return value
    if last in PATHS:
        return str((folder / Path(value).expanduser()).resolve())
    return absolute_reference(value, folder) if last in KEYS else value


def _trained(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a cell without what only stands beside its result."""
    return {key: value for key, value in cell.items() if not key.startswith(TARGETS)}
