"""Settings of a sweep's cells as columns of tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from edgesim.scenario.plain import in_yaml


def columns_of(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Settings of all cells with a key for each value inside a section.

    A section that a cell gives whole, `gossip: {algorithm: choco}`, becomes `gossip.algorithm`: a
    column to read and to group by. It stays whole, as YAML on one line, if another cell has no
    section there (`model.quantization: null`). Lists are YAML on one line, too.

    Args:
        cells: of each the values that the sweep gives it, by key.
    """
    leaves = {key for cell in cells for key, _ in _leaves(cell, ())}
    return [dict(_leaves(cell, leaves)) for cell in cells]


def _leaves(cell: Mapping[str, Any], whole: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Keys with their values; sections are divided unless their keys are in `whole`."""
    for key, value in cell.items():
        if key not in whole and isinstance(value, dict) and value and _are_keys(value):
            yield from _leaves({f"{key}.{name}": inner for name, inner in value.items()}, whole)
        else:
            yield key, in_yaml(value) if isinstance(value, dict | list) else value


def _are_keys(section: Mapping[Any, Any]) -> bool:
    """Whether names can stand in a key with dots, which names of one's own need not."""
    return all(isinstance(name, str) and "." not in name for name in section)
