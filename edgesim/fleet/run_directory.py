"""The files of one run: parts and snapshots while it runs, tables when it has ended.

    scenario.yaml  environment.json  rounds.parquet  messages.parquet  evaluations.parquet
    devices.parquet  summary.json  models/device-*.npz: final x, u and local statistics
    parts/         rounds of one device in one range of rounds, with the messages sent in them,
                   until they are merged
    snapshots/     models that wait to be evaluated

Every file is written beside its place, synced and renamed: readers never see half a file, and
writing the same part again replaces it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from math import isnan, nan
from pathlib import Path
from threading import get_ident
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from edgesim.device import RoundReport
from edgesim.errors import EdgesimError
from edgesim.records import (
    MESSAGES,
    ROUNDS,
    VIRTUAL_MESSAGES,
    VIRTUAL_ROUNDS,
    Column,
    arrow_schema,
    columns_that_hold,
)
from edgesim.snapshot import Snapshot


class RunDirectoryError(EdgesimError, ValueError):
    """A run directory that can't be made or written."""


class RunDirectory:
    """Paths and writers of one run; holds no state but its path, so any process may have its own.

    Args:
        path: the directory; `create` makes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._parts = path / "parts"
        self._snapshots = path / "snapshots"

    @classmethod
    def create(cls, path: Path) -> RunDirectory:
        """Make the directory.

        Raises:
            RunDirectoryError: it holds something already, or can't be made.
        """
        cls.check_free(path)
        try:
            for folder in (path / "parts", path / "snapshots", path / "models"):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunDirectoryError(
                f"{path}: can't be made ({error.strerror}); choose another --out"
            ) from error
        return cls(path.resolve())

    @staticmethod
    def check_free(path: Path) -> None:
        """Make nothing yet.

        Raises:
            RunDirectoryError: the path holds something already.
        """
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise RunDirectoryError(
                f"{path}: exists and is not an empty folder; choose another --out"
            )

    def write_text(self, name: str, text: str) -> None:
        """Write a text file."""
        with _atomic(self.path / name) as file:
            file.write(text.encode("utf-8"))

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file; NaN and infinity are refused."""
        self.write_text(name, json.dumps(content, indent=2, allow_nan=False) + "\n")

    def write_table(
        self, name: str, rows: Sequence[Mapping[str, Any]], columns: tuple[Column, ...]
    ) -> None:
        """Write a Parquet table of rows that hold every column."""
        table = pa.Table.from_pylist(list(rows), schema=arrow_schema(columns))
        with _atomic(self.path / name) as file:
            pq.write_table(table, file)

    def write_rounds(self, device: int, reports: Sequence[RoundReport]) -> None:
        """Write consecutive rounds of one device as a part of rounds.parquet and messages.parquet.

        A part without messages has no file of them.
        """
        name = f"device-{device:06d}-round-{reports[0].round.round:09d}.parquet"
        messages = [asdict(message) for report in reports for message in report.messages]
        if messages:
            columns = columns_that_hold(MESSAGES, VIRTUAL_MESSAGES, messages[0])
            self.write_table(f"parts/messages-{name}", messages, columns)
        rounds = [asdict(report.round) for report in reports]
        columns = columns_that_hold(ROUNDS, VIRTUAL_ROUNDS, rounds[0])
        self.write_table(f"parts/rounds-{name}", rounds, columns)

    def merge_rounds(self) -> None:
        """Join all parts to rounds.parquet and messages.parquet, in order, and remove them."""
        self._merge("rounds", ROUNDS, ("round", "device"))
        self._merge("messages", MESSAGES, ("round", "sender", "receiver"))
        shutil.rmtree(self._parts)

    def _merge(self, table: str, columns: tuple[Column, ...], order: Sequence[str]) -> None:
        parts = sorted(self._parts.glob(f"{table}-*.parquet"))
        tables = [pq.ParquetFile(part).read() for part in parts]
        tables = tables or [arrow_schema(columns).empty_table()]
        merged = pa.concat_tables(tables).sort_by([(key, "ascending") for key in order])
        with _atomic(self.path / f"{table}.parquet") as file:
            pq.write_table(merged, file)

    def write_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a model until it is evaluated."""
        self._write_model(
            self._snapshots / _snapshot_name(snapshot.round_index, snapshot.device), snapshot
        )

    def has_snapshots(self, round_index: int, num_devices: int) -> bool:
        """Whether all devices have left their model after `round_index` rounds."""
        found = sum(1 for _ in self._snapshots.glob(_snapshot_name(round_index, None)))
        return found == num_devices

    def read_snapshot(self, round_index: int, device: int) -> Snapshot:
        """Read a model back."""
        return _read_model(self._snapshots / _snapshot_name(round_index, device))

    def drop_snapshots(self, round_index: int) -> None:
        """Remove the models of a round, once evaluated."""
        for path in self._snapshots.glob(_snapshot_name(round_index, None)):
            path.unlink()

    def keep_final_models(self, round_index: int) -> None:
        """Keep the models of the last round as models/device-<index>.npz and end snapshots/."""
        for path in self._snapshots.glob(_snapshot_name(round_index, None)):
            device = _read_model(path).device
            path.replace(self.path / "models" / f"device-{device:06d}.npz")
        shutil.rmtree(self._snapshots)

    def _write_model(self, path: Path, snapshot: Snapshot) -> None:
        time_s = nan if snapshot.virtual_time_s is None else snapshot.virtual_time_s
        with _atomic(path) as file:
            np.savez(
                file,
                allow_pickle=False,
                device=snapshot.device,
                round_index=snapshot.round_index,
                x=snapshot.x.cpu().numpy(),
                u=snapshot.u,
                buffers=snapshot.buffers.cpu().numpy(),
                virtual_time_s=time_s,
            )


def _read_model(path: Path) -> Snapshot:
    with np.load(path, allow_pickle=False) as file:
        virtual_time_s = float(file["virtual_time_s"])
        return Snapshot(
            device=int(file["device"]),
            round_index=int(file["round_index"]),
            x=torch.from_numpy(file["x"]),
            u=float(file["u"]),
            buffers=torch.from_numpy(file["buffers"]),
            virtual_time_s=None if isnan(virtual_time_s) else virtual_time_s,
        )


def _snapshot_name(round_index: int, device: int | None) -> str:
    return f"round-{round_index:09d}-device-{'*' if device is None else f'{device:06d}'}.npz"


@contextmanager
def _atomic(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that takes its name only when it is complete and on disk.

    Raises:
        RunDirectoryError: the file system refused.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}-{get_ident()}.tmp")
    try:
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise RunDirectoryError(
            f"{path}: can't be written ({error.strerror}); see to space and permissions there"
        ) from error
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
