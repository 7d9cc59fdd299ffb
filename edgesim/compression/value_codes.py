"""Quantization of numbers to codes of few bits, and back.

A value code defines the bits per entry, the scales per tensor, and the arithmetic from codes to
values. Sender and receiver compute the same values to the last bit: the arithmetic uses only
operations that IEEE 754 rounds exactly, on every processor.

Symbols:
    x: entry of a tensor   q: its code   s: largest code   step: value of code 1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from edgesim.compression import bits as bitstring
from edgesim.compression.bits import Bytes
from edgesim.compression.errors import WireError
from edgesim.compression.segments import Segments

Floats: TypeAlias = NDArray[np.float32 | np.float64]
Scales: TypeAlias = NDArray[np.float32]
Codes: TypeAlias = NDArray[np.generic]
ValueFormat: TypeAlias = Literal["fp32", "fp16", "int8", "fp64"]

# Smallest normal float32: dividing by it stays finite, and a zero tensor gets zero codes.
_SMALLEST_STEP = np.finfo(np.float32).tiny
_BAGUA_EPSILON = np.float32(1e-7)  # reference.md, section 7: bagua_kernels.cu:10


class ValueCode(Protocol):
    """Meaning of the codes of one message.

    Attributes:
        wire_id: number in the header; with `bits` it names the code.
        scales_per_tensor: how many float32 scales each tensor has.
    """

    wire_id: ClassVar[int]
    scales_per_tensor: ClassVar[int]

    @property
    def decode_ops(self) -> int:
        """Operations to make a value of a code."""
        ...

    @property
    def bits(self) -> int:
        """Bits per entry on the wire."""
        ...

    @property
    def label(self) -> str:
        """Name for messages to people."""
        ...

    def dequantize(self, codes: Codes, scales: Scales, segments: Segments) -> Floats:
        """Values of codes, shape (K,); may share memory with `codes`."""
        ...

    def fault(self, codes: Codes, scales: Scales) -> str | None:
        """The fault of codes or scales that no quantizer can make; None if they are possible."""
        ...

    def pack(self, codes: Codes) -> Bytes:
        """Codes as ceil(K * bits / 8) bytes; may share memory with `codes`."""
        ...

    def unpack(self, data: Bytes, count: int) -> Codes:
        """Invert `pack` into new memory; `data` has exactly the right length."""
        ...


class PlainCode(ValueCode, Protocol):
    """A code that any compressor can use for the entries it keeps."""

    @property
    def encode_ops(self) -> int:
        """Operations to make a code of a value."""
        ...

    def quantize(self, values: Floats, segments: Segments) -> tuple[Codes, Scales]:
        """Nearest codes, shape (K,), and scales, shape (T, scales_per_tensor)."""
        ...


@dataclass(frozen=True, slots=True)
class FloatCode:
    """IEEE 754 binary16, binary32 or binary64, without scales."""

    wire_id: ClassVar[int] = 1
    scales_per_tensor: ClassVar[int] = 0

    bits: int

    @property
    def encode_ops(self) -> int:
        """One operation, a rounding or a widening, unless the values have this format already."""
        return 0 if self.bits == 32 else 1

    @property
    def decode_ops(self) -> int:
        """A widening of fp16."""
        return 1 if self.bits == 16 else 0

    @property
    def label(self) -> str:
        """Such as fp16."""
        return f"fp{self.bits}"

    @property
    def _dtype(self) -> np.dtype[np.generic]:
        return np.dtype(f"<f{self.bits // 8}")

    def quantize(self, values: Floats, segments: Segments) -> tuple[Codes, Scales]:
        """Round each value to nearest, always into new memory."""
        no_scales = np.empty((len(segments.counts), 0), np.float32)
        if self.bits == 16:
            return _float16_from_float32(values.astype(np.float32, copy=False)), no_scales
        return values.astype(self._dtype), no_scales

    def dequantize(self, codes: Codes, scales: Scales, segments: Segments) -> Floats:
        """Widen to float32, or float64 for binary64."""
        del scales, segments
        if self.bits == 64:
            return codes.astype(np.float64, copy=False)
        if self.bits == 16:
            return _float32_from_float16(codes)
        return codes.astype(np.float32, copy=False)

    def fault(self, codes: Codes, scales: Scales) -> str | None:
        """Every bit pattern is a number; whether it is finite is checked on the values."""
        del codes, scales
        return None

    def pack(self, codes: Codes) -> Bytes:
        """The codes' own memory."""
        return codes.view(np.uint8)

    def unpack(self, data: Bytes, count: int) -> Codes:
        """Copy, aligned."""
        del count
        return data.copy().view(self._dtype)


@dataclass(frozen=True, slots=True)
class ScaledInteger:
    """Two's-complement q in [-s, s], s = 2**(bits - 1) - 1, with x = q step and one step a tensor.

    The lowest code, -s - 1, is never used, so that the code is symmetric.

    Attributes:
        bits: bits per entry, sign included; 2 to 8.
    """

    wire_id: ClassVar[int] = 2
    scales_per_tensor: ClassVar[int] = 1
    encode_ops: ClassVar[int] = 4  # |x|, maximum, x / step, rounding; back a product
    decode_ops: ClassVar[int] = 1

    bits: int

    @property
    def label(self) -> str:
        """Such as int8."""
        return f"int{self.bits}"

    @property
    def largest(self) -> int:
        """The largest code, s."""
        return (1 << (self.bits - 1)) - 1

    def quantize(self, values: Floats, segments: Segments) -> tuple[Codes, Scales]:
        """Nearest codes with step = max|x| / s; within half a step of each value."""
        x = values.astype(np.float32, copy=False)
        step = self.steps(segments.reduce(np.maximum, np.abs(x)))
        q = np.rint(x / segments.spread(step))
        return q.astype(np.int8), step[:, None]

    def quantize_stochastically(
        self, values: Floats, peaks: Floats, segments: Segments, rng: np.random.Generator
    ) -> tuple[Codes, Scales]:
        """Codes with mean x / step, where step = peak / s and no |x| is above its tensor's peak."""
        step = self.steps(peaks)
        y = values.astype(np.float32, copy=False) / segments.spread(step)
        y += rng.random(len(y), dtype=np.float32)
        # Clipped because rounding may make |x| / step slightly larger than s.
        q = np.clip(np.floor(y, out=y), -self.largest, self.largest, out=y)
        return q.astype(np.int8), step[:, None]

    def steps(self, peaks: Floats) -> NDArray[np.float32]:
        """Step of each tensor whose code s stands for its peak, shape (T,)."""
        return np.maximum(peaks / self.largest, _SMALLEST_STEP).astype(np.float32)

    def dequantize(self, codes: Codes, scales: Scales, segments: Segments) -> Floats:
        """Values q step, in float32."""
        return np.multiply(codes, segments.spread(scales[:, 0]), dtype=np.float32)

    def fault(self, codes: Codes, scales: Scales) -> str | None:
        """A code beyond s or -s, or a negative step."""
        if (scales < 0).any():
            return "a negative scale"
        if codes.size and int(codes.min()) < -self.largest:
            return f"a code below {-self.largest}"
        if codes.size and int(codes.max()) > self.largest:
            return f"a code above {self.largest}"
        return None

    def pack(self, codes: Codes) -> Bytes:
        """8-bit codes as they are; others packed one after the other."""
        if self.bits == 8:
            return codes.view(np.uint8)
        mask = np.uint8(2**self.bits - 1)
        return bitstring.pack_equal(codes.view(np.uint8) & mask, self.bits)

    def unpack(self, data: Bytes, count: int) -> Codes:
        """Fields with their sign extended."""
        if self.bits == 8:
            return data.copy().view(np.int8)
        unused = np.int8(8 - self.bits)  # bits that a signed shift fills with the sign
        fields = bitstring.unpack_equal(data, self.bits, count).view(np.int8)
        return (fields << unused) >> unused


@dataclass(frozen=True, slots=True)
class MinMaxByte:
    """Bagua's MinMaxUInt8, per tensor: zero is representable because the offset is whole.

    Source: reference.md, section 7.

    a = 255 / (max - min + eps);  U = rint(max a);  L = U - 255;  q = min(rint(x a), U) - L;
    decoded as (q + L) / a. All in float32. The scales of a tensor are its min and max.
    """

    wire_id: ClassVar[int] = 3
    scales_per_tensor: ClassVar[int] = 2
    encode_ops: ClassVar[int] = 7  # minimum, maximum, x a, rounding, - L, two ends; (q + L) / a
    decode_ops: ClassVar[int] = 2

    bits: ClassVar[int] = 8
    label: ClassVar[str] = "min-max uint8"

    def quantize(self, values: Floats, segments: Segments) -> tuple[Codes, Scales]:
        """Nearest codes."""
        x = values.astype(np.float32, copy=False)
        ranges = [segments.reduce(np.minimum, x), segments.reduce(np.maximum, x)]
        scales = np.stack(ranges, axis=1)
        a, lower = self._grid(scales)
        q = np.rint(x * segments.spread(a)) - segments.spread(lower)
        # Differs from Bagua: it has no lower clamp, and a code rounded below 0 would wrap to 255.
        return np.clip(q, 0, 255, out=q).astype(np.uint8), scales

    def dequantize(self, codes: Codes, scales: Scales, segments: Segments) -> Floats:
        """(q + L) / a."""
        a, lower = self._grid(scales)
        shifted = np.add(codes, segments.spread(lower), dtype=np.float32)
        return np.divide(shifted, segments.spread(a), out=shifted)

    @staticmethod
    def _grid(scales: Scales) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The numbers a and L of each tensor, shape (T,)."""
        low, high = scales[:, 0], scales[:, 1]
        a = np.float32(255) / (high - low + _BAGUA_EPSILON)
        return a, np.rint(high * a) - np.float32(255)

    def fault(self, codes: Codes, scales: Scales) -> str | None:
        """A minimum above its maximum."""
        del codes
        return "a minimum above its maximum" if (scales[:, 0] > scales[:, 1]).any() else None

    def pack(self, codes: Codes) -> Bytes:
        """The codes' own memory."""
        return codes.view(np.uint8)

    def unpack(self, data: Bytes, count: int) -> Codes:
        """Copy."""
        del count
        return data.copy()


@dataclass(frozen=True, slots=True)
class SignBit:
    """One bit an entry, set for x >= 0, and one magnitude a tensor."""

    wire_id: ClassVar[int] = 4
    scales_per_tensor: ClassVar[int] = 1
    encode_ops: ClassVar[int] = 3  # |x| and its sum, sign; 2 q - 1 and the magnitude
    decode_ops: ClassVar[int] = 3

    bits: ClassVar[int] = 1
    label: ClassVar[str] = "sign"

    def quantize(self, values: Floats, segments: Segments) -> tuple[Codes, Scales]:
        """Sign of each entry; the magnitude is the mean of |x| over the tensor."""
        sums = segments.reduce(np.add, np.abs(values, dtype=np.float64))
        means = (sums / segments.counts).astype(np.float32)
        return (values >= 0).view(np.uint8), means[:, None]

    def dequantize(self, codes: Codes, scales: Scales, segments: Segments) -> Floats:
        """Plus or minus the magnitude."""
        signs = codes.view(np.int8) * np.int8(2) - np.int8(1)
        values: Floats = np.multiply(signs, segments.spread(scales[:, 0]), dtype=np.float32)
        return values

    def fault(self, codes: Codes, scales: Scales) -> str | None:
        """A sign other than 0 and 1, or a negative magnitude."""
        if codes.size and int(codes.max()) > 1:
            return "a sign other than 0 and 1"
        return "a negative scale" if (scales < 0).any() else None

    def pack(self, codes: Codes) -> Bytes:
        """Eight signs a byte."""
        return np.packbits(codes.view(np.uint8), bitorder="little")

    def unpack(self, data: Bytes, count: int) -> Codes:
        """One byte a sign."""
        return np.unpackbits(data, count=count, bitorder="little")


def _float16_from_float32(values: NDArray[np.float32]) -> Codes:
    """Round to nearest even; the same bits as NumPy's cast, thirty times as fast."""
    rounded: Codes = torch.from_numpy(values).half().numpy()
    return rounded


def _float32_from_float16(codes: Codes) -> NDArray[np.float32]:
    own = codes if codes.flags.writeable else codes.copy()  # torch takes no read-only arrays
    widened: NDArray[np.float32] = torch.from_numpy(own).float().numpy()
    return widened


PLAIN_CODES: dict[str, PlainCode] = {
    "fp32": FloatCode(32),
    "fp16": FloatCode(16),
    "int8": ScaledInteger(8),
    "fp64": FloatCode(64),  # for numerical verification: no device would send it
}


def value_code(wire_id: int, bits: int) -> ValueCode:
    """The code that a header names.

    Raises:
        WireError: there is none.
    """
    if wire_id == FloatCode.wire_id and bits in {16, 32, 64}:
        return FloatCode(bits)
    if wire_id == ScaledInteger.wire_id and 2 <= bits <= 8:
        return ScaledInteger(bits)
    if wire_id == MinMaxByte.wire_id and bits == MinMaxByte.bits:
        return MinMaxByte()
    if wire_id == SignBit.wire_id and bits == SignBit.bits:
        return SignBit()
    raise WireError(f"no value code {wire_id} with {bits} bits is known")
