"""The files of one run: parts, snapshots, checkpoints while it runs, tables when it has ended.

    run.json       format, version of edgesim, digest of what is trained
    scenario.yaml  environment.json  rounds.parquet  messages.parquet  evaluations.parquet
    devices.parquet  summary.json  models/device-*.npz: final x, u and local statistics
    parts/         by device: rounds from one on, and the messages sent in them, until the run ends
    checkpoints/   by device: what it goes on from, until the run ends
    snapshots/     models that wait to be evaluated
    run.lock       or leases/: held by the process that is at it

On this machine or wherever `edgesim.storage` reaches. Readers never see half a file, and writing
the same part again replaces it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from io import BytesIO
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from edgesim.errors import EdgesimError
from edgesim.fleet.part_merge import Part, merge_parts
from edgesim.lease import Fence, Holder, Lease
from edgesim.records import (
    FREE_ROUNDS,
    MESSAGES,
    ROUNDS,
    VIRTUAL_MESSAGES,
    VIRTUAL_ROUNDS,
    Column,
    arrow_schema,
    columns_that_hold,
)
from edgesim.reports import RoundReport
from edgesim.snapshot import Snapshot
from edgesim.storage import Store

FORMAT_VERSION = 1
"""Of the directory; a newer one is not gone on with."""

_LOCK_FLAGS = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

# As this module pads numbers: a file of another name is not of the run.
_ROUND, _DEVICE = (rf"(\d{{{digits}}}|[1-9]\d{{{digits},}})" for digits in (9, 6))
_NUMBERED = re.compile(
    rf"checkpoints/device-{_DEVICE}/round-{_ROUND}\.ckpt"
    rf"|parts/device-{_DEVICE}/(rounds|messages)-{_ROUND}\.parquet"
    rf"|snapshots/round-{_ROUND}-device-{_DEVICE}\.npz"
)


class RunDirectoryError(EdgesimError, ValueError):
    """A folder that can't be a run's, or is none."""


class RunDirectory:
    """Paths and writers of one run; holds no state but its place, so any process may have its own.

    All methods raise `StorageError` if the place can't be written or read, and writers `LeaseError`
    if another process has gone on with the run.

    Args:
        place: path, URI or store; `create` makes it.
        holder: for whom to write; None if nobody else can be at it.

    Attributes:
        holder: the same.
    """

    def __init__(self, place: str | Path | Store, holder: Holder | None = None) -> None:
        self._store, self.holder = Store.at(place), holder
        if holder is not None:
            self._store = self._store.guarded(Fence(self._store, holder).check)

    @classmethod
    def create(cls, place: str | Path | Store, run_digest: str = "") -> RunDirectory:
        """Make the directory of a new run.

        Args:
            place: where.
            run_digest: names what is trained, with what.

        Raises:
            RunDirectoryError: it holds something already.
        """
        cls.check_free(place)
        directory = cls(place)
        for folder in ("parts", "checkpoints", "snapshots", "models"):
            directory._store.child(folder).make()
        about = {"format": FORMAT_VERSION, "edgesim": version("edgesim"), "run_digest": run_digest}
        directory.write_json("run.json", about)
        return directory

    @staticmethod
    def check_free(place: str | Path | Store) -> None:
        """Make nothing yet.

        Raises:
            RunDirectoryError: the place holds something already.
        """
        store = Store.at(place)
        if not store.is_free():
            raise RunDirectoryError(
                f"{store.url}: exists and is not an empty folder; choose another --out"
            )

    @classmethod
    def open_existing(cls, place: str | Path | Store) -> RunDirectory:
        """The directory of a run that was begun; `read_json("run.json")` says by what.

        Raises:
            RunDirectoryError: it is none, has a newer format, or its run had not got going.
        """
        directory = cls(place)
        if not directory.has("run.json"):
            raise RunDirectoryError(f"{directory.place}: no run directory; it lacks run.json")
        found = directory.read_json("run.json")
        format_version = found.get("format")
        if type(format_version) is not int or not isinstance(found.get("run_digest"), str):
            raise RunDirectoryError(f"{directory.place}: no run directory: run.json is another's")
        if format_version > FORMAT_VERSION:
            raise RunDirectoryError(
                f"{directory.place}: written by a newer edgesim ({found.get('edgesim')}, format "
                f"{format_version}; this one reads {FORMAT_VERSION}); use that one"
            )
        missing = [n for n in ("scenario.yaml", "environment.json") if not directory.has(n)]
        if missing:
            raise RunDirectoryError(
                f"{directory.place}: lacks {', '.join(missing)}: its run had not got going; start "
                "it anew with another --out"
            )
        return directory

    @contextmanager
    def held(self) -> Iterator[RunDirectory]:
        """Keep the run to this process: by a lock that ends with it, or a lease in an object store.

        Yields the directory for this process to write to, and all who have its `holder`.

        Raises:
            RunDirectoryError: another process is at it.
            LeaseError: the same, in an object store.
        """
        if not self._store.is_local:
            with Lease(self._store) as lease:
                yield RunDirectory(self._store, lease.holder)
            return
        path = self.path / "run.lock"
        try:
            descriptor = os.open(path, _LOCK_FLAGS, 0o600)
        except OSError as error:
            raise RunDirectoryError(
                f"{path}: can't be opened ({error.strerror}); see to permissions there, and remove "
                "it if it is no file"
            ) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RunDirectoryError(
                    f"{self.place}: this run is still going on in another process; wait for it, "
                    "or end that one first"
                ) from error
            except OSError as error:
                raise RunDirectoryError(
                    f"{path}: can't be locked ({error.strerror}); choose a file system that knows "
                    "locks, or an object store"
                ) from error
            yield self
            path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)

    @property
    def place(self) -> str:
        """Path or URI of the directory."""
        return self._store.url

    @property
    def path(self) -> Path:
        """The directory on this machine.

        Raises:
            StorageError: it is elsewhere.
        """
        return self._store.path

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return self._store.exists(name)

    def sweep_unfinished(self) -> None:
        """Remove what writers left that were killed."""
        self._store.sweep()

    # --- files by name

    def write_text(self, name: str, text: str) -> None:
        """Write a text file."""
        self._store.write(name, text.encode("utf-8"))

    def read_text(self, name: str) -> str:
        """Read a text file.

        Raises:
            RunDirectoryError: it is no text.
        """
        try:
            return self._store.read(name).decode("utf-8")
        except UnicodeDecodeError as error:
            raise RunDirectoryError(f"{self.place}/{name}: damaged: it is no text") from error

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file; NaN and infinity are refused."""
        self.write_text(name, json.dumps(content, indent=2, allow_nan=False) + "\n")

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a JSON file back.

        Raises:
            RunDirectoryError: it is none.
        """
        try:
            content = json.loads(self.read_text(name))
        except json.JSONDecodeError as error:
            raise RunDirectoryError(f"{self.place}/{name}: damaged: {error}") from error
        if not isinstance(content, dict):
            raise RunDirectoryError(f"{self.place}/{name}: damaged: it holds no keys")
        return content

    def write_table(
        self, name: str, rows: Sequence[Mapping[str, Any]], columns: tuple[Column, ...]
    ) -> None:
        """Write a Parquet table of rows that hold every column."""
        self._store.write(name, _parquet(rows, columns))

    def read_table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a Parquet table back, or some columns of it.

        Raises:
            RunDirectoryError: it is none.
        """
        try:
            return pq.ParquetFile(pa.BufferReader(self._store.read(name))).read(columns)
        except pa.ArrowInvalid as error:
            raise RunDirectoryError(f"{self.place}/{name}: damaged: {error}") from error

    def read_rows(self, name: str) -> list[dict[str, Any]]:
        """Rows of a Parquet table; none if it is not there."""
        return self.read_table(name).to_pylist() if self.has(name) else []

    # --- rounds

    def write_rounds(self, device: int, reports: Sequence[RoundReport]) -> None:
        """Write consecutive rounds of one device as a part of rounds.parquet and messages.parquet.

        A part without messages has no file of them.
        """
        folder, name = _parts_of(device), f"{reports[0].round.round:09d}.parquet"
        messages = [asdict(message) for report in reports for message in report.messages]
        if messages:
            columns = columns_that_hold(MESSAGES, VIRTUAL_MESSAGES, messages[0])
            data = _parquet(messages, columns)
            self._store.write(f"{folder}/messages-{name}", data, durable=False)
        rounds = [asdict(report.round) for report in reports]
        columns = columns_that_hold(ROUNDS, VIRTUAL_ROUNDS + FREE_ROUNDS, rounds[0])
        self._store.write(f"{folder}/rounds-{name}", _parquet(rounds, columns), durable=False)

    def drop_parts_from(self, device: int, round_index: int) -> None:
        """Remove the parts of a device that begin at a round or later."""
        names = self._own_names(f"{_parts_of(device)}/*-*.parquet")
        self._store.delete(name for name in names if _number(name) >= round_index)

    def merge_rounds(self, *, keep_parts: bool = False) -> None:
        """Join all parts to rounds.parquet and messages.parquet, in order.

        Args:
            keep_parts: the run may yet be gone on with; otherwise `drop_recovery` follows.
        """
        # The last of each order tells apart who acted for one address in rounds of one number.
        self._merge("rounds", ROUNDS, ("round", "device"))
        self._merge("messages", MESSAGES, ("round", "sender", "receiver", "device"))
        if not keep_parts:
            self.drop_recovery()

    def _merge(self, table: str, columns: tuple[Column, ...], order: Sequence[str]) -> None:
        names = self._own_names(f"parts/*/{table}-*.parquet")
        parts = [Part(_number(name), name) for name in sorted(names, key=_number)]
        with self._store.writer(f"{table}.parquet") as file:
            merge_parts(parts, self.read_table, order, arrow_schema(columns), file)

    # --- checkpoints

    def write_checkpoint(self, device: int, round_index: int, data: bytes) -> None:
        """Keep a device as it is after so many rounds.

        What is recorded of it up to there is on disk before, parts and snapshots: after a power cut
        they are there if the checkpoint is.
        """
        self._store.sync(_parts_of(device))
        self._store.sync("snapshots")
        self._store.write(_checkpoint_name(device, round_index), data)

    def checkpoint_rounds(self, device: int) -> list[int]:
        """Rounds after which the device was kept, increasing."""
        return sorted(map(_number, self._own_names(f"{_checkpoints_of(device)}/round-*.ckpt")))

    def read_checkpoint(self, device: int, round_index: int) -> bytes:
        """Read a checkpoint back; whether it is sound is for the reader to say."""
        return self._store.read(_checkpoint_name(device, round_index))

    def drop_checkpoints(self, device: int, rounds: Sequence[int]) -> None:
        """Remove checkpoints of a device."""
        self._store.delete(_checkpoint_name(device, round_index) for round_index in rounds)

    def drop_recovery(self) -> None:
        """Remove what only an unfinished run needs.

        It can't be gone on with afterwards, nor if this is interrupted: its results must be there.
        """
        self._store.delete_tree("checkpoints")
        self._store.delete_tree("parts")

    # --- models

    def write_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a model until it is evaluated."""
        time_s = nan if snapshot.virtual_time_s is None else snapshot.virtual_time_s
        file = BytesIO()
        np.savez(
            file,
            allow_pickle=False,
            device=snapshot.device,
            round_index=snapshot.round_index,
            rounds_done=snapshot.rounds_done,
            x=snapshot.x.cpu().numpy(),
            u=snapshot.u,
            buffers=snapshot.buffers.cpu().numpy(),
            virtual_time_s=time_s,
        )
        name = _snapshot_name(snapshot.round_index, f"{snapshot.device:06d}")
        self._store.write(name, file.getvalue(), durable=False)

    def has_snapshots(self, round_index: int, num_devices: int) -> bool:
        """Whether all devices have left their model after `round_index` rounds."""
        return not self._missing_snapshots(round_index, num_devices)

    def refuse_missing_snapshots(self, round_index: int, num_devices: int) -> None:
        """Say which models after `round_index` rounds are not there.

        Raises:
            RunDirectoryError: always.
        """
        first, *others = self._missing_snapshots(round_index, num_devices)
        and_others = f" and {len(others)} like it" if others else ""
        raise RunDirectoryError(
            f"{self.place}/{first}{and_others}: missing: evaluation {round_index} can't be made; "
            f"bring it back from a copy, or let `edgesim resume {self.place}` train it again"
        )

    def _missing_snapshots(self, round_index: int, num_devices: int) -> list[str]:
        """Names of the models after `round_index` rounds that are not there."""
        there = set(self._store.names(_snapshot_name(round_index, "*")))
        wanted = (_snapshot_name(round_index, f"{device:06d}") for device in range(num_devices))
        return [name for name in wanted if name not in there]

    def read_snapshot(self, round_index: int, device: int) -> Snapshot:
        """Read a model back."""
        return self._read_model(_snapshot_name(round_index, f"{device:06d}"))

    def read_final_model(self, round_index: int, device: int) -> Snapshot:
        """The model of the last round, which may be among those that are kept already."""
        name = _snapshot_name(round_index, f"{device:06d}")
        return self._read_model(name if self.has(name) else _final_model_name(device))

    def _read_model(self, name: str) -> Snapshot:
        with np.load(BytesIO(self._store.read(name)), allow_pickle=False) as file:
            virtual_time_s = float(file["virtual_time_s"])
            return Snapshot(
                device=int(file["device"]),
                round_index=int(file["round_index"]),
                rounds_done=int(file["rounds_done"]),
                x=torch.from_numpy(file["x"]),
                u=float(file["u"]),
                buffers=torch.from_numpy(file["buffers"]),
                virtual_time_s=None if isnan(virtual_time_s) else virtual_time_s,
            )

    def drop_snapshots(self, round_index: int) -> None:
        """Remove the models of a round, once evaluated."""
        self._store.delete(self._own_names(_snapshot_name(round_index, "*")))

    def keep_final_models(self, round_index: int) -> None:
        """Keep the models of the last round as models/device-<index>.npz and end snapshots/."""
        for name in self._own_names(_snapshot_name(round_index, "*")):
            self._store.move(name, _final_model_name(_number(name)))
        self._store.delete_tree("snapshots")

    def _own_names(self, pattern: str) -> list[str]:
        """Names of files that match a pattern and are named as this module names them."""
        return [name for name in self._store.names(pattern) if _NUMBERED.fullmatch(name)]


def _parts_of(device: int) -> str:
    return f"parts/device-{device:06d}"


def _checkpoints_of(device: int) -> str:
    return f"checkpoints/device-{device:06d}"


def _checkpoint_name(device: int, round_index: int) -> str:
    return f"{_checkpoints_of(device)}/round-{round_index:09d}.ckpt"


def _snapshot_name(round_index: int, device: str) -> str:
    return f"snapshots/round-{round_index:09d}-device-{device}.npz"


def _final_model_name(device: int) -> str:
    return f"models/device-{device:06d}.npz"


def _number(name: str) -> int:
    """The number at the end of the name of one of the run's files."""
    return int(re.split(r"\D+", name)[-2])


def _parquet(rows: Sequence[Mapping[str, Any]], columns: tuple[Column, ...]) -> bytes:
    file = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(rows), schema=arrow_schema(columns)), file)
    data: bytes = file.getvalue().to_pybytes()
    return data
