"""Reads a run directory back, with pandas; needs neither torch nor Ray."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesim.errors import EdgesimError

if TYPE_CHECKING:
    import pandas as pd


class ResultsError(EdgesimError, ValueError):
    """A folder that is no finished run."""


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run; columns as in `edgesim.records`.

    Attributes:
        path: the run directory.
        rounds: one row per device and round, ordered by round and device.
        messages: one row per message, ordered by round, sender and receiver.
        evaluations: one row per evaluated model.
        devices: one row per device.
        summary: the figures of the closing table.
    """

    path: Path
    rounds: pd.DataFrame
    messages: pd.DataFrame
    evaluations: pd.DataFrame
    devices: pd.DataFrame
    summary: dict[str, Any]


def load_run(path: str | Path) -> Run:
    """Load the tables of a finished run.

    Raises:
        ResultsError: a table is missing: the run has not ended, or the folder is none of a run.
    """
    import pandas as pd

    folder = Path(path)
    tables = ("rounds.parquet", "messages.parquet", "evaluations.parquet", "devices.parquet")
    wanted = (*tables, "summary.json")
    missing = [name for name in wanted if not (folder / name).is_file()]
    if missing:
        raise ResultsError(f"{folder}: no finished run; it lacks {', '.join(missing)}")
    rounds, messages, evaluations, devices = (pd.read_parquet(folder / name) for name in tables)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return Run(folder, rounds, messages, evaluations, devices, summary)
