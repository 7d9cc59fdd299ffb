"""Scenarios as Python code gives them: a file, a shipped name, a mapping or an object."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import TypeAlias

from edgesim.errors import EdgesimError, ScenarioError, did_you_mean, with_notes
from edgesim.program import program
from edgesim.results.scenario_file import load_scenario as read_file
from edgesim.scenario.files import checked_again, scenario_of
from edgesim.scenario.plain import in_yaml, plain_value
from edgesim.scenario.schema import Scenario
from edgesim.scenario.strict_yaml import ARGUMENT

ScenarioLike: TypeAlias = str | PathLike[str] | Mapping[str, object] | Scenario
"""A scenario file, the name of a shipped scenario, a mapping like a file's, or a scenario."""

_WORD = r"""(?:'[^']*'|"[^"]*"|[^\s'"`,;:])+"""  # of a shell
_WORDS = tuple(  # of the command line, and of Python
    (re.compile(words), ours)
    for words, ours in (
        (r"`edgesim sweep SCENARIO --out (\S+)`", r"edgesim.sweep(SCENARIO, out='\1')"),
        (r"(?<!\S)(\(?)--inline\b", r"\1inline=True"),
        (r"(?<!\S)(\(?)--(out|address)\b", r"\1\2"),
    )
)


def read_scenario(
    given: ScenarioLike, overrides: Mapping[str, object], options: Collection[str] = ()
) -> Scenario:
    """The scenario that Python code means.

    Args:
        given: file, name, mapping or object.
        overrides: values by key; `written_keys` gives the form of keys.
        options: names of the function's own arguments, which a misspelt key may mean.

    Raises:
        ScenarioError: the scenario or an override can't be used.
    """
    written = written_overrides(overrides, options)
    if isinstance(given, Scenario):
        return scenario_of(given, written, origin=ARGUMENT) if written else checked_again(given)
    if isinstance(given, Mapping):
        return scenario_of(given, written, origin=ARGUMENT)
    return read_file(Path(fspath(given)), written, origin=ARGUMENT)


def load_scenario(
    scenario: ScenarioLike, overrides: Sequence[str] = (), **values: object
) -> Scenario:
    """A scenario with every default, checked as far as that needs no data and no graph.

    Args:
        scenario: a file, the name of a shipped scenario, a mapping, or a scenario. Relative paths
            in a file are relative to its folder.
        overrides: each `key.path=value`, as after `--set`.
        **values: values by key, as in `edgesim.run`.

    Raises:
        ScenarioError: one or two lines, each with place, key, value and what would be right.
    """
    if isinstance(overrides, str):
        raise ScenarioError(f"overrides is the text {overrides!r}; must be a list, [{overrides!r}]")
    given = read_scenario(scenario, values, ("overrides",))
    return scenario_of(given, overrides) if overrides else given


def name_of(given: ScenarioLike) -> str:
    """What messages call a scenario."""
    if isinstance(given, Scenario):
        return given.name
    if isinstance(given, Mapping):
        return str(given.get("name", "the scenario"))
    if not isinstance(given, str | PathLike):
        raise ScenarioError(
            f"the scenario is {given!r}; must be a file, the name of a shipped one, a mapping or a "
            "Scenario"
        )
    return fspath(given)


def written_overrides(
    overrides: Mapping[str, object], options: Collection[str] = ()
) -> Sequence[str]:
    """Overrides as the command line has them, `key.path=value`.

    A key has dots or, as the name of an argument, double underscores between its parts:
    `gossip__averaging_rate` is `gossip.averaging_rate`.

    Raises:
        ScenarioError: the first part is no key of a scenario, or a value can't stand in a scenario.
    """
    return [
        f"{key}={in_yaml(plain_value(value, key))}" for key, value in _keyed(overrides, options)
    ]


def _keyed(
    overrides: Mapping[str, object], options: Collection[str]
) -> Sequence[tuple[str, object]]:
    if not hasattr(overrides, "items"):
        shown = type(overrides).__name__
        raise ScenarioError(f"{shown}: keys with values are a dict, such as {{'seed': 2}}")
    known = [*Scenario.model_fields, *options]
    pairs = [(key.replace("__", "."), value) for key, value in overrides.items()]
    for key, _ in pairs:
        if (first := key.partition(".")[0].partition("[")[0]) not in Scenario.model_fields:
            remedy = did_you_mean(first, known, f"keys of a scenario: {', '.join(known)}")
            raise ScenarioError(f"{key} is no key of a scenario and no argument; {remedy}")
    keys = [key for key, _ in pairs]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise ScenarioError(f"{twice} is given twice, with dots and with underscores; keep one")
    return pairs


@contextmanager
def errors_named(name: str) -> Iterator[None]:
    """Put the scenario's name before errors of bad input."""
    try:
        yield
    except EdgesimError as error:
        if not isinstance(error, ValueError):
            raise
        raise with_notes(ScenarioError(f"{name}: {error}"), error) from error.__cause__


@contextmanager
def errors_of_python() -> Iterator[None]:
    """Let errors name calls and arguments of Python, where they name those of the command line."""
    try:
        yield
    except EdgesimError as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (in_words_of_python(error.args[0]),)
        raise


def _resume_call(found: re.Match[str]) -> str:
    """The call of Python for a command."""
    return f"edgesim.resume({''.join(shlex.split(found[2]))!r})"


def in_words_of_python(text: str) -> str:
    """A message of the command line with calls and arguments of Python in place of its own."""
    text = re.sub(
        rf"(`?){re.escape(program())} resume ({_WORD})\1(?![^\s,;:.)])", _resume_call, text
    )
    for words, ours in _WORDS:
        text = words.sub(ours, text)
    return text
