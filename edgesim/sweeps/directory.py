"""The folder of a sweep: sweep.json says which cells it has, each in a folder of its own.

sweep.json     format, keys, settings and scenario of each cell
failures.json  cells that failed when the sweep was last run, each with its reason
<cell>/        the run directory of a cell
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from edgesim.errors import EdgesimError
from edgesim.results.run_files import SEAL_KEY, SWEEP
from edgesim.scenario.own_parts import own_parts
from edgesim.scenario.sweep import Sweep
from edgesim.storage.seal import BLANK, SealError, check_seal, sealed
from edgesim.storage.store import Store
from edgesim.sweeps.moved_parts import identity, with_files_of

NOT_FINISHED = "not finished"
"""Reason of a cell that did not fail."""

FORMAT = 1
PLAN, FAILURES = SWEEP, "failures.json"
_NO_RUN = "0" * 16  # a seal names the run of its file
_SHOWN = 3  # differences that a message names


class SweepError(EdgesimError, ValueError):
    """A folder that is none of a sweep, or of another one; or a sweep without finished cells."""


def open_directory(place: str, sweep: Sweep, *, writes: bool = True) -> Store:
    """The folder of a sweep, made if it is not there.

    Args:
        place: path or URI of the folder.
        sweep: that it holds, or is to hold.
        writes: whether to make the folder and write sweep.json; otherwise nothing is written.

    Raises:
        SweepError: the folder holds something else, or a sweep with other cells.
        StorageError: the folder can't be read or written.
    """
    store = Store.at(place)
    plan = _plan(sweep)
    if store.exists(PLAN):
        if differences := list(_differences(read_plan(store), plan)):
            more = f" (and {len(differences) - _SHOWN} more)" if len(differences) > _SHOWN else ""
            raise SweepError(
                f"{store.url}: holds another sweep: {'; '.join(differences[:_SHOWN])}{more}; bring "
                "the file back to what it was, or name another --out"
            )
    elif not store.is_free():
        raise SweepError(f"{store.url}: is not empty and holds no sweep; name another --out")
    if writes:
        store.make()
        store.write(PLAN, sealed(_json({**plan, SEAL_KEY: BLANK}), _NO_RUN, PLAN))
    return store


def as_begun(sweep: Sweep, place: str) -> Sweep:
    """The sweep with the names that its folder has for its cells.

    Earlier versions named cells by the folders of own files too.

    Raises:
        SweepError, StorageError: the folder can't be read.
    """
    store = Store.at(place)
    there = read_plan(store)["cells"] if store.exists(PLAN) else {}
    wanted = _plan(sweep)["cells"]
    lost = {name: cell for name, cell in wanted.items() if name not in there}
    names: dict[str, list[str]] = {}  # several, where own files are alike
    for name in reversed([*there] if lost else []):
        if name not in wanted:
            names.setdefault(identity(there[name]), []).append(name)
    new = {
        name: found.pop() if (found := names.get(identity(cell))) else name
        for name, cell in lost.items()
    }
    cells = tuple(replace(cell, name=new.get(cell.name, cell.name)) for cell in sweep.cells)
    left_out = frozenset(new.get(name, name) for name in sweep.left_out)
    return replace(sweep, cells=cells, left_out=left_out)


def read_plan(store: Store) -> dict[str, Any]:
    """Content of sweep.json.

    Raises:
        SweepError: the folder is none of a sweep.
    """
    if not store.exists(PLAN):
        if store.is_free():
            raise SweepError(f"{store.url}: there is nothing; name the folder of a sweep")
        raise SweepError(f"{store.url}: no folder of a sweep; it lacks {PLAN}")
    try:
        plan = json.loads(data := store.read(PLAN))
        version = plan["format"]
        if SEAL_KEY in plan:  # earlier versions wrote none
            check_seal(data, _NO_RUN, PLAN)
        is_whole = version != FORMAT or _is_whole(plan)
    except (SealError, ValueError, KeyError, TypeError, RecursionError):
        is_whole = False
    if not is_whole:
        raise SweepError(f"{store.url}/{PLAN}: damaged; bring it back from a copy")
    if version != FORMAT:
        raise SweepError(
            f"{store.url}: has format {version}, but this edgesim reads {FORMAT}; use the edgesim "
            "that wrote it"
        )
    checked: dict[str, Any] = plan
    return checked


def _is_whole(plan: Mapping[str, Any]) -> bool:
    """Whether a plan has what `_plan` gives it."""
    return (
        isinstance(plan["name"], str)
        and isinstance(plan["keys"], list)
        and isinstance(plan["cells"], dict)
        and all(
            isinstance(cell, dict)
            and all(isinstance(cell[part], dict) for part in ("settings", "scenario", "own_parts"))
            for cell in plan["cells"].values()
        )
    )


def read_failures(store: Store) -> dict[str, str]:
    """Reasons of the cells that failed when the sweep was last run.

    Raises:
        SweepError: failures.json is damaged, or of another program.
    """
    if not store.exists(FAILURES):
        return {}
    try:
        failures = json.loads(store.read(FAILURES))
    except (ValueError, RecursionError):
        failures = None
    if not isinstance(failures, dict) or not all(isinstance(w, str) for w in failures.values()):
        raise SweepError(
            f"{store.url}/{FAILURES}: damaged, or of another program; remove it: `edgesim sweep` "
            "writes it anew"
        )
    return failures


def missing_cells(store: Store) -> dict[str, str]:
    """Cells that are not finished, each with its reason; none of a folder that is no sweep's.

    Raises:
        SweepError: a file of the sweep is damaged.
    """
    if not store.exists(PLAN):
        return {}
    cells, failures = read_plan(store)["cells"], read_failures(store)
    return {
        name: failures.get(name, NOT_FINISHED) for name in cells if not is_finished(store, name)
    }


def write_failures(store: Store, failures: Mapping[str, str]) -> None:
    """Keep which cells failed, and why."""
    store.write(FAILURES, _json(failures))


def is_finished(store: Store, cell: str) -> bool:
    """Whether the run of a cell has ended."""
    return store.exists(f"{cell}/summary.json")


def _plan(sweep: Sweep) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "name": sweep.name,
        "keys": list(sweep.keys),
        "cells": {
            cell.name: {
                "settings": dict(cell.settings),
                "scenario": cell.scenario.model_dump(mode="json"),
                "own_parts": {key: part.digest for key, part in own_parts(cell.scenario)},
            }
            for cell in sweep.cells
        },
    }


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """What a new plan changes of the old one; cells that it adds are no change."""
    here, there = json.loads(json.dumps(new["cells"])), old["cells"]
    gone = [name for name in there if name not in here]
    if gone:
        more = f" and {len(gone) - 1} other cells" if len(gone) > 1 else ""
        yield f"the file lacks {gone[0]}{more}"
    seen = set()
    for name in there:
        if name not in here:
            continue
        old, new = there[name], _with_files_of(here[name], there[name])
        for part in ("scenario", "own_parts"):
            for key, before, now in _changes(old[part], new[part], ""):
                if key not in seen:
                    seen.add(key)
                    yield f"{key} was {_shown(before)} there and is {_shown(now)} now"


def _with_files_of(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """A cell that names own files as another plan does, where their contents are the same."""
    known, parts = old["own_parts"], new["own_parts"]
    found = with_files_of(new["scenario"], parts, old["scenario"], lambda key, _: known.get(key))
    return {**new, "scenario": found}


def _changes(old: Any, new: Any, key: str) -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401
    """Keys with other values, each with both."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            inner = f"{key}.{name}" if key else name
            yield from _changes(old.get(name), new.get(name), inner)
    elif old != new:
        yield key, old, new


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()
