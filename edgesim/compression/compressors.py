"""Compressors: which entries of a vector are sent, and in how many bits.

All work tensor by tensor, or bucket by bucket of each (buckets.py), are stateless, and draw
randomness only from the generator they are given. Contractive compressors shrink the error,
|x - C(x)|^2 <= (1 - delta) |x|^2, which is what CHOCO and DeepSqueeze need; unbiased ones have
E C(x) = x. Compressors that drop entries do not rescale the others: that would make them unbiased,
but no longer contractive.

Symbols:
    x: vector   n: entries of a tensor, or of a bucket   k: kept entries of a tensor
    s: largest level
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgesim.compression.buckets import InBuckets
from edgesim.compression.conventions import (
    bagua_bytes,
    dense_conventions,
    dense_levels_conventions,
    sparse_conventions,
)
from edgesim.compression.errors import CompressionError, NonFiniteEntryError
from edgesim.compression.message_form import MessageForm
from edgesim.compression.payload import Payload
from edgesim.compression.segments import Segments
from edgesim.compression.selection import (
    kept_counts,
    largest_per_tensor,
    magnitude_keys,
    random_keys,
    selection_ops,
)
from edgesim.compression.value_codes import (
    PLAIN_CODES,
    Floats,
    MinMaxByte,
    PlainCode,
    ScaledInteger,
    SignBit,
    ValueCode,
    ValueFormat,
)
from edgesim.hardware.work import NOISE_OPS
from edgesim.learning.parameters import ParameterLayout


class Compressor(Protocol):
    """A frozen object of hyper-parameters.

    It may also have a method `message_layout`: the layout of its payloads (buckets.py).
    """

    @property
    def name(self) -> str:
        """Kind, as in a scenario."""
        ...

    @property
    def keep(self) -> float:
        """Share of each tensor's entries that a message holds; 1 if it holds all."""
        ...

    @property
    def error_grows(self) -> bool:
        """Whether the relative error of what has one scale grows with its length."""
        ...

    def form(self, layout: ParameterLayout) -> MessageForm:
        """What each message consists of: values and indices, and the work on them."""
        ...

    def conventions(self, layout: ParameterLayout) -> Mapping[str, int]:
        """Bytes of a message by each published convention (conventions.py); may be empty."""
        ...

    def compress(self, x: Tensor, layout: ParameterLayout, rng: np.random.Generator) -> Payload:
        """Compress a vector; the payload shares no memory with it, and is of `message_layout`.

        Args:
            x: shape (D,), float32 or float64, on the CPU.
            layout: the tensors that x consists of.
            rng: the only source of randomness.

        Raises:
            CompressionError: x does not fit the layout.
            NonFiniteEntryError: x holds NaN or infinity, or values beyond the range of the value
                format.
        """
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Sends every entry, rounded to the value format."""

    name: ClassVar[str] = "identity"
    keep: ClassVar[float] = 1.0
    error_grows: ClassVar[bool] = False

    values: ValueFormat

    def __post_init__(self) -> None:
        _check_format(self.values)

    def form(self, layout: ParameterLayout) -> MessageForm:
        """Sizes of a message and the work on it (`Compressor.form`)."""
        code = PLAIN_CODES[self.values]
        return MessageForm.dense(code, layout, encode_ops=code.encode_ops)

    def conventions(self, layout: ParameterLayout) -> Mapping[str, int]:
        """Bytes of a message by published conventions (`Compressor.conventions`)."""
        return dense_conventions(layout)

    def compress(self, x: Tensor, layout: ParameterLayout, rng: np.random.Generator) -> Payload:
        """Compress a vector (`Compressor.compress`)."""
        del rng
        return _dense_payload(self.name, PLAIN_CODES[self.values], _entries(x, layout), layout)


@dataclass(frozen=True, slots=True)
class TopK:
    """The k entries of largest magnitude of each tensor; of equal ones the first.

    Source: reference.md, section 3.6.

    Contractive with delta = k/n per tensor.

    Attributes:
        keep: share of each tensor that is sent, in (0, 1]; at least one entry of each is.
        values: format of what is sent.
    """

    name: ClassVar[str] = "top_k"
    error_grows: ClassVar[bool] = False

    keep: float
    values: ValueFormat

    def __post_init__(self) -> None:
        _check_keep(self.keep)
        _check_format(self.values)

    def form(self, layout: ParameterLayout) -> MessageForm:
        """Sizes of a message and the work on it (`Compressor.form`)."""
        code, counts = PLAIN_CODES[self.values], kept_counts(self.keep, layout)
        ops = selection_ops(self.keep, layout.numel, key_ops=1)
        return MessageForm.sparse(code, counts, layout, select_ops=ops)

    def conventions(self, layout: ParameterLayout) -> Mapping[str, int]:
        """Bytes of a message by published conventions (`Compressor.conventions`)."""
        return sparse_conventions(kept_counts(self.keep, layout), layout)

    def compress(self, x: Tensor, layout: ParameterLayout, rng: np.random.Generator) -> Payload:
        """Compress a vector (`Compressor.compress`)."""
        del rng
        entries = _entries(x, layout)
        keys, counts = magnitude_keys(entries), kept_counts(self.keep, layout)
        indices = largest_per_tensor(keys, counts, layout)
        code = PLAIN_CODES[self.values]
        return _sparse_payload(self.name, code, entries, indices, counts, layout)


@dataclass(frozen=True, slots=True)
class RandomK:
    """k entries of each tensor, every set of k equally likely, drawn anew for each vector.

    Contractive in the mean with delta = k/n per tensor.

    Attributes:
        keep: share of each tensor that is sent, in (0, 1]; at least one entry of each is.
        values: format of what is sent.
    """

    name: ClassVar[str] = "random_k"
    error_grows: ClassVar[bool] = False

    keep: float
    values: ValueFormat

    def __post_init__(self) -> None:
        _check_keep(self.keep)
        _check_format(self.values)

    def form(self, layout: ParameterLayout) -> MessageForm:
        """Sizes of a message and the work on it (`Compressor.form`)."""
        code, counts = PLAIN_CODES[self.values], kept_counts(self.keep, layout)
        ops = selection_ops(self.keep, layout.numel, key_ops=NOISE_OPS)
        return MessageForm.sparse(code, counts, layout, select_ops=ops)

    def conventions(self, layout: ParameterLayout) -> Mapping[str, int]:
        """Bytes of a message by published conventions (`Compressor.conventions`)."""
        return sparse_conventions(kept_counts(self.keep, layout), layout)

    def compress(self, x: Tensor, layout: ParameterLayout, rng: np.random.Generator) -> Payload:
        """Compress a vector (`Compressor.compress`)."""
        entries = _entries(x, layout)
        keys, counts = random_keys(layout.numel, rng), kept_counts(self.keep, layout)
        indices = largest_per_tensor(keys, counts, layout)
        code = PLAIN_CODES[self.values]
        return _sparse_payload(self.name, code, entries, indices, counts, layout)


@dataclass(frozen=True, slots=True)
class QSGD(InBuckets):
    """Stochastic levels of each tensor's norm (arXiv 1610.02132; reference.md, section 3.6).

    C(x) = sign(x) |x|_2 xi / s with s = 2**bits - 1 and xi one of the two whole numbers around
    s |x| / |x|_2, chosen at random so that E C(x) = x. A message holds the sign and the level of
    each entry, bits + 1 bits per entry. In buckets, as the publication has it, |x|_2 and n are
    those of the bucket.

    Attributes:
        bits: bits of a level, 1 to 7: with the sign at most a byte.
        biased: divide by 1 + min(n / s^2, sqrt(n) / s), which makes it contractive in the mean.
    """

    name: ClassVar[str] = "qsgd"
    keep: ClassVar[float] = 1.0
    error_grows: ClassVar[bool] = True

    bits: int
    biased: bool = False

    def __post_init__(self) -> None:
        InBuckets.__post_init__(self)
        if not 1 <= self.bits <= 7:
            raise CompressionError(f"qsgd: bits is {self.bits}; must be in 1 to 7")

    def form(self, layout: ParameterLayout) -> MessageForm:
        """Sizes of a message and the work on it (`Compressor.form`)."""
        code = ScaledInteger(self.bits + 1)
        # Operations: square, sum, x / step, noise, its sum, rounding, two clamps.
        return _bucket_form(self, code, layout, encode_ops=3 + NOISE_OPS + 4)

    def conventions(self, layout: ParameterLayout) -> Mapping[str, int]:
        """Bytes of a message by published conventions (`Compressor.conventions`)."""
        return dense_levels_conventions(layout)

    def compress(self, x: Tensor, layout: ParameterLayout, rng: np.random.Generator) -> Payload:
        """Compress a vector (`Compressor.compress`)."""
        entries = _entries(x, layout)
        code, buckets = ScaledInteger(self.bits + 1), self.message_layout(layout)
        s, n = code.largest, buckets.size_array
        segments = Segments(n)
        with np.errstate(all="ignore"):
            norms = np.sqrt(segments.reduce(np.add, np.square(entries, dtype=np.float64)))
            codes, scales = code.quantize_stochastically(entries, norms, segments, rng)
            if self.biased:
                scales = scales / (1 + np.minimum(n / s**2, np.sqrt(n) / s))[:, None]
        scales = scales.astype(np.float32, copy=False)
        return _checked(self.name, Payload(buckets, code, None, n, codes, scales), layout)


@dataclass(frozen=True, slots=True)
class MinMaxUInt8(InBuckets):
    """Every entry as one of 256 levels between its tensor's minimum and maximum (Bagua).

    Source: reference.md, section 7. In buckets, minimum and maximum are those of the bucket.
    """

    name: ClassVar[str] = "min_max_uint8"
    keep: ClassVar[float] = 1.0
    error_grows: ClassVar[bool] = False

    def form(self, layout: ParameterLayout) -> MessageForm:
        """Sizes of a message and the work on it (`Compressor.form`)."""
        code = MinMaxByte()
        return _bucket_form(self, code, layout, encode_ops=code.encode_ops)

    def conventions(self, layout: ParameterLayout) -> Mapping[str, int]:
        """Bytes of a message by published conventions (`Compressor.conventions`)."""
        return {"bagua": bagua_bytes(self.message_layout(layout))}

    def compress(self, x: Tensor, layout: ParameterLayout, rng: np.random.Generator) -> Payload:
        """Compress a vector (`Compressor.compress`)."""
        del rng
        entries, buckets = _entries(x, layout), self.message_layout(layout)
        return _dense_payload(self.name, MinMaxByte(), entries, layout, buckets)


@dataclass(frozen=True, slots=True)
class SignScale(InBuckets):
    """Sign of every entry times the mean magnitude of its tensor (arXiv 1901.09847, EF-signSGD).

    Contractive with delta = |x|_1^2 / (n |x|_2^2) per tensor. In buckets, as blockwise EF-signSGD
    (arXiv 1905.10936) has it, the mean and delta are those of the bucket.
    """

    name: ClassVar[str] = "sign_scale"
    keep: ClassVar[float] = 1.0
    error_grows: ClassVar[bool] = False

    def form(self, layout: ParameterLayout) -> MessageForm:
        """Sizes of a message and the work on it (`Compressor.form`)."""
        code = SignBit()
        return _bucket_form(self, code, layout, encode_ops=code.encode_ops)

    def conventions(self, layout: ParameterLayout) -> Mapping[str, int]:
        """Bytes of a message by published conventions (`Compressor.conventions`)."""
        del layout
        return {}

    def compress(self, x: Tensor, layout: ParameterLayout, rng: np.random.Generator) -> Payload:
        """Compress a vector (`Compressor.compress`)."""
        del rng
        entries, buckets = _entries(x, layout), self.message_layout(layout)
        return _dense_payload(self.name, SignBit(), entries, layout, buckets)


def _entries(x: Tensor, layout: ParameterLayout) -> Floats:
    """The vector as an array, checked."""
    if x.shape != (layout.numel,) or x.dtype not in {torch.float32, torch.float64}:
        raise CompressionError(
            f"cannot compress {tuple(x.shape)}, {x.dtype}; "
            f"the layout needs ({layout.numel},), float32 or float64"
        )
    entries: Floats = x.detach().numpy()
    _check_finite(entries, None, layout, "is not finite")
    return entries


def _bucket_form(
    compressor: InBuckets, code: ValueCode, layout: ParameterLayout, *, encode_ops: int
) -> MessageForm:
    buckets, has_buckets = compressor.message_layout(layout), compressor.bucket_size is not None
    return MessageForm.dense(code, buckets, encode_ops=encode_ops, moves_scales=has_buckets)


def _dense_payload(
    name: str,
    code: PlainCode,
    entries: Floats,
    layout: ParameterLayout,
    buckets: ParameterLayout | None = None,
) -> Payload:
    sent = buckets or layout
    return _quantized(name, code, entries, None, sent.size_array, sent, layout)


def _sparse_payload(
    name: str,
    code: PlainCode,
    entries: Floats,
    indices: NDArray[np.int64],
    counts: NDArray[np.int64],
    layout: ParameterLayout,
) -> Payload:
    return _quantized(name, code, entries[indices], indices, counts, layout, layout)


def _quantized(
    name: str,
    code: PlainCode,
    values: Floats,
    indices: NDArray[np.int64] | None,
    counts: NDArray[np.int64],
    sent: ParameterLayout,
    layout: ParameterLayout,
) -> Payload:
    with np.errstate(all="ignore"):  # _checked looks for values that are not finite
        codes, scales = code.quantize(values, Segments(counts))
    return _checked(name, Payload(sent, code, indices, counts, codes, scales), layout)


def _checked(name: str, payload: Payload, layout: ParameterLayout) -> Payload:
    """Refuse a payload with values that are not finite; its receivers would refuse it too.

    `layout` is that of the vector, whose tensors an error names.
    """
    label = payload.code.label
    remedy = "lower training.optimizer.lr"
    if label in {"fp16", "int8"}:
        remedy += ", or choose values: fp32"
    problem = f"is beyond the range of {name} in {label}; {remedy}"
    _check_finite(payload.values, payload.indices, layout, problem)
    return payload


def _check_finite(
    values: Floats, indices: NDArray[np.int64] | None, layout: ParameterLayout, problem: str
) -> None:
    is_finite = np.isfinite(values)
    if is_finite.all():
        return
    first = int(np.argmin(is_finite))
    position = first if indices is None else int(indices[first])
    tensor = int(np.searchsorted(layout.offsets, position, side="right")) - 1
    raise NonFiniteEntryError(
        f"{layout.names[tensor]}: entry {position - layout.offsets[tensor]} {problem}"
    )


def _check_keep(keep: float) -> None:
    if not 0 < keep <= 1:
        raise CompressionError(f"keep is {keep}; must be in (0, 1], such as 0.01 for 1 %")


def _check_format(values: str) -> None:
    if values not in PLAIN_CODES:
        raise CompressionError(f"values is {values!r}; must be one of {', '.join(PLAIN_CODES)}")
