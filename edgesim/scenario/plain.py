"""Plain values: what YAML can hold, made of what Python code holds, and written on one line."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike

import yaml

from edgesim.errors import ScenarioError
from edgesim.scenario.section import Section


def plain_value(value: object) -> object:
    """Mappings, lists, text, numbers, truth values and None, made of a Python value.

    NumPy's numbers and arrays, paths, tuples and sections of a scenario become what they stand for.

    Raises:
        ScenarioError: the value is, or holds, something else.
    """
    if callable(as_python := getattr(value, "tolist", None)):  # NumPy's float64 is a float, too
        value = as_python()
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {key: plain_value(inner) for key, inner in value.items()}
        case list() | tuple():
            return [plain_value(inner) for inner in value]
        case Section():
            return value.model_dump(mode="json")
        case PathLike():
            return str(value)
    raise ScenarioError(f"a scenario holds plain values, not {value!r} ({type(value).__name__})")


def in_yaml(value: object) -> str:
    """A plain value on one line, as a scenario has it."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**9, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...").strip()
