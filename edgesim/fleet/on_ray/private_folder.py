"""Temporary folders that no other user of the machine can read, replace or block.

The common temporary folder is open to all users. edgesim's folders in it have mode 0700 and belong
to this user. An existing folder is used only if it has this mode and owner and is no link.

Each process that uses such a folder holds a shared lock on the folder itself. The operating system
ends a lock together with its process. So the run of an unlocked folder has ended, and the next run
removes the folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgesim.errors import EdgesimError

PREFIX = "edgesim-"
MARK = "of-a-run-of-edgesim"  # a file; a folder without it is never removed
OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO
END_TIMEOUT_S = 5.0  # for processes that are about to end to write no more
POLL_S = 0.1
_REMEDY = "name another folder for temporary files by TMPDIR"
_AS_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_AS_FILE = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class TemporaryFolderError(EdgesimError):
    """A temporary folder can't be used, or somebody else holds its place."""


def safe_parent(candidates: list[Path], max_length: int) -> Path:
    """The first folder in which private folders can be.

    Args:
        candidates: in the order of preference.
        max_length: of the folder's path, in bytes; names of sockets are short.

    Raises:
        TemporaryFolderError: none of them is safe and short enough.
    """
    problems = []
    for folder in dict.fromkeys(candidates):
        if len(os.fsencode(folder)) > max_length:
            problems.append(f"{folder} has more than {max_length} bytes")
        elif not os.access(folder, os.W_OK | os.X_OK):
            problems.append(f"{folder} can't be written to")
        elif _lets_others_rename(folder):
            problems.append(f"in {folder} others can rename what is not theirs (its owner, mode)")
        else:
            return folder
    raise TemporaryFolderError(f"no folder for temporary files: {'; '.join(problems)}; {_REMEDY}")


def _lets_others_rename(folder: Path) -> bool:
    """Whether another user could replace a folder inside this folder.

    The owner of the folder can. Without a sticky bit, so can all users who may write to it; members
    of a group with write access count as other users, since they are not known here.
    """
    status = folder.stat()
    if status.st_uid not in (0, os.geteuid()):
        return True
    return bool(
        status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX
    )


@contextmanager
def private_folder(parent: Path) -> Iterator[Path]:
    """Make a folder with a name that nobody can guess, and remove it with all its files.

    Raises:
        TemporaryFolderError: it can't be made.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    except OSError as error:
        raise TemporaryFolderError(f"{parent}: {error.strerror}; {_REMEDY}") from error
    descriptor = open_private(folder)
    try:
        yield folder
    finally:
        remove(folder)
        os.close(descriptor)


def open_private(folder: Path) -> int:
    """Open a folder of this user alone, made if it is absent.

    Returns:
        Descriptor of the folder. While it is open no other run removes the folder.

    Raises:
        TemporaryFolderError: another user could reach the folder, or it can't be made.
    """
    while True:
        try:
            with suppress(FileExistsError):
                folder.mkdir(stat.S_IRWXU)
        except OSError as error:
            raise TemporaryFolderError(f"{folder}: {error.strerror}; {_REMEDY}") from error
        try:
            descriptor = os.open(folder, _AS_FOLDER)
        except FileNotFoundError:
            continue  # another run took it for the folder of a run that has ended
        except OSError as error:  # a link, a file, or the folder of another user
            raise _squatted(folder) from error
        try:
            _check_private(folder, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if _is_there(folder, descriptor):
                os.close(os.open(MARK, _AS_FILE, 0o600, dir_fd=descriptor))
                return descriptor
        except OSError as error:
            os.close(descriptor)
            raise TemporaryFolderError(f"{folder}: {error.strerror}; {_REMEDY}") from error
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _squatted(folder: Path) -> TemporaryFolderError:
    return TemporaryFolderError(
        f"{folder} is not a folder of this user alone (another user made it, a link, or too open a "
        f"mode): remove it, or {_REMEDY}"
    )


def _check_private(folder: Path, descriptor: int) -> None:
    if not _is_private(descriptor):
        raise _squatted(folder)


def _is_private(descriptor: int) -> bool:
    status = os.fstat(descriptor)
    return status.st_uid == os.geteuid() and not status.st_mode & OF_OTHERS


def _is_there(folder: Path, descriptor: int) -> bool:
    """Whether a path still leads to the folder that was opened."""
    try:
        return os.path.samestat(folder.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def temporary_folders() -> list[Path]:
    """Where this user wants temporary files, then where they are if that path is too long."""
    wanted = os.environ.get("RAY_TMPDIR", tempfile.gettempdir())
    return [Path(wanted).absolute(), Path("/tmp")]  # noqa: S108 (for a private folder)


def sweep(parent: Path) -> None:
    """Remove the private folders of runs that have ended without removing them.

    Folders of others, folders in use and folders without the mark stay.
    """
    for folder, is_in_use in _private_folders(parent):
        if not is_in_use:
            remove(folder)


def living_folders(parents: Iterable[Path]) -> list[Path]:
    """Private folders of this user that processes are using."""
    return [
        folder
        for parent in dict.fromkeys(parents)
        for folder, is_in_use in _private_folders(parent)
        if is_in_use
    ]


def _private_folders(parent: Path) -> Iterator[tuple[Path, bool]]:
    """This user's private folders, and whether somebody uses them; the others stay locked here."""
    for folder in list(parent.glob(f"{PREFIX}*")):
        try:
            descriptor = os.open(folder, _AS_FOLDER)
        except OSError:  # a file, a link, or the folder of another user: nothing of ours
            continue
        try:
            if not _is_private(descriptor) or not _is_marked(descriptor):
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_in_use = False
            except OSError:  # in use, or the file system has no locks
                is_in_use = True
            yield folder, is_in_use
        finally:
            os.close(descriptor)


def _is_marked(descriptor: int) -> bool:
    try:
        status = os.stat(MARK, dir_fd=descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode)


def remove(folder: Path, timeout_s: float = END_TIMEOUT_S) -> None:
    """Remove a private folder in which ending processes may still write.

    The next run removes what is left after the time-out, since the mark is removed last.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        if _is_emptied(folder):
            Path(folder, MARK).unlink(missing_ok=True)
            try:
                folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:  # there is something new in it
                Path(folder, MARK).touch()
            else:
                return
        if time.monotonic() > deadline_s:
            return
        time.sleep(POLL_S)


def _is_emptied(folder: Path) -> bool:
    """Remove all but the mark; return whether nothing else is left."""
    for entry in _entries(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry, ignore_errors=True)  # one that a process writes to stays
        else:
            Path(entry).unlink(missing_ok=True)
    return not _entries(folder)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if entry.name != MARK]
    except FileNotFoundError:
        return []
