"""Compressors by the name that a scenario gives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgesim.compression.compressors import (
    QSGD,
    Compressor,
    Identity,
    MinMaxUInt8,
    RandomK,
    SignScale,
    TopK,
)
from edgesim.compression.errors import CompressionError


@dataclass(frozen=True, slots=True)
class CompressorKind:
    """A class of compressors.

    Attributes:
        build: the class; takes the options as keywords.
        description: one line for people.
        options: names of all options.
        required: names of those without a default.
    """

    build: Callable[..., Compressor]
    description: str
    options: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


COMPRESSORS: dict[str, CompressorKind] = {
    "identity": CompressorKind(
        Identity, "every entry, in fp32, fp16 or int8", ("values",), ("values",)
    ),
    "top_k": CompressorKind(
        TopK, "the largest entries of each tensor", ("keep", "values"), ("keep", "values")
    ),
    "random_k": CompressorKind(
        RandomK, "random entries of each tensor", ("keep", "values"), ("keep", "values")
    ),
    "qsgd": CompressorKind(
        QSGD, "stochastic levels of each tensor's norm", ("bits", "biased"), ("bits",)
    ),
    "min_max_uint8": CompressorKind(MinMaxUInt8, "256 levels between min and max, as in Bagua"),
    "sign_scale": CompressorKind(SignScale, "one sign bit an entry, one magnitude a tensor"),
}


def build_compressor(kind: str, **options: object) -> Compressor:
    """Build a compressor from a scenario's words.

    Raises:
        CompressionError: unknown kind, missing or unknown option, or an option out of range.
    """
    if kind not in COMPRESSORS:
        raise CompressionError(f"no compressor {kind!r}; there are {', '.join(COMPRESSORS)}")
    entry = COMPRESSORS[kind]
    unknown = sorted(options.keys() - set(entry.options))
    if unknown:
        known = ", ".join(entry.options) or "no options"
        raise CompressionError(f"{kind}: unknown option {', '.join(unknown)}; it takes {known}")
    missing = sorted(set(entry.required) - options.keys())
    if missing:
        raise CompressionError(f"{kind}: needs {', '.join(missing)}")
    return entry.build(**options)
