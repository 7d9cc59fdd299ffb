"""Plain values: what YAML can hold, made of what Python code holds, and written on one line."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

import yaml

from edgesim.errors import ScenarioError
from edgesim.scenario.file_references import KEYS
from edgesim.scenario.own_parts import OwnPart
from edgesim.scenario.section import Section

_PLAIN = "a scenario holds text, numbers, truth values, lists and mappings"
_PACKAGES = {"site-packages", "dist-packages"}  # folders of installed packages


def value_of(settings: object, key: str) -> Any:  # noqa: ANN401 (of any type)
    """The value of a key with dots in plain settings; None if it is not there."""
    for part in key.split("."):
        settings = settings.get(part) if isinstance(settings, Mapping) else None
    return settings


def plain_value(value: object, key: str = "") -> object:
    """Mappings, lists, text, numbers, truth values and None, made of a Python value.

    NumPy's numbers and arrays, paths, tuples, ranges and sections of a scenario become what they
    stand for.

    Args:
        value: of Python code.
        key: of the value in the scenario, for messages; empty for a whole scenario.

    Raises:
        ScenarioError: the value is, or holds, something else.
    """
    if not isinstance(value, type) and callable(as_python := getattr(value, "tolist", None)):
        value = as_python()  # NumPy's float64 is a float, too
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            start = f"{key}." if key else ""
            return {name: plain_value(inner, f"{start}{name}") for name, inner in value.items()}
        case list() | tuple() | range():
            return [plain_value(inner, f"{key}[{n}]") for n, inner in enumerate(value)]
        case Section():  # `model_dump` would leave out a key that `model_copy` gave it by mistake
            return plain_value(vars(value), key)
        case PathLike() | OwnPart():
            return str(value)
    raise ScenarioError(f"{key or 'the scenario'} is {_named(value)}; {_remedy(value, key)}")


def in_yaml(value: object) -> str:
    """A plain value on one line, as a scenario has it."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**9, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...").strip()


def _named(value: object) -> str:
    """What a value is, without its text, which may be long."""
    match value:
        case type():
            return f"the class {value.__name__}"
        case FunctionType() | BuiltinFunctionType():
            return f"the function {value.__name__}"
    return f"an object of type {type(value).__name__}"


def _remedy(value: object, key: str) -> str:
    """What to write instead of a value that is not plain."""
    if isinstance(value, type | FunctionType | BuiltinFunctionType):
        return f"write '{named}'" if (named := _reference(value)) else _saved(value.__name__)
    kind = type(value)
    is_part = key.rpartition(".")[2].partition("[")[0] in KEYS
    if not is_part or kind.__module__ == object.__module__:
        return _PLAIN
    if kind.__module__ == "__main__":
        return f"name its class, and give its arguments in options: {_saved(kind.__name__)}"
    if (named := _reference(kind)).rpartition(":")[0].endswith(".py"):
        return f"name its class, '{named}', and give its arguments in options"
    return f"name a function that makes it: {_saved('')}"


def _reference(kind: type | FunctionType | BuiltinFunctionType) -> str:
    """How a scenario names a class or function; empty where its file is not known."""
    module, name = kind.__module__, kind.__qualname__
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    if module == "__main__" or not name.isidentifier() or not file.endswith(".py"):
        return ""
    path = Path(file)
    if not _PACKAGES.isdisjoint(path.parts):
        return f"{module}:{name}"
    here = Path.cwd()
    return f"./{path.relative_to(here)}:{name}" if path.is_relative_to(here) else f"{path}:{name}"


def _saved(name: str) -> str:
    """Where to put a class or function that is in no file that other processes can read."""
    return f"save it in a file and write './parts.py:{name if name.isidentifier() else 'Name'}'"
