"""Files of a run in common formats, each with a checksum and the name of its run.

Each file is checked before it is parsed (`edgesim.storage.seal`). A damaged file, a file of another
run and a file under a wrong name are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import version
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any
from zipfile import ZipFile

from edgesim.errors import EdgesimError
from edgesim.results.arrow_table import table_of
from edgesim.results.columns import Column, arrow_schema, with_names
from edgesim.storage.seal import BLANK, SealError, check_seal, seal_file, sealed
from edgesim.storage.store import StorageError, Store

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

FORMAT_VERSION = 4
"""Format of a run directory.

2: files have checksums. 3: rounds and messages have more columns. 4: clocks say whose time they
have.
"""

ABOUT = "run.json"
"""File with the format of the run directory and the digest of the run."""

SWEEP = "sweep.json"
"""File of the folder of a sweep, which is no run directory."""

FIRST_FILES = ("scenario.yaml", "environment.json")
"""Files beside run.json that a run has before its first round; without them it can't be resumed."""

STOPPED_BY = "stopped_by"
"""Entry of environment.json: `error`, the line that tells of the error that stopped the fleet or
its last evaluation, and `can_go_on`, whether the same would not happen again at once. A run that
goes on has none."""

PARTS = "parts/*/*"
"""Names of recorded rounds and messages, each in the folder of its device."""

SEAL_KEY = "seal"
"""Key of the checksum in a JSON file, and in the metadata of a Parquet file."""

REMEDY = "bring it back from a copy, or start the run anew"


# Names of a run's numbered files. A file of another name does not belong to the run.
_ROUND, _DEVICE = (rf"(\d{{{digits}}}|[1-9]\d{{{digits},}})" for digits in (9, 6))
_NUMBERED = re.compile(
    rf"checkpoints/device-{_DEVICE}/round-{_ROUND}\.ckpt"
    rf"|parts/device-{_DEVICE}/(rounds|messages)-{_ROUND}\.parquet"
    rf"|snapshots/round-{_ROUND}-device-{_DEVICE}\.npz"
)
_FINAL_MODEL = re.compile(rf"models/device-{_DEVICE}\.npz")


class RunDirectoryError(EdgesimError, ValueError):
    """A place that is no run directory, or a file in it that is damaged or belongs elsewhere."""


class RunFiles:
    """Reads and writes files of one run.

    All methods raise `StorageError` if the place cannot be read or written. Readers raise
    `RunDirectoryError` if a file is damaged, of another run, or another file of this run.

    Args:
        store: the run directory.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def place(self) -> str:
        """Path or URI of the run directory."""
        return self._store.url

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return self._store.exists(name)

    def check_summary(self) -> None:
        """Refuse a run that has ended and lost the figures of its end.

        It writes summary.json last, and then removes the parts from which it could be resumed.

        Raises:
            RunDirectoryError: it is one.
        """
        if self.has("summary.json"):
            return
        has_ended = self.has("devices.parquet") and not self._store.names(PARTS)
        # Asked for once more: a run that is going on may have ended meanwhile.
        if has_ended and not self.has("summary.json"):
            raise RunDirectoryError(f"{self.place}: lacks summary.json, though it ended; {REMEDY}")

    @cached_property
    def run_digest(self) -> str:
        """Digest of the scenario and of all that the run's result depends on.

        Raises:
            RunDirectoryError: the place is no run directory, or one of another format.
        """
        name = ABOUT
        if not self.has(name):
            if self.has(SWEEP):
                raise RunDirectoryError(
                    f"{self.place}: the folder of a sweep, not a run; name a cell's folder in it, "
                    f"or go on with `edgesim sweep SCENARIO --out {self.place}`"
                )
            if self._store.is_free():
                raise RunDirectoryError(f"{self.place}: there is nothing; name the folder of a run")
            raise RunDirectoryError(f"{self.place}: no run directory; it lacks {name}")
        data = self._store.read(name)
        about = self._parse_json(name, data)
        format_version, digest = about.get("format"), about.get("run_digest")
        if type(format_version) is not int or not isinstance(digest, str):
            raise RunDirectoryError(f"{self.place}: no run directory: {name} is of another program")
        if format_version != FORMAT_VERSION:
            age = "a newer" if format_version > FORMAT_VERSION else "an older"
            raise RunDirectoryError(
                f"{self.place}: written by {age} edgesim ({about.get('edgesim')}, format "
                f"{format_version}; this one reads {FORMAT_VERSION}); use the one that wrote it"
            )
        self._check(data, digest, name, name)
        return digest

    def begin(self, run_digest: str) -> None:
        """Write run.json, before any other file."""
        about = {"format": FORMAT_VERSION, "edgesim": version("edgesim"), "run_digest": run_digest}
        data = sealed(_json({**about, SEAL_KEY: BLANK}), run_digest, ABOUT)
        self._store.write(ABOUT, data)

    def own_names(self, pattern: str) -> list[str]:
        """Names of the run's numbered files that match a pattern, sorted."""
        return [name for name in self._store.names(pattern) if _NUMBERED.fullmatch(name)]

    def part_names(self, table: str) -> list[str]:
        """Names of a table's parts, in the order of their first rounds."""
        return sorted(self.own_names(f"parts/*/{table}-*.parquet"), key=number_of)

    def read(self, name: str, first_name: str | None = None) -> bytes:
        """Content of a file, checked.

        Args:
            name: name of the file.
            first_name: name under which the file was written, if it was moved since.
        """
        data = self._store.read(name)
        self._check(data, self.run_digest, first_name or name, name)
        return data

    def _check(self, data: bytes, run_digest: str, first_name: str, name: str) -> None:
        try:
            check_seal(data, run_digest, first_name)
        except SealError as error:
            raise RunDirectoryError(f"{self.place}/{name}: {error}; {REMEDY}") from error

    def _write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self._store.write(name, sealed(data, self.run_digest, name), durable=durable)

    # --- YAML and JSON

    def write_text(self, name: str, text: str) -> None:
        """Write a text file whose format takes lines that begin with # for comments."""
        self._write(name, f"{text}# {BLANK}\n".encode())

    def read_text(self, name: str) -> str:
        """Text of a file that `write_text` wrote."""
        text = self.read(name).decode("utf-8")
        return text[: text.rindex("# ")]

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON object; NaN and infinity are refused."""
        self._write(name, _json({**content, SEAL_KEY: BLANK}))

    def read_json(self, name: str) -> dict[str, Any]:
        """Content of a JSON file, without its checksum."""
        content = self._parse_json(name, self.read(name))
        del content[SEAL_KEY]
        return content

    def read_settings(self) -> dict[str, Any]:
        """Content of scenario.yaml, which is not checked again."""
        import yaml

        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # a tenth of the time
        text = self.read_text("scenario.yaml")
        try:
            # Aliases of aliases would fill the memory; edgesim writes none.
            if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=loader)):
                content = None
            else:
                content = yaml.load(text, Loader=loader)  # noqa: S506 (safe)
        except (yaml.YAMLError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise RunDirectoryError(
                f"{self.place}/scenario.yaml: damaged: it is no scenario; {REMEDY}"
            )
        return content

    def _parse_json(self, name: str, data: bytes) -> dict[str, Any]:
        try:
            content = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise RunDirectoryError(
                f"{self.place}/{name}: damaged: it is no JSON; {REMEDY}"
            ) from error
        if not isinstance(content, dict):
            raise RunDirectoryError(f"{self.place}/{name}: damaged: it has no keys; {REMEDY}")
        return content

    # --- tables

    def write_table(
        self,
        name: str,
        rows: Sequence[Mapping[str, Any]],
        columns: tuple[Column, ...],
        *,
        names: Sequence[str] = (),
        durable: bool = True,
    ) -> None:
        """Write a Parquet table of rows with all columns; columns of devices' names are added."""
        table = with_names(table_of(rows, arrow_schema(columns)), names)
        file = BytesIO()
        with sealable_writer(file, table.schema) as writer:
            writer.write_table(table)
        self._write(name, file.getvalue(), durable=durable)

    @contextmanager
    def table_file(self, name: str) -> Iterator[IO[bytes]]:
        """File for a long table, to be written by `sealable_writer`; it appears after the block."""
        with self._store.writer(name) as file:
            yield file
            seal_file(file, self.run_digest, name)

    def read_table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Content of a Parquet table, or some of its columns."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        return pq.ParquetFile(pa.BufferReader(self.read(name))).read(columns)

    def read_rows(self, name: str) -> list[dict[str, Any]]:
        """Rows of a Parquet table; none if the file does not exist."""
        rows: list[dict[str, Any]] = self.read_table(name).to_pylist() if self.has(name) else []
        return rows

    # --- arrays

    def write_arrays(self, name: str, arrays: Mapping[str, Any], *, durable: bool = False) -> None:
        """Write numpy arrays by name, as npz."""
        import numpy as np

        file = BytesIO()
        np.savez(file, allow_pickle=False, **arrays)
        with ZipFile(file, "a") as archive:
            archive.comment = BLANK.encode()
        self._write(name, file.getvalue(), durable=durable)

    def read_arrays(
        self, name: str, first_name: str | None = None, only: Sequence[str] | None = None
    ) -> dict[str, NDArray[np.generic]]:
        """Arrays of an npz file by name, all or some; `first_name` is that of `read`."""
        import numpy as np

        with np.load(BytesIO(self.read(name, first_name)), allow_pickle=False) as file:
            return {name: file[name] for name in (file.files if only is None else only)}

    # --- final models

    def final_model_names(self) -> list[str]:
        """Names of the devices' final models, in the order of devices."""
        names = self._store.names("models/device-*.npz")
        return sorted(filter(_FINAL_MODEL.fullmatch, names), key=number_of)

    def read_final_model_arrays(self, name: str) -> dict[str, NDArray[np.generic]]:
        """Arrays of a final model, which was sealed under the name of its last evaluation."""
        import numpy as np

        try:
            with np.load(BytesIO(self._store.read(name)), allow_pickle=False) as arrays:
                evaluation = int(arrays["round_index"])
        except StorageError:
            raise
        except Exception as error:  # of a damaged zip file, about any
            raise RunDirectoryError(f"{self.place}/{name}: damaged; {REMEDY}") from error
        device = number_of(name)
        first_name = f"snapshots/round-{evaluation:09d}-device-{device:06d}.npz"
        return self.read_arrays(name, first_name)


def number_of(name: str) -> int:
    """Number at the end of a numbered file's name: its device or its first round."""
    return int(re.split(r"\D+", name)[-2])


def sealable_writer(file: IO[bytes], schema: pa.Schema) -> Any:  # noqa: ANN401 (pyarrow's)
    """Writer of a Parquet file with room for a checksum; a context manager."""
    import pyarrow.parquet as pq

    writer = pq.ParquetWriter(file, schema)
    writer.add_key_value_metadata({SEAL_KEY: BLANK})
    return writer


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()
