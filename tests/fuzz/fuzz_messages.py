"""Messages, sound and forged: what is accepted encodes to the same bytes, all else is refused.

A case decodes one message. It may be as the encoder wrote it, damaged, or forged: changed, with
length and checksum made right again. `WireError` is the only exception; memory stays within a
small multiple of the model's vector.
"""

from __future__ import annotations

import random
import struct
import tracemalloc
from functools import cache

import numpy as np
import torch

from edgesim.compression.buckets import in_buckets
from edgesim.compression.compressors import QSGD, Identity, MinMaxUInt8, RandomK, SignScale, TopK
from edgesim.compression.errors import WireError
from edgesim.compression.payload import Payload
from edgesim.compression.segments import Segments
from edgesim.compression.value_codes import FloatCode, MinMaxByte, ScaledInteger, SignBit
from edgesim.compression.wire import HEADER, Message, decode_one_of, encode, message_checksum
from edgesim.learning.parameters import ParameterLayout

NUM_IN_TESTS = 800

LAYOUTS = [
    ParameterLayout.from_shapes(shapes)
    for shapes in (
        [(1,)],
        [(8,), (5,), (1,)],
        [(40, 3), (17,), (1,), (300,)],
        [(4,)] * 60,
        [(2000,), (3,)],
        [(20_000,), (100,)],
        [(300_000,), (70, 100), (3,)],
    )
]
BUCKET_SIZE = 50
KNOWN = [  # to a receiver: a model's layout, and that of its buckets
    {of.digest: of for of in (layout, in_buckets(layout, BUCKET_SIZE))} for layout in LAYOUTS
]
LARGE = len(LAYOUTS) - 1  # of which a vector outweighs all tables and blocks
LARGE_EVERY = 50  # it takes time; always measured
COMPRESSORS = [
    *(Identity(values) for values in ("fp16", "fp32", "int8", "fp64")),
    *(TopK(keep, values) for keep in (0.01, 0.3, 1.0) for values in ("fp16", "fp32", "int8")),
    RandomK(0.1, "fp64"),
    RandomK(0.6, "int8"),
    *(QSGD(bits) for bits in (1, 2, 4, 7)),
    MinMaxUInt8(),
    SignScale(),
    QSGD(3, bucket_size=BUCKET_SIZE),
    MinMaxUInt8(bucket_size=BUCKET_SIZE),
    SignScale(bucket_size=BUCKET_SIZE),
]
SPARSE_CODES = [SignBit(), ScaledInteger(3), ScaledInteger(8), MinMaxByte(), FloatCode(16)]
VARIANTS = 40  # messages of a layout
DIGEST_AT, INDEX_BYTES_AT, LENGTH_AT, CHECKSUM_AT = (HEADER.size - at for at in (20, 12, 8, 4))
TELLING = (0, 1, 2, 3, 0x7F, 0x80, 0xFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1)

# Of a vector of D entries in fp32: 3.25 times it is what a sparse message of all entries keeps.
MOST_BYTES_PER_ENTRY = 6 * 4
MOST_BYTES_BESIDE = 1_500_000  # tables, blocks of entries, notes
MEASURED_EVERY = 8  # tracemalloc takes time


def check(seed):
    """One message."""
    rng = random.Random(seed)
    which = LARGE if seed % LARGE_EVERY == 0 else rng.randrange(LARGE)
    data = original(which, rng.randrange(VARIANTS))
    is_whole = rng.random() < 0.05
    if not is_whole:
        length, data = len(data), bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            data = rng.choice(MUTATIONS)(data, rng, which)
        if rng.random() < 0.9:
            data = forged(data, rng, which, len(data) - length)
    data = bytes(data)
    if which != LARGE and seed % MEASURED_EVERY:
        message = decoded(data, KNOWN[which])
    else:
        message = measured(data, KNOWN[which])
    if message is None:
        assert not is_whole, "a sound message was refused"
        return
    assert np.isfinite(message.payload.values).all()
    assert encode(message) == data, "an encoding was accepted that the encoder does not write"


def decoded(data, layouts):
    """None for a refusal."""
    try:
        return decode_one_of(data, layouts)
    except WireError:
        return None


def measured(data, layouts):
    """`decoded`, its memory held against the bound."""
    tracemalloc.start()
    try:
        message = decoded(data, layouts)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    numel = next(iter(layouts.values())).numel
    assert peak < MOST_BYTES_PER_ENTRY * numel + MOST_BYTES_BESIDE, f"{peak} bytes taken"
    return message


@cache
def original(which, variant):
    """A sound message of a layout."""
    layout, rng = LAYOUTS[which], np.random.default_rng([which, variant])
    x = rng.standard_normal(layout.numel).astype(np.float32)
    x[rng.random(layout.numel) < rng.choice([0.0, 0.0, 0.9])] = 0
    if variant % 3:
        compressor = COMPRESSORS[variant * 2 // 3 % len(COMPRESSORS)]
        payload = compressor.compress(torch.from_numpy(x), layout, rng)
    else:
        payload = sparse_payload(x, layout, rng)
    kind, notes = "share", ()
    if variant % 8 == 7:
        kind = ("handover", "copy")[variant // 8 % 2]
        notes = tuple(rng.integers(0, 2**32, variant // 8).tolist())
    return encode(
        Message(
            algorithm=("choco", "dcd", "x")[variant % 3],
            sender=int(rng.integers(2**32)),
            receiver=variant,
            sequence=variant,
            round_index=variant,
            weight=0.5,
            push_weight=float(rng.choice([0.0, 1.0, 1e-300])),
            payload=payload,
            kind=kind,
            notes=notes,
        )
    )


def sparse_payload(x, layout, rng):
    """Some places and codes, of which no compressor sends all kinds; tensors may be empty."""
    code = SPARSE_CODES[rng.integers(len(SPARSE_CODES))]
    shares = rng.choice([0.0, 0.01, 0.1, 0.5, 1.0], layout.num_tensors)
    is_kept = rng.random(layout.numel) < Segments(layout.size_array).spread(shares)
    kept = np.flatnonzero(is_kept)
    counts = np.diff(np.searchsorted(kept, layout.offsets))
    ends = np.cumsum(counts)
    codes = np.zeros(0, np.int8)
    scales = np.ones((layout.num_tensors, code.scales_per_tensor), np.float32)
    for start, end in zip(ends - counts, ends, strict=True):
        if end > start:
            some, _ = code.quantize(x[kept[start:end]], Segments(np.array([end - start])))
            codes = np.concatenate([codes.astype(some.dtype), some])
    if not len(codes):
        codes, _ = code.quantize(x[:1], Segments(np.ones(1, np.int64)))
        codes = codes[:0]
    return Payload(layout, code, kept, counts, codes, scales)


def forged(data, rng, which, surplus):
    """With checksum and length made right, mostly with all that any receiver checks first.

    A length that changed may be made up for by that of the indices.
    """
    if len(data) < HEADER.size:
        return data
    if rng.random() < 0.9:
        start, digest = original(which, 0)[:5], rng.choice(list(KNOWN[which]))
        data[: len(start)] = start  # magic and version
        struct.pack_into("<I", data, DIGEST_AT, digest)
    if rng.random() < 0.5:
        (index_bytes,) = struct.unpack_from("<I", data, INDEX_BYTES_AT)
        struct.pack_into("<I", data, INDEX_BYTES_AT, (index_bytes + surplus) % 2**32)
    struct.pack_into("<I", data, LENGTH_AT, len(data))
    struct.pack_into("<I", data, CHECKSUM_AT, message_checksum(data))
    return data


def flip_bits(data, rng, which):
    """Anywhere."""
    for _ in range(rng.randint(1, 4) if data else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def flip_late_bit(data, rng, which):
    """In the last bytes, where padding is."""
    if data:
        data[-rng.randint(1, min(len(data), 3))] ^= 1 << rng.randrange(8)
    return data


def lie_in_header(data, rng, which):
    """A field of the header, or some bytes of it, with a telling number."""
    size = rng.choice((1, 2, 4, 8))
    start = rng.randrange(HEADER.size)
    data[start : start + size] = rng.choice(TELLING).to_bytes(8, "little")[:size]
    return data


def change_number(data, rng, which):
    """One of the header's counts by a little."""
    at = HEADER.size - 4 * rng.randint(2, 5)
    if len(data) >= HEADER.size:
        (number,) = struct.unpack_from("<I", data, at)
        struct.pack_into("<I", data, at, (number + rng.choice((-8, -2, -1, 1, 2, 8))) % 2**32)
    return data


def change_kind(data, rng, which):
    """Dense to sparse, a share to a handover, another value code or width."""
    if len(data) > 8:
        data[rng.choice((5, 6, 7))] = rng.randrange(20)
    return data


def rewrite_table(data, rng, which):
    """A mode or a count of the index table, where it may lie."""
    start = HEADER.size + rng.choice((1, 3, 5)) + 4 * rng.choice((0, 1, 2)) * rng.choice((0, 1, 4))
    at = start + rng.randrange(130)
    if at < len(data):
        data[at] = rng.choice((0, 1, 2, 3, 4, 5, 8, 15, 16, 33, 127, 128, 255))
    return data


def overwrite(data, rng, which):
    """A run of bytes, by noise, zeros or ones."""
    start, size = rng.randrange(len(data) + 1), rng.randint(1, 40)
    run = rng.choice((rng.randbytes(size), bytes(size), b"\xff" * size))
    data[start : start + size] = run
    return data


def cut(data, rng, which):
    """From somewhere on, or a few bytes."""
    return data[: rng.choice((rng.randrange(len(data) + 1), max(0, len(data) - rng.randint(1, 9))))]


def lengthen(data, rng, which):
    """By zeros, by noise, by a lot."""
    size = rng.choice((1, 1, 2, 7, 100, 20_000))
    return data + rng.choice((bytes(size), rng.randbytes(size), b"\xff" * size))


def insert(data, rng, which):
    """Bytes in the middle."""
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice((b"\0", b"\x80", rng.randbytes(4))) + data[at:]


def splice(data, rng, which):
    """Header of one message, end of another."""
    other = original(which, rng.randrange(VARIANTS))
    cut_at = rng.choice((HEADER.size, rng.randrange(len(data) + 1)))
    return data[:cut_at] + other[rng.choice((HEADER.size, rng.randrange(len(other)))) :]


def noise(data, rng, which):
    """Nothing of the message, or its header alone."""
    return data[: rng.choice((0, HEADER.size))] + bytearray(rng.randbytes(rng.randrange(400)))


MUTATIONS = [
    flip_bits,
    flip_bits,
    flip_late_bit,
    lie_in_header,
    change_number,
    change_kind,
    rewrite_table,
    rewrite_table,
    overwrite,
    cut,
    lengthen,
    insert,
    splice,
    noise,
]
