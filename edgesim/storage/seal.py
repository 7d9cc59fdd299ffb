"""A checksum inside a Parquet, npz, JSON or YAML file, which any program can still read.

    edgesim-seal-1:rrrrrrrrrrrrrrrrcccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc

r names the run: 8 bytes of the SHA-256 of its digest. c is the SHA-256 of the file's name in the
run and of the whole file without c. Both are hexadecimal. The text stands where the format has room
for it: in the metadata of a Parquet file, in the comment of a zip file, under a key of a JSON
object, in a comment of a YAML file. Of several such texts in a file the last one counts.

The check notices one flipped bit anywhere in a file, a file of another run, and a file under
another file's name. It protects against damage and mix-ups, not against forgery.
"""

from __future__ import annotations

import hashlib
from typing import IO

from edgesim.errors import EdgesimError

_MARK = b"edgesim-seal-1:"
_RUN_LENGTH, _CHECKSUM_LENGTH = 16, 64
BLANK = (_MARK + b"0" * (_RUN_LENGTH + _CHECKSUM_LENGTH)).decode()
"""Placeholder that a writer puts in the place of the seal."""

_TAIL_BYTES = 2**16  # last bytes of a long file; its seal is among them
_CHUNK_BYTES = 2**20


class SealError(EdgesimError, ValueError):
    """A file is damaged, belongs to another run, or has the name of another file."""


def sealed(data: bytes, run_digest: str, name: str) -> bytes:
    """Replace the last `BLANK` of a file by its seal.

    Args:
        data: content of the whole file.
        run_digest: digest of the file's run.
        name: name of the file in its run.
    """
    run_at, checksum_at = _places(data)
    data = data[:run_at] + _run_of(run_digest) + data[checksum_at:]
    digest = hashlib.sha256(_prefix(name))
    digest.update(memoryview(data)[:checksum_at])
    digest.update(memoryview(data)[checksum_at + _CHECKSUM_LENGTH :])
    checksum = digest.hexdigest().encode()
    return data[:checksum_at] + checksum + data[checksum_at + _CHECKSUM_LENGTH :]


def seal_file(file: IO[bytes], run_digest: str, name: str) -> None:
    """Seal an open file of any length, which must be seekable, readable and writable.

    Its last `BLANK` must be in the last 64 KiB.
    """
    length = file.seek(0, 2)
    tail_at = max(0, length - _TAIL_BYTES)
    file.seek(tail_at)
    run_at, checksum_at = (tail_at + place for place in _places(file.read()))
    file.seek(run_at)
    file.write(_run_of(run_digest))
    digest = hashlib.sha256(_prefix(name))
    for start, end in ((0, checksum_at), (checksum_at + _CHECKSUM_LENGTH, length)):
        file.seek(start)
        while start < end:
            chunk = file.read(min(_CHUNK_BYTES, end - start))
            digest.update(chunk)
            start += len(chunk)
    file.seek(checksum_at)
    file.write(digest.hexdigest().encode())


def check_seal(data: bytes, run_digest: str, name: str) -> None:
    """Make sure that a file is as it was written, by this run, under this name.

    Args:
        data: all of the file.
        run_digest: of the run.
        name: of the file in its run.

    Raises:
        SealError: it is not; what is wrong with it.
    """
    at = data.rfind(_MARK)
    run_at, checksum_at = at + len(_MARK), at + len(_MARK) + _RUN_LENGTH
    if at < 0 or len(data) < checksum_at + _CHECKSUM_LENGTH:
        raise SealError("damaged: it has no checksum")
    digest = hashlib.sha256(_prefix(name))
    digest.update(memoryview(data)[:checksum_at])
    digest.update(memoryview(data)[checksum_at + _CHECKSUM_LENGTH :])
    if digest.hexdigest().encode() != data[checksum_at : checksum_at + _CHECKSUM_LENGTH]:
        raise SealError("damaged, or another file's content: it does not match its checksum")
    if data[run_at:checksum_at] != _run_of(run_digest):
        raise SealError("of another run")


def _places(data: bytes) -> tuple[int, int]:
    """Where the run and the checksum of the blank begin."""
    run_at = data.rindex(BLANK.encode()) + len(_MARK)
    return run_at, run_at + _RUN_LENGTH


def _prefix(name: str) -> bytes:
    return name.encode() + b"\0"


def _run_of(run_digest: str) -> bytes:
    return hashlib.sha256(run_digest.encode()).hexdigest()[:_RUN_LENGTH].encode()
