"""A folder of files: on this machine, or in an object store that fsspec reaches.

A file appears whole or not at all, even if its writer is killed. Any number of threads and
processes may use one folder at a time. Shared file systems (NFS, Lustre) are named by the path at
which they are mounted. `memory://` is a folder that only this process can see.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

from edgesim.program import pip_install
from edgesim.storage.files import LocalFiles, RemoteFiles
from edgesim.storage.space import NoSpaceError, Result, StorageError, WaitForSpace

__all__ = ["NoSpaceError", "StorageError", "Store"]

_LOCAL = re.compile(r"(file|local)://")
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(://|::)")
_ONE_SLASH = re.compile(r"(file|local|s3|gs|gcs|az|abfs|hdfs|http|https|memory):/(?!/)(.*)")
_PACKAGES: Mapping[str, str] = {"s3": "s3fs", "s3a": "s3fs"}
_REMEDIES: Mapping[int, str] = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there: a quota is used up",
    errno.EROFS: "it is read-only: choose another place",
    errno.EACCES: "see to permissions there",
    errno.EPERM: "see to permissions there",
    errno.ENOENT: "see that the folder or bucket exists",
    errno.EISDIR: "a folder stands in its place: remove that folder",
    errno.ENOTDIR: "a file stands where a folder should be: remove that file",
    errno.EEXIST: "a file stands where a folder should be: remove that file",
    errno.ELOOP: "a link stands in its place: remove that link",
    errno.EIO: "the disk reports damage: see to it",
}
_NUMBERS: Mapping[type[OSError], int] = {  # fsspec gives none
    FileNotFoundError: errno.ENOENT,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
    PermissionError: errno.EACCES,
}
MOVED_AT_ONCE = 256
"""Files whose new names are brought to disk together: that takes milliseconds, for one or many."""

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_LOST = "see that the folder or bucket exists, or bring the file back from a copy"


class Store:
    """A folder. Names of its files are relative paths with slashes.

    A store is a value: it may be pickled and sent to other processes.
    """

    def __init__(
        self,
        url: str,
        files: LocalFiles | RemoteFiles,
        check: Callable[[], None] | None = None,
        space: WaitForSpace | None = None,
    ) -> None:
        self._url = url
        self._files = files
        self._check = check or _allow
        self._space = space

    @classmethod
    def at(cls, place: str | Path | Store) -> Store:
        """The folder at a path or URI (`s3://bucket/run`, `memory://run`, `file:///run`, ...).

        Nothing is made or looked up yet.

        Raises:
            StorageError: the protocol is unknown or lacks its package, or a slash is missing.
        """
        if isinstance(place, Store):
            return place
        if isinstance(place, str) and not _LOCAL.match(place) and _REMOTE.match(place):
            url = place.rstrip("/")
            return cls(url, _open(url))
        if lost := _ONE_SLASH.match(str(place)):
            scheme, rest = lost.groups()
            slashes = "///" if _LOCAL.match(f"{scheme}://") else "//"
            raise StorageError(f"{place}: a slash is missing: write {scheme}:{slashes}{rest}")
        folder = Path(_LOCAL.sub("", place, count=1) if isinstance(place, str) else place)
        if folder.parts[:1] == ("~",):  # no shell has done so in a notebook
            folder = folder.expanduser()
        folder = folder.resolve()
        return cls(str(folder), LocalFiles(folder))

    def __reduce__(self) -> tuple[Any, ...]:
        return Store.at, (self._url,)  # connections stay in their process

    def __repr__(self) -> str:
        return f"Store.at({self._url!r})"

    @property
    def url(self) -> str:
        """Path or URI of the folder; `at` takes it back."""
        return self._url

    @property
    def is_local(self) -> bool:
        """Whether the folder is on this machine, or mounted there."""
        return isinstance(self._files, LocalFiles)

    @property
    def path(self) -> Path:
        """Path of the folder on this machine.

        Raises:
            StorageError: the folder is not on this machine.
        """
        if isinstance(self._files, LocalFiles):
            return self._files.folder
        raise StorageError(f"{self._url}: is no folder of this machine; give a path")

    def child(self, name: str) -> Store:
        """A folder inside this folder; `make` creates it."""
        return Store(f"{self._url}/{name}", self._files.child(name), self._check, self._space)

    def guarded(self, check: Callable[[], None]) -> Store:
        """The same folder, with a check before every change; an error of the check prevents it.

        The check stays in its process: a store that is sent to another process has none.
        """
        return Store(self._url, self._files, check, self._space)

    def patient(self, space: WaitForSpace) -> Store:
        """The same folder, whose writers wait while its file system is full.

        They wait in their process: a store that is sent to another process does not wait.
        """
        return Store(self._url, self._files, self._check, space)

    def stop_waiting(self) -> None:
        """Let writers of a patient store that wait for space fail now, and others at once."""
        if self._space is not None:
            self._space.stop()

    def repeated(self, work: Callable[[], Result]) -> Result:
        """Do something that may be done repeatedly, and repeat it while there is no space.

        A store that is not patient does it once.
        """
        return work() if self._space is None else self._space.repeated(work)

    def make(self) -> None:
        """Create the folder, if the storage has folders."""
        self._change("", "made", self._files.make)

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Write a file; replace a file of the same name.

        Args:
            name: name of the file.
            data: content of the file.
            durable: whether the file must survive a power cut right after the call. If False, a
                power cut may remove the file, but never damage it; `sync` makes many files durable
                at once.
        """
        self._change(name, "written", partial(self._files.write, name, data, durable=durable))

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless a file of this name exists; return whether it was written.

        Of all processes that create one name, one succeeds. An object store must know conditional
        writes (`If-None-Match`) for that, as S3 does.

        Args:
            name: name of the file.
            data: content of the file; it must differ from that of every other process.
        """

        def create() -> bool:
            try:
                self._files.create(name, data)
            except FileExistsError:
                return False
            return True

        return self._change(name, "written", create)

    @contextmanager
    def writer(self, name: str) -> Iterator[IO[bytes]]:
        """Write a file piece by piece; it appears, durably, when the block ends without error.

        A full file system is an error here; `repeated` takes the whole block.
        """
        self._check()
        with self._told(name, "written"), self._files.writer(name) as file:
            yield file
            self._check()  # once more, since writing may have taken long

    def sync(self, folder: str) -> None:
        """Make all files of a folder durable."""
        self._change(folder, "written", partial(self._files.sync, folder))

    def read(self, name: str) -> bytes:
        """Content of a file."""
        with self._told(name, "read"):
            return self._files.read(name)

    def names(self, pattern: str) -> list[str]:
        """Names of files that match a pattern, sorted.

        Args:
            pattern: a relative name with the wildcards of `fnmatch`, which match no slash.
        """
        with self._told("", "listed"):
            return sorted(self._files.names(pattern.split("/")))

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""
        with self._told(name, "read"):
            return self._files.exists(name)

    def is_free(self) -> bool:
        """Whether the place does not exist or is an empty folder."""
        with self._told("", "listed"):
            return self._files.is_free()

    def delete(self, names: Iterable[str]) -> None:
        """Remove files; a missing file is no error."""
        self._change("", "cleared", partial(self._files.delete, list(names)))

    def delete_tree(self, name: str) -> None:
        """Remove a folder with its content; a missing folder is no error."""
        self._change(name, "removed", partial(self._files.delete_tree, name))

    def move(self, new_names: Mapping[str, str]) -> None:
        """Rename files; replace files of the new names.

        Args:
            new_names: by the old ones.
        """
        left = iter(new_names.items())
        while some := dict(islice(left, MOVED_AT_ONCE)):
            self._change("", "moved", partial(self._files.move, some))

    def sweep(self) -> None:
        """Remove incomplete files of writers that were killed; spare those of living writers."""
        self._change("", "cleared", self._files.sweep)

    def _change(self, name: str, action: str, work: Callable[[], Result]) -> Result:
        """Change something in the folder; a patient store waits for space."""

        def attempt() -> Result:
            self._check()  # each time: another process may have taken over meanwhile
            with self._told(name, action):
                return work()

        return self.repeated(attempt)

    @contextmanager
    def _told(self, name: str, action: str) -> Iterator[None]:
        """Turn an error of the file system into a `StorageError` of one line."""
        try:
            yield
        except OSError as error:
            place = f"{self._url}/{name}" if name else self._url
            if not name and isinstance(error.filename, str) and self.is_local:
                place = error.filename  # the one of many files that failed
            said = str(error.strerror or error) or type(error).__name__
            number = next((n for kind, n in _NUMBERS.items() if isinstance(error, kind)), 0)
            remedy = _REMEDIES.get(
                error.errno or number, "see to space, permissions and credentials there"
            )
            if number == errno.ENOENT and action == "read":
                remedy = _LOST
            line = said.splitlines()[0]
            kind = NoSpaceError if error.errno in _NO_SPACE else StorageError
            raise kind(f"{place}: can't be {action} ({line}); {remedy}") from error


def _allow() -> None:
    """Let every change pass: nobody has set a check."""


def _open(url: str) -> RemoteFiles:
    protocol = re.split("://|::", url)[0]
    try:
        return RemoteFiles.at(url)
    except ImportError as error:
        package = _PACKAGES.get(protocol)
        remedy = f"install it: {pip_install(package)}" if package else f"fsspec says: {error}"
        raise StorageError(
            f"{url}: {protocol}:// needs a package that is not installed; {remedy}"
        ) from error
    except (OSError, ValueError) as error:
        raise StorageError(f"{url}: can't be used ({error}); give a path or another URI") from error
