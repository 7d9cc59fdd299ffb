"""Messages as bytes: the only definition of a message's size.

    header    61 bytes, see `HEADER`, then the algorithm's name in ASCII
    notes     in handovers and copies alone: uint32, their number; then as many uint32
    scales    float32, per tensor as many as the value code has
    indices   see index_code.py; empty for a dense payload
    values    K codes, packed end to end

All numbers are little-endian. A message has one encoding, and no other is accepted: bits that fill
up a byte are zero, each tensor's indices are in their shortest mode. The checksum is the CRC-32 of
body, header (without the checksum), name and notes, in this order. So the CRC of the body is
computed once for a payload that is sent on several edges.

Symbols:
    D: entries of the flat vector   K: entries in the payload
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
import zlib
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from edgesim.compression.bits import Bytes, ends_in_zeros
from edgesim.compression.errors import WireError
from edgesim.compression.index_code import decode_indices
from edgesim.compression.payload import Payload
from edgesim.compression.value_codes import ValueCode, value_code
from edgesim.learning.parameters import ParameterLayout

MAGIC = b"ESIM"
VERSION = 2
DENSE, SPARSE = 0, 1

Kind: TypeAlias = Literal["share", "handover", "copy"]
"""A share of gossip, or a last message of a leaver: its x and u, or one public copy."""

_KINDS: tuple[Kind, ...] = get_args(Kind)
_KIND_FACTOR = 16  # kind and selection share a byte

# magic, version, dense or sparse and 16 times the kind, value code, its bits, length of the name;
# sender, receiver, sequence, round; weight, push weight; layout digest, K, index bytes, message
# bytes, checksum
HEADER = struct.Struct("<4sBBBBB4I2d5I")

_CHECKSUM = struct.Struct("<I")  # the header's last field
_COUNT = struct.Struct("<I")  # of the notes
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


class _Header(NamedTuple):
    """Fields of `HEADER` in order."""

    magic: bytes
    version: int
    form: int
    value_code: int
    value_bits: int
    name_bytes: int
    sender: int
    receiver: int
    sequence: int
    round_index: int
    weight: float
    push_weight: float
    layout_digest: int
    num_values: int
    index_bytes: int
    message_bytes: int
    checksum: int


@dataclass(frozen=True, slots=True)
class ByteCounts:
    """Bytes of one or several messages, by part.

    Attributes:
        values: packed codes.
        indices: index code, with its mode and count per tensor.
        scales: scales of all tensors.
        header: everything else, the algorithm's name included.
    """

    values: int
    indices: int
    scales: int
    header: int

    @property
    def total(self) -> int:
        """Length of the message."""
        return self.values + self.indices + self.scales + self.header

    def __add__(self, other: ByteCounts) -> ByteCounts:
        """Sum of two counts."""
        return ByteCounts(
            self.values + other.values,
            self.indices + other.indices,
            self.scales + other.scales,
            self.header + other.header,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """One payload on one edge.

    Attributes:
        algorithm: name of the gossip algorithm; lower case, at most 32 characters.
        sender: device j of the edge j -> i.
        receiver: device i.
        sequence: number of the message on its edge.
        round_index: the sender's round.
        weight: w, the share of the sender's mass that travels on this edge.
        push_weight: u of the sender.
        payload: the compressed vector.
        kind: what the message is.
        notes: whole numbers beside the payload of a handover or of copies; a share has none.
        arrived_bytes: length of the encoded message that arrived; None if the message was made
            here.

    Raises:
        WireError: a number that the header cannot hold, or that no receiver would accept.
    """

    algorithm: str
    sender: int
    receiver: int
    sequence: int
    round_index: int
    weight: float
    push_weight: float
    payload: Payload
    kind: Kind = "share"
    notes: tuple[int, ...] = ()
    arrived_bytes: int | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.algorithm):
            raise WireError(f"algorithm is {self.algorithm!r}; must be 1 to 32 of a-z, 0-9 and _")
        for field in ("sender", "receiver", "sequence", "round_index"):
            number = getattr(self, field)
            if not isinstance(number, (int, np.integer)) or not 0 <= number < 2**32:
                raise WireError(f"{field} is {number}; must be a whole number below 2**32")
        for field in ("weight", "push_weight"):
            number = getattr(self, field)
            if not (math.isfinite(number) and number >= 0):
                raise WireError(f"{field} is {number}; must be finite and not negative")
        if self.kind not in _KINDS:
            raise WireError(f"kind is {self.kind!r}; must be one of {', '.join(_KINDS)}")
        if self.kind == "share" and self.notes:
            raise WireError(f"a share with {len(self.notes)} notes; must have none")
        if any(not 0 <= note < 2**32 for note in self.notes):
            raise WireError("a note is no whole number below 2**32")

    @property
    def byte_counts(self) -> ByteCounts:
        """Bytes of the encoded message by kind; encodes the payload unless that was done before."""
        sections = self.payload.sections
        return ByteCounts(
            values=len(sections.values),
            indices=len(sections.indices),
            scales=len(sections.scales),
            header=HEADER.size + len(self.algorithm) + len(_encoded_notes(self)),
        )

    @property
    def wire_bytes(self) -> int:
        """Length of the encoded message, without encoding a message that arrived again."""
        return self.byte_counts.total if self.arrived_bytes is None else self.arrived_bytes


def encode(message: Message) -> bytes:
    """Write a message; its length is `message.byte_counts.total`.

    Raises:
        WireError: the message is longer than 4 GiB.
    """
    payload, sections = message.payload, message.payload.sections
    num_bytes = message.byte_counts.total
    if num_bytes >= 2**32:
        raise WireError(f"a message of {num_bytes} bytes; must be below 2**32")
    name = message.algorithm.encode("ascii")
    header = HEADER.pack(
        *_Header(
            magic=MAGIC,
            version=VERSION,
            form=(DENSE if payload.indices is None else SPARSE)
            + _KIND_FACTOR * _KINDS.index(message.kind),
            value_code=payload.code.wire_id,
            value_bits=payload.code.bits,
            name_bytes=len(name),
            sender=message.sender,
            receiver=message.receiver,
            sequence=message.sequence,
            round_index=message.round_index,
            weight=message.weight,
            push_weight=message.push_weight,
            layout_digest=payload.layout.digest,
            num_values=payload.num_values,
            index_bytes=len(sections.indices),
            message_bytes=num_bytes,
            checksum=0,
        )
    )[: -_CHECKSUM.size]
    name += _encoded_notes(message)
    checksum = _CHECKSUM.pack(zlib.crc32(name, zlib.crc32(header, sections.checksum)))
    body = (sections.scales.data, sections.indices.data, sections.values.data)
    return b"".join((header, checksum, name, *body))


def message_checksum(data: bytes | bytearray | memoryview) -> int:
    """The checksum that a message of at least header length should have."""
    view = memoryview(data)
    header = _Header._make(HEADER.unpack_from(view))
    body_at = HEADER.size + header.name_bytes + _note_bytes(view, header)
    checksum = zlib.crc32(view[body_at:])
    checksum = zlib.crc32(view[: HEADER.size - _CHECKSUM.size], checksum)
    return zlib.crc32(view[HEADER.size : body_at], checksum)


def announced_bytes(head: bytes | bytearray | memoryview | NDArray[np.uint8]) -> int:
    """Length of a message that begins with `head`, of `HEADER.size` bytes, as it says itself.

    For a receiver of a stream of bytes; `decode` checks the message.

    Raises:
        WireError: no message begins so.
    """
    header = _Header._make(HEADER.unpack(bytes(head)))
    if header.magic != MAGIC or header.message_bytes <= HEADER.size:
        raise WireError(f"no message begins with {bytes(head[:8])!r}")
    return header.message_bytes


def decode(
    data: bytes | bytearray | memoryview | NDArray[np.uint8],
    layout: ParameterLayout,
    cache: MutableMapping[bytes, Payload] | None = None,
) -> Message:
    """Read a message and check all of it; the result keeps no reference to `data`.

    `encode` gives the same bytes again. Memory is bounded by a small multiple of the layout's dense
    vector and of the notes, whatever the message says.

    Args:
        data: the message.
        layout: of the model that it must be of.
        cache: cache of decoded payloads of this layout, by their encoded bytes. A payload that
            arrives on several edges is decoded once.

    Raises:
        WireError: `data` is no intact message of a model with this layout.
    """
    try:
        view = (data.data if isinstance(data, np.ndarray) else memoryview(data)).cast("B")
    except TypeError as error:
        raise WireError(f"a message must be contiguous bytes: {error}") from None
    header = _checked_header(view, layout)
    notes_at = HEADER.size + header.name_bytes
    body_at = notes_at + _note_bytes(view, header)
    code = value_code(header.value_code, header.value_bits)
    try:
        algorithm = str(view[HEADER.size : notes_at], "ascii")
    except UnicodeDecodeError:
        raise WireError("the algorithm's name is not ASCII") from None
    return Message(
        algorithm=algorithm,
        sender=header.sender,
        receiver=header.receiver,
        sequence=header.sequence,
        round_index=header.round_index,
        weight=header.weight,
        push_weight=header.push_weight,
        payload=_payload_from(cache, view[body_at:], header, code, layout),
        kind=_KINDS[header.form // _KIND_FACTOR],
        notes=tuple(np.frombuffer(view[notes_at:body_at], "<u4")[1:].tolist()),
        arrived_bytes=len(view),
    )


def decode_one_of(
    data: bytes | bytearray | memoryview | NDArray[np.uint8],
    layouts: Mapping[int, ParameterLayout],
    cache: MutableMapping[bytes, Payload] | None = None,
) -> Message:
    """Read a message whose vector has one of several layouts; as `decode` otherwise.

    Args:
        data: the message.
        layouts: by their digests, at least one.
        cache: as for `decode`.

    Raises:
        WireError: `data` is no intact message with one of these layouts.
    """
    first = next(iter(layouts.values()))
    if len(layouts) == 1 or len(data) < HEADER.size:
        return decode(data, first, cache)
    header = _Header._make(HEADER.unpack_from(bytes(data[: HEADER.size])))
    return decode(data, layouts.get(header.layout_digest, first), cache)


def _encoded_notes(message: Message) -> bytes:
    """Count and notes of a message that is no share; empty for a share."""
    if message.kind == "share":
        return b""
    return struct.pack(f"<I{len(message.notes)}I", len(message.notes), *message.notes)


def _note_bytes(view: memoryview, header: _Header) -> int:
    """Bytes that count and notes take, as far as the message goes."""
    start = HEADER.size + header.name_bytes
    if header.form < _KIND_FACTOR or len(view) < start + _COUNT.size:
        return 0
    (count,) = _COUNT.unpack_from(view, start)
    return min(_COUNT.size * (1 + int(count)), len(view) - start)


def _checked_header(view: memoryview, layout: ParameterLayout) -> _Header:
    """The header of a message whose length, version, checksum and layout are right."""
    if len(view) < HEADER.size:
        raise WireError(f"{len(view)} bytes are too few for a message")
    header = _Header._make(HEADER.unpack_from(view))
    if header.magic != MAGIC:
        raise WireError(f"a message starts with {MAGIC!r}, not with {header.magic!r}")
    if header.version != VERSION:
        raise WireError(f"version {header.version} of the format; this program reads {VERSION}")
    if header.form >= _KIND_FACTOR * len(_KINDS):
        raise WireError(f"no message is of form {header.form}")
    if header.message_bytes != len(view) or len(view) <= HEADER.size + header.name_bytes:
        raise WireError(f"{header.message_bytes} bytes announced, {len(view)} arrived")
    if header.checksum != message_checksum(view):
        raise WireError("the checksum is wrong: the message was damaged on its way")
    if header.form >= _KIND_FACTOR:
        _check_notes(view, header)
    if header.layout_digest != layout.digest:
        raise WireError(
            f"layout {header.layout_digest:08x} is not this model's {layout.digest:08x}: "
            "sender and receiver must train the same model"
        )
    return header


def _check_notes(view: memoryview, header: _Header) -> None:
    """Refuse notes that are announced and not there."""
    start, there = HEADER.size + header.name_bytes, _note_bytes(view, header)
    if not there or there != _COUNT.size * (1 + int(_COUNT.unpack_from(view, start)[0])):
        raise WireError("the message is too short for its notes")


def _payload_from(
    cache: MutableMapping[bytes, Payload] | None,
    body: memoryview,
    header: _Header,
    code: ValueCode,
    layout: ParameterLayout,
) -> Payload:
    """The payload of a body, from the cache if it is there; dense payloads are not cached.

    Decoding a dense payload is faster than the look-up.

    The body and these fields of the header determine the payload; an algorithm may have several
    layouts. The key is a SHA-256, so that two
    payloads are never confused.
    """
    if cache is None or header.form % _KIND_FACTOR == DENSE:
        return _payload(np.frombuffer(body, np.uint8), header, code, layout)
    fields = (
        *(header.form, header.value_code, header.value_bits, header.num_values),
        *(header.index_bytes, header.layout_digest),
    )
    digest = hashlib.sha256(repr(fields).encode())
    digest.update(body)
    key = digest.digest()
    payload = cache.get(key)
    if payload is None:
        payload = cache[key] = _payload(np.frombuffer(body, np.uint8), header, code, layout)
    return payload


def _payload(body: Bytes, header: _Header, code: ValueCode, layout: ParameterLayout) -> Payload:
    """Decode a body, whose length must be exactly that of its header."""
    num_values = header.num_values
    selection = header.form % _KIND_FACTOR
    is_dense = selection == DENSE
    if selection not in {DENSE, SPARSE} or (is_dense and header.index_bytes):
        raise WireError(f"neither dense nor sparse: {selection}")
    if num_values > layout.numel or (is_dense and num_values != layout.numel):
        raise WireError(f"{num_values} entries for a vector of {layout.numel}")
    scale_bytes = 4 * code.scales_per_tensor * layout.num_tensors
    values_at = scale_bytes + header.index_bytes
    value_bytes = -(-num_values * code.bits // 8)
    if len(body) != values_at + value_bytes:
        raise WireError(f"a body of {len(body)} bytes; the header needs {values_at + value_bytes}")
    if not ends_in_zeros(body[values_at:], num_values * code.bits):
        raise WireError("bits after the last value that are not zero")

    indices, counts = None, layout.size_array
    if not is_dense:
        indices, counts = decode_indices(body[scale_bytes:values_at], num_values, layout)
    scales = body[:scale_bytes].copy().view("<f4")
    payload = Payload(
        layout=layout,
        code=code,
        indices=indices,
        counts=counts,
        codes=code.unpack(body[values_at:], num_values),
        scales=scales.reshape(layout.num_tensors, code.scales_per_tensor),
    )
    _check_content(payload)
    return payload


def _check_content(payload: Payload) -> None:
    if not np.isfinite(payload.scales).all():
        raise WireError("a scale is not finite")
    fault = payload.code.fault(payload.codes, payload.scales)
    if fault:
        raise WireError(f"{payload.code.label}: {fault}")
    if not np.isfinite(payload.values).all():
        raise WireError("a value is not finite")
