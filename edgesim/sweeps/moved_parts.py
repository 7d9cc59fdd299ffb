"""Own files go by their content: those of a sweep, or of its cells, may have moved since."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from edgesim.scenario.file_references import are_alike, without_folders
from edgesim.scenario.plain import value_of


def with_files_of(
    scenario: Mapping[str, Any],
    digests: Mapping[str, str],
    other: Mapping[str, Any],
    digest_of: Callable[[str, str], str | None],
) -> Mapping[str, Any]:
    """A scenario that names own files as another one does, where their contents are the same.

    Args:
        scenario: as plain values.
        digests: of its own parts by key.
        other: the other scenario, as plain values.
        digest_of: digest of the other's part, by its key and its reference.
    """
    found = deepcopy(dict(scenario))
    for key, digest in digests.items():
        here, there = value_of(found, key), value_of(other, key)
        if here != there and are_alike(here, there) and digest_of(key, there) == digest:
            section, _, name = key.rpartition(".")
            value_of(found, section)[name] = there
    return found


def identity(cell: Mapping[str, Any]) -> str:
    """What is the same of a cell in sweep.json wherever its own files are."""
    return json.dumps([without_folders(cell["scenario"], ""), cell["own_parts"]], sort_keys=True)
