"""A scenario file to start from: the keys of another one, each with what the schema says of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from textwrap import wrap
from typing import Any

from edgesim.scenario.files import (
    compose_scenario,
    load_scenario,
    parse_scenario,
    read_scenario_text,
)
from edgesim.scenario.guide import ITEM, KeyGuide, guide
from edgesim.scenario.own_parts import OWN
from edgesim.scenario.plain import in_yaml, value_of
from edgesim.scenario.shipped import scenario_file
from edgesim.scenario.strict_yaml import ARGUMENT, to_value

_WIDTH = 100
_HEAD = (
    "{name}: made from {source} by `edgesim new`. Lines that begin with # and a space are "
    "comments. Lines that begin with # alone are keys with their defaults: to change one, remove "
    "its # and that of the section above it. "
    "`edgesim list keys KEY` says more of a key, `edgesim validate` checks this file."
)


def new_scenario(name: str, source: Path | str, folder: Path | None = None) -> str:
    """Text of a scenario file with the content of another one and a comment on every key.

    Args:
        name: of the new scenario.
        source: file or shipped name of the scenario to start from.
        folder: of the new file; files of the source that lie in it are named from there, so that
            the folder can be moved. None: all files have their whole paths.

    Raises:
        ScenarioError: the name can't be one, or the source can't be used.
    """
    wanted = load_scenario(source, [f"name={in_yaml(name)}"], origin=ARGUMENT)
    path = scenario_file(source)
    root = compose_scenario(read_scenario_text(path), str(path))
    content = to_value(root, path.parent)
    assert isinstance(content, dict), "of a scenario that was loaded"
    content["name"] = name
    if folder is not None:
        content = _from_there(content, f"{folder.resolve()}/")
    head = _comment(_HEAD.format(name=name, source=source), "")
    text = "\n".join([*head, "", *_section("", content, content, "")]).rstrip() + "\n"
    written = parse_scenario(text, name, folder or path.parent)
    assert written == wanted, "no key of the source is lost"
    return text


def _from_there(value: Any, folder: str) -> Any:  # noqa: ANN401 (what YAML holds)
    """Content of a scenario whose files in a folder are named from there."""
    if isinstance(value, dict):
        return {key: _from_there(entry, folder) for key, entry in value.items()}
    if isinstance(value, list):
        return [_from_there(entry, folder) for entry in value]
    if isinstance(value, str) and value.startswith(folder):
        return f"./{value.removeprefix(folder)}"
    return value


def _section(
    key: str,
    section: Mapping[str, object],
    whole: Mapping[str, object],
    indent: str,
    alternatives: Collection[str] = (),
) -> Iterator[str]:
    """Lines of the keys of a section: those that it has, and its other ones as comments.

    Args:
        key: of the section.
        section: its content.
        whole: the scenario.
        indent: of the lines.
        alternatives: keys of the section of which one that is set replaces the others' defaults.
    """
    is_chosen = any(section.get(name) is not None for name in alternatives)
    for entry in _keys_of(key, whole):
        name = entry.key.rpartition(".")[2]
        yield from _comment(_said_of(entry), indent)
        value, inner = section.get(name), None
        if name not in section:
            default = "null" if is_chosen and name in alternatives else entry.default
            if _is_section(entry) and default == "{}":
                yield f"{indent}#{name}:"
                inner = {}
            else:
                yield f"{indent}#{name}: {default}"
        elif isinstance(value, dict) and entry.slot.sections:
            yield f"{indent}{name}:"
            inner = value
        else:
            yield from _value(name, value, indent)
        if inner is not None:
            sets = (kind.alternatives for kind in entry.slot.sections)
            others = frozenset[str]().union(*sets)
            yield from _section(entry.key, inner, whole, f"{indent}  ", others)
        if not key:
            yield ""


def _said_of(entry: KeyGuide) -> str:
    """What a key means and must be; of a section only what it means, as its keys follow.

    The keys of a section that is null by default do not follow: an example shows them.
    """
    if not _is_section(entry):
        return f"{entry.meaning}; must be {entry.must_be}"
    if entry.default == "null":
        return f"{entry.meaning}; for example {in_yaml(entry.example)}"
    return "" if entry.slot.discriminator else entry.meaning


def _is_section(entry: KeyGuide) -> bool:
    """Whether a section stands at a key, and no number can."""
    return bool(entry.slot.sections) and entry.slot.number is None


def _value(name: str, value: object, indent: str) -> Iterator[str]:
    """A plain value on one line, or a long list with one line an item."""
    line = f"{indent}{name}: {in_yaml(value)}"
    if len(line) <= _WIDTH or not isinstance(value, list) or not value:
        yield line
        return
    yield f"{indent}{name}:"
    for item in value:
        yield f"{indent}  - {in_yaml(item)}"


def _keys_of(holder: str, whole: Mapping[str, object]) -> Sequence[KeyGuide]:
    """Keys of a section, in the order of the schema, that are known with the kinds it names."""
    entries = guide(holder) if holder else guide()
    inside = [entry for entry in entries if entry.key.rpartition(".")[0] == holder]
    choosers = [entry for entry in entries if entry.is_choice]
    defaults = {entry.key: entry.default for entry in choosers if entry.default is not None}
    return [entry for entry in inside if _is_known(entry, whole, defaults)]


@cache
def _shipped_names() -> dict[str, tuple[str, ...]]:
    """Names by the key at which they choose a section."""
    return {entry.key: entry.names for entry in guide() if entry.is_choice}


def _is_known(
    entry: KeyGuide, whole: Mapping[str, object], defaults: Mapping[str, str | None]
) -> bool:
    if ITEM in entry.key.split("."):
        return False
    for key, names in entry.choices:
        chosen = value_of(whole, key)
        if chosen is None:
            chosen = defaults.get(key)
        elif chosen not in _shipped_names()[key]:  # a reference, or a name of another package
            chosen = OWN
        if chosen not in names:
            return False
    return True


def _comment(text: str, indent: str) -> list[str]:
    prefix = f"{indent}# "
    lines = wrap(text, _WIDTH - len(prefix), break_long_words=False, break_on_hyphens=False)
    return [prefix + line for line in lines]
