"""Work of a step: counts that do not depend on clocks or prices."""

from __future__ import annotations

from dataclasses import dataclass

from edgesim.hardware.widths import FLOAT_BYTES

NOISE_OPS = 7  # quant/rounding_noise.py: 12 for two entries (hash 10, halves 2), then each scaled


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Operations and memory traffic of a step, or of several.

    A multiply-accumulate (MAC) is one product and one addition. Its precision is that of its
    operands; sums of 8-bit products are 32 bits wide, sums of 16-bit ones as well.

    Attributes:
        macs_int8: products of 8-bit codes.
        macs_16bit: products with a 16-bit float operand.
        macs_fp32: products of 32-bit floats.
        elementwise_ops: additions, products, comparisons and the like outside of MACs.
        traffic_bytes: bytes read from and written to memory, each operand of each layer once.
    """

    macs_int8: int = 0
    macs_16bit: int = 0
    macs_fp32: int = 0
    elementwise_ops: int = 0
    traffic_bytes: int = 0

    @property
    def macs(self) -> int:
        """MACs of all precisions."""
        return self.macs_int8 + self.macs_16bit + self.macs_fp32

    def __add__(self, other: Work) -> Work:
        """Work of both."""
        return Work(
            macs_int8=self.macs_int8 + other.macs_int8,
            macs_16bit=self.macs_16bit + other.macs_16bit,
            macs_fp32=self.macs_fp32 + other.macs_fp32,
            elementwise_ops=self.elementwise_ops + other.elementwise_ops,
            traffic_bytes=self.traffic_bytes + other.traffic_bytes,
        )

    def __mul__(self, times: int) -> Work:
        """The same work several times."""
        return Work(
            macs_int8=self.macs_int8 * times,
            macs_16bit=self.macs_16bit * times,
            macs_fp32=self.macs_fp32 * times,
            elementwise_ops=self.elementwise_ops * times,
            traffic_bytes=self.traffic_bytes * times,
        )


def vector_work(numel: int, *, ops: int, passes: int) -> Work:
    """Work of a statement on flat vectors of fp32.

    Args:
        numel: entries of a vector.
        ops: operations per entry.
        passes: number of vectors read plus number of vectors written.
    """
    return Work(elementwise_ops=ops * numel, traffic_bytes=passes * FLOAT_BYTES * numel)
