"""Cells of a sweep on a Ray cluster, as many at once as it has CPUs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import astuple
from io import StringIO
from typing import Any

from rich.console import Console

from edgesim.errors import EdgesimError
from edgesim.storage.store import Store
from edgesim.sweeps.directory import is_finished
from edgesim.sweeps.pool import Event, Task


def run_tasks_on_cluster(
    tasks: Sequence[Task],
    store: Store,
    tell: Callable[[Event], None],
    address: str,
    num_workers: int | None = None,
) -> None:
    """Run all cells; one that fails does not stop the others.

    Args:
        tasks: the cells.
        store: folder of the sweep, which all nodes must reach.
        tell: called with what happens, in the thread of the caller.
        address: of a running Ray cluster.
        num_workers: cells at once; None: as many as the cluster has CPUs.

    Raises:
        FleetError: there is no cluster at the address, or a node lacks what cells need.
    """
    if not tasks:
        return
    from edgesim.fleet.environment import quiet_ray

    quiet_ray()
    from edgesim.fleet.on_ray.calls import calls_on_cluster  # loads Ray

    arguments = {task.name: astuple(task) for task in tasks}
    console = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
    for name, kind, found in calls_on_cluster(address, run_there, arguments, console, num_workers):
        if kind == "begun":
            tell(Event(name, "begun"))
        elif kind == "failed":
            said = str(found) if isinstance(found, EdgesimError) else _first_line(found)
            tell(Event(name, "failed", {"text": said}))
        else:
            for text in found["warnings"]:
                tell(Event(name, "warning", {"text": text}))
            tell(_ended(name, found["summary"], store))


def run_there(
    name: str, scenario: str, place: str, known: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Run a cell, or resume its run; return its summary and what it warned of."""
    from edgesim.sweeps.worker import Events, run_cell

    collector = _Collector()
    logging.getLogger("edgesim").addHandler(collector)
    try:
        summary = run_cell(name, scenario, place, known, Events(StringIO()))
    finally:
        logging.getLogger("edgesim").removeHandler(collector)
    return {"summary": summary, "warnings": collector.texts}


class _Collector(logging.Handler):
    """Keeps the texts of warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def _ended(name: str, summary: dict[str, Any], store: Store) -> Event:
    if is_finished(store, name):
        return Event(name, "done", {"summary": summary})
    text = (
        f"it ended on a node whose {store.url} is another folder than here; name one by --out that "
        "all nodes reach: a shared path, or s3://bucket/sweep"
    )
    return Event(name, "failed", {"text": text})


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
