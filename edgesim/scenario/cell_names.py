"""Names of a sweep's cells, which are their folders' too."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import yaml

from edgesim.errors import ScenarioError
from edgesim.scenario.file_references import without_folders
from edgesim.scenario.plain import in_yaml

BASE = "base"  # cell that has no setting of its own
_LONGEST_NAME = 120  # characters of a cell's folder


def cell_names(settings: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[str]:
    """Names of cells: key=value for each key, keys as short as tells them apart.

    They have the names of own files without the folders, where these tell no cells apart.

    Raises:
        ScenarioError: two cells have the same settings.
    """
    short = short_keys(keys)
    names = []
    for given in settings:
        cell = {key: without_folders(value, key) for key, value in given.items()}
        name = ",".join(f"{short[key]}={_in_name(value)}" for key, value in cell.items()) or BASE
        if len(name) > _LONGEST_NAME:
            name = f"{name[: _LONGEST_NAME - 9]}-{_digest(cell)}"
        names.append(name)
    for place_in_list, name in enumerate(names):
        same = names.index(name)
        if same != place_in_list and settings[same] == settings[place_in_list]:
            raise ScenarioError(f"sweep: the cell {name} is there twice; keep one of the two")
    unclear = {name for name in names if names.count(name) > 1}
    return [
        f"{name}-{_digest(cell)}" if name in unclear else name
        for name, cell in zip(names, settings, strict=True)
    ]


def settings_in_table(values: Sequence[object], key: str) -> list[str]:
    """A setting of all cells as text, with own files without folders that tell no two apart."""
    whole = [str(value) for value in values]
    short = [str(_setting_without_folders(value, key)) for value in values]
    return short if len(set(short)) == len(set(whole)) else whole


def _setting_without_folders(value: object, key: str) -> object:
    """A setting of a cell; sections are text."""
    if not isinstance(value, str) or not value.startswith(("{", "[")):
        return without_folders(value, key)
    return in_yaml(without_folders(yaml.safe_load(value), key))


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """Of each key the last parts, as many as tell it from the others."""
    short = {}
    for key in keys:
        parts = key.split(".")
        for length in range(1, len(parts) + 1):
            short[key] = ".".join(parts[-length:])
            if sum(other.split(".")[-length:] == parts[-length:] for other in keys) == 1:
                break
    return short


def _in_name(value: object) -> str:
    text = value if isinstance(value, str) else in_yaml(value)
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text.strip("{}[]")) or "-"


def _digest(cell: Mapping[str, Any]) -> str:
    return blake2b(in_yaml(dict(cell)).encode(), digest_size=4).hexdigest()
