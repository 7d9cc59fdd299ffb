"""Scenario files: read strictly, written so that they read back equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import yaml
from pydantic import ValidationError
from yaml.nodes import MappingNode, SequenceNode

from edgesim.errors import ScenarioError, did_you_mean
from edgesim.scenario.outline import SCENARIO
from edgesim.scenario.overrides import apply_overrides
from edgesim.scenario.own_parts import OwnPart
from edgesim.scenario.plain import in_yaml, plain_value
from edgesim.scenario.problems import nearest, report
from edgesim.scenario.schema import Scenario
from edgesim.scenario.section import Section
from edgesim.scenario.shipped import scenario_file, shipped_scenarios
from edgesim.scenario.strict_yaml import GIVEN, OVERRIDE, compose, find, place, to_value

MOST_CHARACTERS = 400_000  # that YAML reads in seconds


def load_scenario(
    path: Path | str,
    overrides: Sequence[str] = (),
    read_source: Callable[[str], str | None] | None = None,
    *,
    origin: str = OVERRIDE,
) -> Scenario:
    """Read a scenario file, apply overrides, check everything that needs no data and no graph.

    Relative paths in the file are relative to its folder, those in overrides to the current one;
    the scenario holds absolute paths.

    Args:
        path: YAML file, or the name of a shipped scenario.
        overrides: each `key.path=value`, as after `--set`.
        read_source: see `parse_scenario`.
        origin: what messages put before an override.

    Raises:
        ScenarioError: one or two lines, each with place, key, value and what would be right.
    """
    path = scenario_file(path)
    text = read_scenario_text(path)
    return parse_scenario(text, str(path), path.parent, overrides, read_source, origin=origin)


def scenario_of(
    content: Mapping[str, object] | Scenario,
    overrides: Sequence[str] = (),
    *,
    origin: str = OVERRIDE,
) -> Scenario:
    """The scenario of a mapping like that of a scenario file, or of another scenario.

    `load_scenario` has the other arguments. Files of one's own parts that a scenario has read are
    not read again.

    Raises:
        ScenarioError: see `load_scenario`.
    """
    sources = dict(_sources(content)) if isinstance(content, Scenario) else {}
    text = in_yaml(plain_value(content))
    return parse_scenario(text, GIVEN, Path.cwd(), overrides, sources.get, origin=origin)


def checked_again(scenario: Scenario) -> Scenario:
    """A scenario that Python code may have changed: pydantic's `model_copy` checks nothing.

    Raises:
        ScenarioError: see `load_scenario`.
    """
    context = {"read_source": dict(_sources(scenario)).get, "folders": (Path.cwd(),)}
    try:
        return Scenario.model_validate(plain_value(scenario), context=context)
    except ValidationError:
        return scenario_of(scenario)  # a message needs the places of YAML


def _sources(section: object) -> Iterator[tuple[str, str]]:
    """Files of the own parts in a section, and their texts."""
    if isinstance(section, OwnPart) and section.source is not None:
        yield section.place, section.source
    elif isinstance(section, Section):
        yield from chain.from_iterable(map(_sources, vars(section).values()))
    elif isinstance(section, tuple | list):
        yield from chain.from_iterable(map(_sources, section))


def parse_scenario(
    text: str,
    name: str,
    folder: Path,
    overrides: Sequence[str] = (),
    read_source: Callable[[str], str | None] | None = None,
    *,
    origin: str = OVERRIDE,
) -> Scenario:
    """The same from the text of a scenario file.

    Args:
        text: YAML.
        name: of the file, for messages.
        folder: that relative paths are relative to.
        overrides: each `key.path=value`, as after `--set`.
        read_source: gives the text of a file of one's own parts by its absolute path; where it
            gives None, or there is none, the file itself is read.
        origin: what messages put before an override.

    Raises:
        ScenarioError: see `load_scenario`.
    """
    root = compose_scenario(text, name, overrides)
    if (sweep := find(root, "sweep")) is not None:
        raise ScenarioError(
            f"{place(sweep[0].start_mark)}: sweep makes this a file of many runs; start them with "
            "`edgesim sweep`, or remove it. `edgesim validate` checks them all and `edgesim cost` "
            "says what they cost; for a single run, name a file without the block"
        )
    return checked_scenario(apply_overrides(root, overrides, origin), folder, read_source)


def compose_scenario(text: str, name: str, overrides: Sequence[str] = ()) -> MappingNode:
    """Nodes of a scenario file; nothing in it is checked yet.

    Raises:
        ScenarioError: it is empty, no mapping, no YAML, or too long.
    """
    num_characters = len(text) + sum(map(len, overrides))
    if num_characters > MOST_CHARACTERS:
        raise ScenarioError(
            f"{name}: with what --set adds it is longer than {MOST_CHARACTERS:,} characters, the "
            "most that a scenario can have; name devices in groups, and links and contacts in files"
        )
    root = compose(text, name)
    if root is None:
        raise ScenarioError(f"{name}: is empty; must be {SCENARIO.must_be}")
    if not isinstance(root, MappingNode):
        kind = "a list" if isinstance(root, SequenceNode) else "a single value"
        raise ScenarioError(f"{name}:1: holds {kind}; must be {SCENARIO.must_be}")
    return root


def checked_scenario(
    root: MappingNode, folder: Path, read_source: Callable[[str], str | None] | None = None
) -> Scenario:
    """The scenario of the nodes of a file; `parse_scenario` has the arguments.

    Raises:
        ScenarioError: see `load_scenario`.
    """
    value = to_value(root, folder)
    try:
        folders = (folder, Path.cwd())  # the second is that of overrides
        context = {"read_source": read_source, "folders": folders}
        return Scenario.model_validate(value, context=context)
    except ValidationError as error:
        raise ScenarioError(report(error, root, value)) from None  # it says all that error does


def dump_scenario(scenario: Scenario) -> str:
    """YAML with every default written out; it loads back to an equal scenario."""
    value = scenario.model_dump(mode="json")
    return yaml.safe_dump(value, sort_keys=False, default_flow_style=None, width=100)


def read_scenario_text(path: Path) -> str:
    """Text of a scenario file, with or without a byte order mark.

    Raises:
        ScenarioError: the file can't be read.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:  # maybe one that never ends
            return file.read(MOST_CHARACTERS + 1)
    except FileNotFoundError as error:
        raise ScenarioError(f"{path}: no such file{_similar_files(path)}") from error
    except IsADirectoryError as error:
        raise ScenarioError(f"{path}: is a folder; name a scenario file in it") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(
            f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from error
    except OSError as error:
        raise ScenarioError(f"{path}: can't be read: {error.strerror}") from error


def _similar_files(path: Path) -> str:
    names = [p.name for p in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
    if guesses := nearest(path.name, names):
        return f"; did you mean {path.parent / guesses[0]}?"
    if path.is_absolute():
        return ""
    otherwise = "`edgesim list scenarios` has those that edgesim ships"
    return f"; {did_you_mean(path.with_suffix('').as_posix(), shipped_scenarios(), otherwise)}"
