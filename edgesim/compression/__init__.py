"""Compression: which entries of a vector are sent, and how they are encoded to bytes."""

from edgesim.compression.compilation import load_compiled_code
from edgesim.compression.compressors import (
    QSGD,
    Compressor,
    Identity,
    MinMaxUInt8,
    RandomK,
    SignScale,
    TopK,
)
from edgesim.compression.errors import CompressionError, NonFiniteEntryError, WireError
from edgesim.compression.index_code import entropy_bytes
from edgesim.compression.payload import Payload
from edgesim.compression.value_codes import ValueFormat
from edgesim.compression.wire import ByteCounts, Message, decode, decode_one_of, encode

__all__ = [
    "QSGD",
    "ByteCounts",
    "CompressionError",
    "Compressor",
    "Identity",
    "Message",
    "MinMaxUInt8",
    "NonFiniteEntryError",
    "Payload",
    "RandomK",
    "SignScale",
    "TopK",
    "ValueFormat",
    "WireError",
    "decode",
    "decode_one_of",
    "encode",
    "entropy_bytes",
    "load_compiled_code",
]
