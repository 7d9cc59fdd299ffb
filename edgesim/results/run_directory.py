"""The files of one run: parts, snapshots and checkpoints during the run, tables after it.

    run.json       format, version of edgesim, digest of what is trained
    scenario.yaml  environment.json  rounds.parquet  messages.parquet  evaluations.parquet
    devices.parquet  summary.json  models/device-*.npz: final x, u and local statistics
    parts/         rounds and messages of each device, in ranges of rounds, until the run ends
    checkpoints/   checkpoints of each device, until the run ends
    snapshots/     models that wait to be evaluated
    run.lock       or leases/: held by the process that works on the run

A run directory is on this machine, or wherever `edgesim.storage.store` reaches. Readers never see
an incomplete file. Writing the same part again replaces it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from edgesim.program import program
from edgesim.results.arrow_table import table_of
from edgesim.results.columns import (
    BATTERY_ROUNDS,
    FREE_ROUNDS,
    MESSAGES,
    ROUNDS,
    VIRTUAL_MESSAGES,
    VIRTUAL_ROUNDS,
    Column,
    RoundReport,
    arrow_schema,
    columns_that_hold,
    row_of,
    with_names,
)
from edgesim.results.part_merge import Part, merge_parts
from edgesim.results.run_files import ABOUT, FIRST_FILES, PARTS, RunDirectoryError, number_of
from edgesim.results.run_models import RunModels
from edgesim.storage.lease import Fence, Holder, Lease
from edgesim.storage.space import WaitForSpace
from edgesim.storage.store import Store

_LOCK_FLAGS = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class RunDirectory(RunModels):
    """Paths, readers and writers of one run. It has no state, so each process may have its own.

    All methods raise `StorageError` if the place cannot be read or written. Writers raise
    `LeaseError` if another process has taken over the run.

    Args:
        place: path, URI or store; `create` makes it.
        holder: holder of the run's lease, in whose name to write; None where no lease is needed.

    Attributes:
        holder: holder of the run's lease.
    """

    def __init__(self, place: str | Path | Store, holder: Holder | None = None) -> None:
        store, self.holder = Store.at(place), holder
        super().__init__(store if holder is None else store.guarded(Fence(store, holder).check))

    @classmethod
    def create(cls, place: str | Path | Store, run_digest: str = "") -> RunDirectory:
        """Make the directory of a new run.

        Args:
            place: path, URI or store of the directory.
            run_digest: digest of the scenario and of all that its result depends on.

        Raises:
            RunDirectoryError: the place is not empty.
        """
        cls.check_free(place)
        directory = cls(place)
        for folder in ("parts", "checkpoints", "snapshots", "models"):
            directory._store.child(folder).make()
        directory.begin(run_digest)
        return directory

    @staticmethod
    def check_free(place: str | Path | Store) -> None:
        """Check that the place of a new run is empty; make nothing yet.

        Raises:
            RunDirectoryError: the place is not empty.
        """
        store = Store.at(place)
        if store.is_free():
            return
        if store.exists(ABOUT):
            _check_begun(store)
            raise RunDirectoryError(
                f"{store.url}: holds a run already; {program()} resume {quote(store.url)} goes on "
                "with it, and another --out begins a new one"
            )
        raise RunDirectoryError(
            f"{store.url}: exists and is not an empty folder; choose another --out"
        )

    @classmethod
    def open_existing(cls, place: str | Path | Store) -> RunDirectory:
        """Open the directory of a run that has begun.

        Raises:
            RunDirectoryError: the place is no run directory, has another format, or lacks files.
        """
        directory = cls(place)
        _ = directory.run_digest
        missing = [name for name in FIRST_FILES if not directory.has(name)]
        if missing:
            raise RunDirectoryError(
                f"{directory.place}: lacks {', '.join(missing)}: they are lost, or the run ended "
                "before it wrote them; bring them back from a copy, or start the run anew with "
                "another --out"
            )
        return directory

    @contextmanager
    def held(self) -> Iterator[RunDirectory]:
        """Reserve the run for this process, by a file lock or by a lease in an object store.

        Yields the directory to which this process, and every process with its `holder`, may write.

        Raises:
            RunDirectoryError: another process works on the run.
            LeaseError: another process works on the run, in an object store.
        """
        if not self._store.is_local:
            with Lease(self._store) as lease:
                yield RunDirectory(self._store, lease.holder)
            return
        path = self.path / "run.lock"
        descriptor = self._lock(path)
        try:
            yield self
            path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)

    def _lock(self, path: Path) -> int:
        """Lock a file; the descriptor that holds the lock.

        Raises:
            RunDirectoryError: another process has it, or it can't be locked.
        """
        while True:
            try:
                descriptor = os.open(path, _LOCK_FLAGS, 0o600)
            except OSError as error:
                raise RunDirectoryError(
                    f"{path}: can't be opened ({error.strerror}); see to permissions there, and "
                    "remove it if it is no file"
                ) from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Its last holder may have removed it just before: then it locks nothing.
                if _is_there(path, descriptor):
                    return descriptor
            except BlockingIOError as error:
                os.close(descriptor)
                raise RunDirectoryError(
                    f"{self.place}: this run is still going on in another process; wait for it, "
                    "or end that one first"
                ) from error
            except OSError as error:
                os.close(descriptor)
                raise RunDirectoryError(
                    f"{path}: can't be locked ({error.strerror}); choose a file system that knows "
                    "locks, or an object store"
                ) from error
            os.close(descriptor)

    def patient(self, space: WaitForSpace) -> RunDirectory:
        """The same directory, whose writers wait while its file system is full."""
        found = RunDirectory(self._store.patient(space))
        found.holder = self.holder  # the store checks it already
        return found

    def stop_waiting(self) -> None:
        """Let writers that wait for space fail now, and others at once."""
        self._store.stop_waiting()

    @property
    def path(self) -> Path:
        """Path of the directory on this machine.

        Raises:
            StorageError: the directory is not on this machine.
        """
        return self._store.path

    def sweep_unfinished(self) -> None:
        """Remove incomplete files of writers that were killed."""
        self._store.sweep()

    # --- rounds

    def write_rounds(self, device: int, reports: Sequence[RoundReport]) -> None:
        """Write consecutive rounds of one device as a part of rounds.parquet and messages.parquet.

        A part without messages has no file of messages.
        """
        folder, name = _parts_of(device), f"{reports[0].round.round:09d}.parquet"
        messages = [row_of(message) for report in reports for message in report.messages]
        if messages:
            columns = columns_that_hold(MESSAGES, VIRTUAL_MESSAGES, messages[0])
            self.write_table(f"{folder}/messages-{name}", messages, columns, durable=False)
        rounds = [row_of(report.round) for report in reports]
        columns = columns_that_hold(
            ROUNDS, VIRTUAL_ROUNDS + BATTERY_ROUNDS + FREE_ROUNDS, rounds[0]
        )
        self.write_table(f"{folder}/rounds-{name}", rounds, columns, durable=False)

    def drop_parts_from(self, device: int, round_index: int) -> None:
        """Remove the parts of a device that begin at a round or later."""
        names = self.own_names(f"{_parts_of(device)}/*-*.parquet")
        # The last parts go first, so that an interruption leaves no gap between rounds. Within a
        # part, "rounds" is removed before "messages", since rounds without messages are incomplete.
        names.sort(key=lambda name: (number_of(name), name), reverse=True)
        self._store.delete(name for name in names if number_of(name) >= round_index)

    def merge_rounds(self, names: Sequence[str] = ()) -> None:
        """Join all parts to rounds.parquet and messages.parquet, in order; the parts stay.

        Args:
            names: names of the devices, if they have names.
        """
        # `device` stands last: it separates devices that acted for one address in the same round.
        self._merge("rounds", ROUNDS, ("round", "device"), names)
        self._merge("messages", MESSAGES, ("round", "sender", "receiver", "device"), names)

    def _merge(
        self, table: str, columns: tuple[Column, ...], order: Sequence[str], names: Sequence[str]
    ) -> None:
        parts = [Part(number_of(name), name) for name in self.part_names(table)]
        empty = with_names(table_of((), arrow_schema(columns)), names).schema

        def merge() -> None:
            with self.table_file(f"{table}.parquet") as file:
                merge_parts(
                    parts, lambda name: with_names(self.read_table(name), names), order, empty, file
                )

        self._store.repeated(merge)

    def check_records(
        self, device: int, round_index: int, num_rows: int, evaluations: Sequence[int]
    ) -> None:
        """Make sure that all records and models of a device before a checkpoint are there.

        Args:
            device: number of the device.
            round_index: round of the checkpoint.
            num_rows: number of rounds that the device had recorded by then.
            evaluations: numbers of the evaluations for which it had left its model, the first ones.

        Raises:
            RunDirectoryError: a file is missing or damaged; the message names it.
        """
        found = 0
        for name in self.own_names(f"{_parts_of(device)}/rounds-*.parquet"):
            if number_of(name) < round_index:
                rounds = self.read_table(name, ["messages_sent"])["messages_sent"]
                found += len(rounds)
                self._check_messages(name.replace("rounds-", "messages-"), sum(rounds.to_pylist()))
        if found != num_rows:
            raise RunDirectoryError(
                f"{self.place}/{_parts_of(device)}: files are missing: of {num_rows} rounds before "
                f"round {round_index} it holds {found}"
            )
        for place in reversed(range(len(evaluations))):
            try:
                self.check_model(evaluations[place], device)
            except RunDirectoryError:
                if self.num_evaluated() <= place:
                    raise
                break  # this evaluation and all before it are done, so their models are not needed

    def _check_messages(self, name: str, num_rows: int) -> None:
        found = self.read_table(name, []).num_rows if self.has(name) else 0
        if found != num_rows:
            raise RunDirectoryError(
                f"{self.place}/{name}: missing or incomplete: it holds {found} of {num_rows} "
                "messages"
            )

    # --- checkpoints

    def write_checkpoint(self, device: int, round_index: int, data: bytes) -> None:
        """Write the checkpoint of a device after so many rounds.

        Parts and snapshots of the device are synced to disk first. So they survive a power cut if
        the checkpoint does.
        """
        self._store.sync(_parts_of(device))
        self._store.sync("snapshots")
        self._store.write(_checkpoint_name(device, round_index), data)

    def checkpoint_rounds(self, device: int) -> list[int]:
        """Rounds after which the device has checkpoints, increasing."""
        return sorted(map(number_of, self.own_names(f"{_checkpoints_of(device)}/round-*.ckpt")))

    def all_checkpoint_rounds(self, num_devices: int) -> list[list[int]]:
        """The same of each device, by one look at the folder."""
        found: dict[int, list[int]] = {device: [] for device in range(num_devices)}
        for name in sorted(self.own_names("checkpoints/*/round-*.ckpt")):
            device = int(name.split("/")[1].removeprefix("device-"))
            found.setdefault(device, []).append(number_of(name))
        return list(found.values())

    def newest_checkpoints(self, num_devices: int) -> list[int]:
        """Round of the newest checkpoint of each device; 0 for one that has none."""
        return [max(rounds, default=0) for rounds in self.all_checkpoint_rounds(num_devices)]

    def read_checkpoint(self, device: int, round_index: int) -> bytes:
        """Content of a checkpoint; the caller checks whether it is sound."""
        return self._store.read(_checkpoint_name(device, round_index))

    def checkpoint_place(self, device: int, round_index: int) -> str:
        """Path or URI of a checkpoint, for messages."""
        return f"{self.place}/{_checkpoint_name(device, round_index)}"

    def drop_checkpoints(self, device: int, rounds: Sequence[int]) -> None:
        """Remove checkpoints of a device."""
        self._store.delete(_checkpoint_name(device, round_index) for round_index in rounds)

    def drop_recovery(self) -> None:
        """Remove the files that only an unfinished run needs.

        The run cannot be resumed afterwards, nor after an interruption of this call. So its results
        must be complete before.
        """
        self._store.delete_tree("checkpoints")
        self._store.delete_tree("parts")

    # --- evaluations

    def num_evaluated(self) -> int:
        """Number of evaluations in evaluations.parquet; these are the first ones, in order."""
        if not self.has("evaluations.parquet"):
            return 0
        models: list[str] = self.read_table("evaluations.parquet", ["model"])["model"].to_pylist()
        return models.count("consensus")


def _check_begun(store: Store) -> None:
    """Refuse a folder whose run can't be resumed, in other words than that of a run that can be.

    Raises:
        RunDirectoryError: the start of its run failed, or files of the run are lost.
    """
    missing = [name for name in FIRST_FILES if not store.exists(name)]
    if missing and store.names(PARTS):
        raise RunDirectoryError(
            f"{store.url}: holds a run that lacks {', '.join(missing)}; choose another --out"
        )
    if missing:
        raise RunDirectoryError(
            f"{store.url}: holds a run whose start failed; remove the folder, or choose another "
            "--out"
        )


def _is_there(path: Path, descriptor: int) -> bool:
    """Whether an open file still has its name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _parts_of(device: int) -> str:
    return f"parts/device-{device:06d}"


def _checkpoints_of(device: int) -> str:
    return f"checkpoints/device-{device:06d}"


def _checkpoint_name(device: int, round_index: int) -> str:
    return f"{_checkpoints_of(device)}/round-{round_index:09d}.ckpt"
