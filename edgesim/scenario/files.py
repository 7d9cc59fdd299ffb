"""Scenario files: read strictly, written so that they read back equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import yaml
from pydantic import ValidationError
from yaml.nodes import MappingNode, SequenceNode

from edgesim.errors import ScenarioError
from edgesim.scenario.outline import SCENARIO
from edgesim.scenario.overrides import apply_overrides
from edgesim.scenario.problems import nearest, report
from edgesim.scenario.schema import Scenario
from edgesim.scenario.strict_yaml import compose, to_value

MOST_CHARACTERS = 400_000  # that YAML reads in seconds


def load_scenario(path: Path | str, overrides: Sequence[str] = ()) -> Scenario:
    """Read a scenario file, apply overrides, check everything that needs no data and no graph.

    Relative paths in the file are relative to its folder, those in overrides to the current one;
    the scenario holds absolute paths.

    Args:
        path: YAML file.
        overrides: each `key.path=value`, as after `--set`.

    Raises:
        ScenarioError: one or two lines, each with place, key, value and what would be right.
    """
    path = Path(path)
    return parse_scenario(_read(path), str(path), path.parent, overrides)


def parse_scenario(
    text: str,
    name: str,
    folder: Path,
    overrides: Sequence[str] = (),
    read_source: Callable[[str], str | None] | None = None,
) -> Scenario:
    """The same from the text of a scenario file.

    Args:
        text: YAML.
        name: of the file, for messages.
        folder: that relative paths are relative to.
        overrides: each `key.path=value`, as after `--set`.
        read_source: gives the text of a file of one's own parts by its absolute path; where it
            gives None, or there is none, the file itself is read.

    Raises:
        ScenarioError: see `load_scenario`.
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
    root = apply_overrides(root, overrides)
    value = to_value(root, folder)
    try:
        return Scenario.model_validate(value, context={"read_source": read_source})
    except ValidationError as error:
        raise ScenarioError(report(error, root, value)) from error


def dump_scenario(scenario: Scenario) -> str:
    """YAML with every default written out; it loads back to an equal scenario."""
    value = scenario.model_dump(mode="json")
    return yaml.safe_dump(value, sort_keys=False, default_flow_style=None, width=100)


def _read(path: Path) -> str:
    """Text of a scenario file, with or without a byte order mark."""
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
    guesses = nearest(path.name, names)
    return f"; did you mean {path.parent / guesses[0]}?" if guesses else ""
