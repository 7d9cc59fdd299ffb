"""Compression: which entries of a vector are sent, and how they are encoded to bytes."""

from edgesim.compression.catalog import COMPRESSORS, CompressorKind, build_compressor
from edgesim.compression.compressors import (
    QSGD,
    Compressor,
    Identity,
    MinMaxUInt8,
    RandomK,
    SignScale,
    TopK,
)
from edgesim.compression.errors import CompressionError, WireError
from edgesim.compression.index_code import entropy_bytes
from edgesim.compression.payload import Payload
from edgesim.compression.value_codes import ValueFormat
from edgesim.compression.wire import ByteCounts, Message, decode, encode

__all__ = [
    "COMPRESSORS",
    "QSGD",
    "ByteCounts",
    "CompressionError",
    "Compressor",
    "CompressorKind",
    "Identity",
    "Message",
    "MinMaxUInt8",
    "Payload",
    "RandomK",
    "SignScale",
    "TopK",
    "ValueFormat",
    "WireError",
    "build_compressor",
    "decode",
    "encode",
    "entropy_bytes",
]
