"""The file format of a checkpoint: JSON and arrays, no pickle, checked before use.

    magic      8 bytes   the same for ever
    version    u32       of what follows the frame
    length     u64       of the whole file, bytes
    digest     32 bytes  SHA-256 of the file without these
    header     u32 length, JSON
    sections   arrays in the order of the header, then blobs; each begins at a multiple of 64 bytes

Numbers are little-endian. Magic, version, length and digest form the frame, which is the same in
all versions. So a damaged file can be told from a file of a newer edgesim. The digest is SHA-256
instead of a CRC, because unnoticed damage would give wrong results, and computing it takes less
time than writing to disk. It protects against damage, not against forgery.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgesim.errors import EdgesimError

FORMAT_VERSION = 4

_MAGIC = b"\x89edgeCP\n"
_FRAME = struct.Struct("<8sIQ32s")
_DIGEST_AT = _FRAME.size - 32
_HEADER_LENGTH = struct.Struct("<I")
_ALIGNMENT = 64  # of sections, so that arrays need no copy
_DTYPE = re.compile(r"[<>|][biufc]\d{1,2}")  # of tensors: truth values and numbers
_HEADER_KEYS = {"device", "round_index", "run_digest", "fields", "arrays", "blobs"}


class CheckpointError(EdgesimError, ValueError):
    """Bytes that are no checkpoint, or none that this program can read."""


class OtherFormatError(CheckpointError):
    """An undamaged checkpoint of another edgesim, with a newer or an older format."""


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A device between two rounds.

    Attributes:
        device: which one.
        round_index: rounds that it has completed; one more in the second copy of a device that has
            left.
        run_digest: names the run that it belongs to.
        fields: None, bool, int, float (infinity and NaN too), str, lists, dicts by str of these.
        arrays: numpy arrays of any shape and dtype without objects, by name.
        blobs: bytes as they are.
    """

    device: int
    round_index: int
    run_digest: str
    fields: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]
    blobs: Sequence[bytes]


def encode(checkpoint: Checkpoint) -> bytes:
    """A checkpoint as the bytes of its file; equal ones give equal bytes.

    Raises:
        TypeError: a field or a dtype cannot be restored exactly.
    """
    _check_field(dict(checkpoint.fields), "fields")
    arrays = [_section_of(name, array) for name, array in checkpoint.arrays.items()]
    header = json.dumps(
        {
            "device": checkpoint.device,
            "round_index": checkpoint.round_index,
            "run_digest": checkpoint.run_digest,
            "fields": dict(checkpoint.fields),
            "arrays": [described for described, _ in arrays],
            "blobs": [len(blob) for blob in checkpoint.blobs],
        },
        separators=(",", ":"),
    ).encode("ascii")
    pieces: list[Any] = [b"", _HEADER_LENGTH.pack(len(header)), header]
    length = _FRAME.size + _HEADER_LENGTH.size + len(header)
    for section in (*(data for _, data in arrays), *checkpoint.blobs):
        padding = -length % _ALIGNMENT
        pieces += [bytes(padding), section]
        length += padding + len(section)
    digest = hashlib.sha256(_FRAME.pack(_MAGIC, FORMAT_VERSION, length, b"")[:_DIGEST_AT])
    for piece in pieces:
        digest.update(piece)
    pieces[0] = _FRAME.pack(_MAGIC, FORMAT_VERSION, length, digest.digest())
    return b"".join(pieces)


def decode(data: bytes) -> Checkpoint:
    """The checkpoint in the bytes of a file.

    Its arrays are read-only views of `data`.

    Raises:
        CheckpointError: the bytes are truncated, damaged, of a newer edgesim, or no checkpoint.
    """
    _check_frame(data)
    start = _FRAME.size
    if len(data) < start + _HEADER_LENGTH.size:
        raise CheckpointError("damaged: it has no header")
    (header_length,) = _HEADER_LENGTH.unpack_from(data, start)
    start += _HEADER_LENGTH.size
    header = _parse_header(data[start : start + header_length])
    sections = _Sections(data, start + header_length)
    arrays = {name: sections.array(dtype, shape) for name, dtype, shape in _arrays_of(header)}
    blobs = [sections.blob(length) for length in _naturals(header["blobs"], "blobs")]
    sections.check_end()
    device, round_index = _naturals([header["device"], header["round_index"]], "device, round")
    run_digest, fields = header["run_digest"], header["fields"]
    if not isinstance(run_digest, str) or not isinstance(fields, dict):
        raise CheckpointError("damaged: its header has values of a wrong kind")
    return Checkpoint(device, round_index, run_digest, fields, arrays, blobs)


def _check_frame(data: bytes) -> None:
    if data[: len(_MAGIC)] != _MAGIC[: len(data)]:
        raise CheckpointError("foreign: it does not begin as a checkpoint does")
    if len(data) < _FRAME.size:
        raise CheckpointError(f"truncated: it has {len(data)} bytes, too few for any")
    _, version, length, digest = _FRAME.unpack_from(data)
    if len(data) < length:
        raise CheckpointError(f"truncated: it has {len(data)} of {length} bytes")
    if len(data) > length:
        raise CheckpointError(f"damaged: it has {len(data)} bytes instead of {length}")
    actual = hashlib.sha256(memoryview(data)[:_DIGEST_AT])
    actual.update(memoryview(data)[_FRAME.size :])
    if actual.digest() != digest:
        raise CheckpointError("damaged: its content does not match its checksum")
    if version < 1:
        raise CheckpointError(f"foreign: there is no format {version}")
    if version != FORMAT_VERSION:
        age = "a newer" if version > FORMAT_VERSION else "an older"
        raise OtherFormatError(
            f"written by {age} edgesim (format {version}; this one reads {FORMAT_VERSION}); "
            "go on with that one"
        )


def _parse_header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError("damaged: its header is no JSON") from error
    if not isinstance(header, dict) or header.keys() != _HEADER_KEYS:
        raise CheckpointError("damaged: its header has other keys than it should")
    return header


def _arrays_of(header: Mapping[str, Any]) -> Iterator[tuple[str, np.dtype[Any], list[int]]]:
    described = header["arrays"]
    if not isinstance(described, list):
        raise CheckpointError("damaged: its arrays are no list")
    for item in described:
        match item:
            case [str() as name, (str() | list()) as dtype, list() as shape]:
                yield name, _read_dtype(dtype), _naturals(shape, "shape")
            case _:
                raise CheckpointError("damaged: an array is not described as it should be")


def _naturals(values: object, what: str) -> list[int]:
    if not isinstance(values, list) or any(type(v) is not int or v < 0 for v in values):
        raise CheckpointError(f"damaged: {what}: no numbers from 0 on")
    return values


class _Sections:
    """Reader of the sections after the header."""

    def __init__(self, data: bytes, start: int) -> None:
        self._data = data
        self._at = start

    def array(self, dtype: np.dtype[Any], shape: list[int]) -> NDArray[Any]:
        start = self._take(dtype.itemsize * prod(shape))
        try:
            return np.ndarray(tuple(shape), dtype, buffer=self._data, offset=start)
        except (ValueError, TypeError, OverflowError) as error:  # too many axes, too long ones
            raise CheckpointError(f"damaged: an array can't be {dtype} {shape}") from error

    def blob(self, length: int) -> bytes:
        start = self._take(length)
        return self._data[start : start + length]

    def check_end(self) -> None:
        if self._at != len(self._data):
            raise CheckpointError("damaged: there is more in it than its header says")

    def _take(self, length: int) -> int:
        start = self._at + -self._at % _ALIGNMENT
        self._at = start + length
        if self._at > len(self._data):
            raise CheckpointError("damaged: there is less in it than its header says")
        return start


def _section_of(name: str, array: NDArray[Any]) -> tuple[list[Any], memoryview]:
    """How the header describes an array, and its bytes."""
    values = np.asarray(array, order="C")
    described = values.dtype.str
    if not _DTYPE.fullmatch(described):
        raise TypeError(f"array {name}: {values.dtype} can't be kept in a checkpoint")
    flat = values.reshape(-1).view(np.uint8) if values.size else np.empty(0, np.uint8)
    return [name, described, list(values.shape)], flat.data


def _read_dtype(described: object) -> np.dtype[Any]:
    """The type of numbers that a header names."""
    if not (isinstance(described, str) and _DTYPE.fullmatch(described)):
        raise CheckpointError(f"damaged: no array of numbers has the type {described!r:.40}")
    try:
        return np.dtype(described)
    except TypeError as error:
        raise CheckpointError("damaged: an array has no sound dtype") from error


def _check_field(value: object, key: str) -> None:
    """Refuse values that JSON cannot restore exactly."""
    match value:
        case dict():
            for name, inner in value.items():
                if not isinstance(name, str):
                    raise TypeError(f"{key}: {name!r} is no str; only these can be keys")
                _check_field(inner, f"{key}.{name}")
        case list():
            for place, inner in enumerate(value):
                _check_field(inner, f"{key}[{place}]")
        case bool() | int() | float() | str() | NoneType():
            pass
        case _:
            raise TypeError(f"{key}: {type(value).__name__} can't be kept in a checkpoint")
