"""Reads a run directory back, with pandas; needs neither torch nor Ray."""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesim.errors import EdgesimError
from edgesim.storage import Store

if TYPE_CHECKING:
    import pandas as pd


class ResultsError(EdgesimError, ValueError):
    """A folder that is no finished run."""


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run; columns as in `edgesim.records`.

    Attributes:
        place: path or URI of the run directory.
        rounds: one row per device and round, ordered by round and device.
        messages: one row per message, ordered by round, sender and receiver.
        evaluations: one row per evaluated model.
        devices: one row per device.
        summary: the figures of the closing table.
    """

    place: str
    rounds: pd.DataFrame
    messages: pd.DataFrame
    evaluations: pd.DataFrame
    devices: pd.DataFrame
    summary: dict[str, Any]

    @property
    def path(self) -> Path:
        """The run directory on this machine.

        Raises:
            StorageError: it is elsewhere.
        """
        return Store.at(self.place).path


def load_run(place: str | Path) -> Run:
    """Load the tables of a finished run.

    Args:
        place: run directory; a path, or a URI that fsspec knows.

    Raises:
        ResultsError: a table is missing: the run has not ended, or the folder is none of a run.
        StorageError: the place can't be read.
    """
    import pandas as pd

    store = Store.at(place)
    tables = ("rounds.parquet", "messages.parquet", "evaluations.parquet", "devices.parquet")
    wanted = (*tables, "summary.json")
    missing = [name for name in wanted if not store.exists(name)]
    if missing:
        raise ResultsError(f"{store.url}: no finished run; it lacks {', '.join(missing)}")
    rounds, messages, evaluations, devices = (
        pd.read_parquet(BytesIO(store.read(name))) for name in tables
    )
    summary = json.loads(store.read("summary.json"))
    return Run(store.url, rounds, messages, evaluations, devices, summary)
