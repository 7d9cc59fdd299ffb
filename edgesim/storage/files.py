"""The two kinds of storage below `storage.store.Store`, with equal methods; they raise OSError.

`LocalFiles` is for file systems of this machine and those mounted on it, `RemoteFiles` for object
stores through fsspec. Names are relative to the folder that each stands for, with slashes.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from threading import get_ident
from typing import IO, Any

STALE_S = 3600.0  # the writer of an unfinished file of this age has ended, on whatever machine

_UNFINISHED = re.compile(r"\..*\.(?P<pid>\d+)-\d+@(?P<host>.+)\.tmp")


class LocalFiles:
    """Files in a folder of this machine, or of a file system that is mounted here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def child(self, name: str) -> LocalFiles:
        """Files of a folder in this one."""
        return LocalFiles(self.folder / name)

    def make(self) -> None:
        """Make the folder."""
        _make_durably(self.folder)

    def write(self, name: str, data: bytes, *, durable: bool) -> None:
        """Write a whole file."""
        with self.writer(name, durable=durable) as file:
            file.write(data)

    def create(self, name: str, data: bytes) -> None:
        """Write a whole file, unless there is one of this name: FileExistsError."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:
            whole = Path(folder, "whole")
            whole.write_bytes(data)
            path.hardlink_to(whole)

    @contextmanager
    def writer(self, name: str, *, durable: bool = True) -> Iterator[IO[bytes]]:
        """Write a file piece by piece; it appears when the block ends without error."""
        path = self.folder / name
        if path.parent != self.folder and self.folder.is_dir():
            _make_durably(path.parent)
        mark = f"{os.getpid()}-{get_ident()}@{socket.gethostname()}"
        unfinished = path.with_name(f".{path.name}.{mark}.tmp")
        try:
            with unfinished.open("w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        except BaseException:
            with suppress(OSError):  # the first error matters; `sweep` removes the file later
                unfinished.unlink(missing_ok=True)
            raise
        if durable:
            _sync_folder(path.parent)

    def sync(self, folder: str) -> None:
        """Bring the names of files in a folder to disk."""
        with suppress(FileNotFoundError):  # nothing was ever written there
            _sync_folder(self.folder / folder)

    def read(self, name: str) -> bytes:
        """A file as bytes."""
        return (self.folder / name).read_bytes()

    def names(self, segments: list[str]) -> Iterator[str]:
        """Names of files that match one pattern for each part of a name, in any order."""
        return _matching(self.folder, segments)

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return (self.folder / name).is_file()

    def is_free(self) -> bool:
        """Whether there is nothing here, or an empty folder."""
        try:
            return not any(self.folder.iterdir())
        except FileNotFoundError:
            return True
        except NotADirectoryError:
            if self.folder.exists():
                return False
            raise  # it would be below a file

    def delete(self, names: list[str]) -> None:
        """Remove files that are there."""
        for name in names:
            (self.folder / name).unlink(missing_ok=True)

    def delete_tree(self, name: str) -> None:
        """Remove a folder, if it is there."""
        with suppress(FileNotFoundError):  # removed already, or by another process meanwhile
            shutil.rmtree(self.folder / name)

    def move(self, new_names: Mapping[str, str]) -> None:
        """Give files other names; what an interrupted call has moved already is no error."""
        folders = {(self.folder / target).parent for target in new_names.values()}
        for folder in folders:
            _make_durably(folder)
        for source, target in new_names.items():
            path = self.folder / target
            try:
                (self.folder / source).replace(path)
            except FileNotFoundError:
                if not path.is_file():
                    raise
        for folder in folders:
            _sync_folder(folder)

    def sweep(self) -> None:
        """Remove unfinished files whose writer has ended."""
        for parent, _, files in os.walk(self.folder):
            for name in files:
                path = Path(parent, name)
                if (mark := _UNFINISHED.fullmatch(name)) and _is_abandoned(path, mark):
                    path.unlink(missing_ok=True)


def _matching(folder: Path, segments: list[str]) -> Iterator[str]:
    """Names of files below a folder; an unreadable folder is an error, not empty."""
    pattern, *deeper = segments
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if not fnmatchcase(entry.name, pattern) or _UNFINISHED.fullmatch(entry.name):
            continue
        if not deeper:
            if entry.is_file():
                yield entry.name
        elif entry.is_dir():
            yield from (f"{entry.name}/{name}" for name in _matching(folder / entry.name, deeper))


def _is_abandoned(path: Path, mark: re.Match[str]) -> bool:
    """Whether nobody writes an unfinished file any more."""
    if mark["host"] == socket.gethostname():
        try:
            os.kill(int(mark["pid"]), 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # a living process of another user
    try:
        return time.time() - path.stat().st_mtime > STALE_S
    except FileNotFoundError:
        return False


def _make_durably(folder: Path) -> None:
    """Make a folder and those above it, and bring their names to disk."""
    if folder.is_dir():
        return
    _make_durably(folder.parent)
    folder.mkdir(exist_ok=True)
    with suppress(PermissionError):  # a folder that may be written, not read
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    """Bring new names in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some mounts do not support it
            raise
    finally:
        os.close(descriptor)


class RemoteFiles:
    """Objects of a store that fsspec knows; one put makes one whole object appear.

    Folders are parts of names, and unfinished puts leave nothing that could be seen.

    Args:
        system: a file system of fsspec, which has no types.
        root: path of the folder in it.
    """

    def __init__(self, system: Any, root: str) -> None:  # noqa: ANN401
        self._system = system
        self._root = root

    @classmethod
    def at(cls, url: str) -> RemoteFiles:
        """The folder at a URI; ImportError or ValueError if the protocol is not supported here."""
        from fsspec.core import url_to_fs  # slow to import, and most runs are local

        system, root = url_to_fs(url, skip_instance_cache=True)
        system.dircache.use_listings_cache = False  # other processes write there, too
        return cls(system, str(root).rstrip("/"))

    def child(self, name: str) -> RemoteFiles:
        """Files of a folder in this one."""
        return RemoteFiles(self._system, self._at(name))

    def make(self) -> None:
        """Do nothing: folders are parts of names."""

    def write(self, name: str, data: bytes, *, durable: bool) -> None:  # noqa: ARG002 (it is)
        """Write a whole file."""
        with _os_errors():
            self._system.pipe_file(self._at(name), data)

    def create(self, name: str, data: bytes) -> None:
        """Write a whole file, unless there is one of this name: FileExistsError."""
        try:
            with _os_errors():
                self._system.pipe_file(self._at(name), data, mode="create")
        except OSError:  # drivers raise different errors if the name exists
            # If a driver repeats a put that had succeeded, the repetition is refused.
            if not self.exists(name):
                raise
        if self.read(name) != data:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)

    @contextmanager
    def writer(self, name: str) -> Iterator[IO[bytes]]:
        """Write a file piece by piece; it appears when the block ends without error."""
        with tempfile.NamedTemporaryFile() as file:  # an error would complete a stream, too
            yield file
            file.flush()
            with _os_errors():
                self._system.put_file(file.name, self._at(name))

    def sync(self, folder: str) -> None:
        """Do nothing: a put that has returned is durable."""

    def read(self, name: str) -> bytes:
        """A file as bytes."""
        with _os_errors():
            return bytes(self._system.cat_file(self._at(name)))

    def names(self, segments: list[str]) -> Iterator[str]:
        """Names of files that match one pattern for each part of a name, in any order."""
        *folders, last = segments
        fixed = []
        while folders and not any(c in folders[0] for c in "*?["):
            fixed.append(folders.pop(0))
        patterns = [*folders, last]
        base = self._at("/".join(fixed))
        for path in self._listing(base, deep=bool(folders)):
            parts = path.removeprefix(f"{base}/").split("/")
            if len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns)):
                yield "/".join([*fixed, *parts])

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""
        try:
            with _os_errors():
                return bool(self._system.info(self._at(name))["type"] == "file")
        except FileNotFoundError:
            return False

    def is_free(self) -> bool:
        """Whether there is nothing here, or an empty folder."""
        try:
            with _os_errors():
                return not self._system.ls(self._root, detail=False)
        except FileNotFoundError:
            return True

    def delete(self, names: list[str]) -> None:
        """Remove files that are there."""
        try:
            if names:
                with _os_errors():
                    self._system.rm([self._at(name) for name in names])
        except FileNotFoundError:  # one of them is missing; the error does not say which
            self.delete([name for name in names if self.exists(name)])

    def delete_tree(self, name: str) -> None:
        """Remove a folder, if it is there."""
        with suppress(FileNotFoundError), _os_errors():
            self._system.rm(self._at(name), recursive=True)

    def move(self, new_names: Mapping[str, str]) -> None:
        """Rename files. This is not atomic, but each target is whole or absent."""
        with _os_errors():
            for source, target in new_names.items():
                self._system.cp_file(self._at(source), self._at(target))
                self._system.rm_file(self._at(source))

    def sweep(self) -> None:
        """Do nothing: an interrupted put leaves no file."""

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _listing(self, folder: str, *, deep: bool) -> list[str]:
        """Paths of files in a folder, or below it."""
        try:
            with _os_errors():
                if deep:
                    return list(self._system.find(folder))
                listed = self._system.ls(folder, detail=True)
        except FileNotFoundError:
            return []
        return [entry["name"] for entry in listed if entry["type"] == "file"]


@contextmanager
def _os_errors() -> Iterator[None]:
    """Turn errors of a driver, which often have own types, into OSError."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
