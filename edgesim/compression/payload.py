"""The compressed content of one vector, which sender and receivers use alike.

Symbols:
    D: entries of the flat vector   T: tensors   K: entries in the payload (D if dense)
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgesim.compression.bits import Bytes
from edgesim.compression.errors import CompressionError
from edgesim.compression.index_code import encode_indices
from edgesim.compression.segments import Segments
from edgesim.compression.value_codes import Codes, Floats, Scales, ValueCode
from edgesim.learning.parameters import ParameterLayout


@dataclass(frozen=True, slots=True, eq=False)
class Sections:
    """A payload as bytes: the body of every message that carries it, and the body's CRC-32."""

    scales: Bytes
    indices: Bytes
    values: Bytes
    checksum: int


@dataclass(frozen=True, eq=False)
class Payload:
    """A compressed vector. Its arrays are read-only, since receivers in one process share them.

    An array that is a view of other memory is copied.

    Both ends of an edge add the same payload to their public copies. The sum is bit-equal because
    values depend on codes and scales alone and every operation is rounded exactly.

    Attributes:
        layout: of the vector, or one with each bucket of its tensors as a tensor (buckets.py).
        code: meaning of the codes.
        indices: shape (K,), int64, positions in the vector, ascending; None for all of them.
        counts: shape (T,), int64, entries of each tensor.
        codes: shape (K,), in the code's own type.
        scales: shape (T, scales per tensor), float32.
    """

    layout: ParameterLayout
    code: ValueCode
    indices: NDArray[np.int64] | None
    counts: NDArray[np.int64]
    codes: Codes
    scales: Scales

    def __post_init__(self) -> None:
        for name in ("indices", "counts", "codes", "scales"):
            array = getattr(self, name)
            # What else a compressor of one's own may give is told elsewhere.
            if isinstance(array, np.ndarray) and array.flags.writeable:
                if not array.flags.owndata:  # a view, maybe of the vector that is compressed
                    array = array.copy()
                    object.__setattr__(self, name, array)
                array.setflags(write=False)

    @property
    def num_values(self) -> int:
        """K."""
        return len(self.codes)

    @cached_property
    def values(self) -> Floats:
        """Decoded entries, shape (K,), float32 (float64 for fp64 codes); decoded once."""
        with np.errstate(all="ignore"):  # compressors check that values are finite
            values = self.code.dequantize(self.codes, self.scales, Segments(self.counts))
        values.setflags(write=False)
        return values

    @cached_property
    def sections(self) -> Sections:
        """The payload as bytes; encoded once, however many edges it is sent on.

        Raises:
            CompressionError: indices or counts are of another type, or do not ascend; or a code has
                no place in its bits, so that receivers would decode another one.
        """
        if problem := self.wrong_positions():
            raise CompressionError(problem)
        if fault := self.code.fault(self.codes, self.scales):
            raise CompressionError(f"{self.code.label}: {fault}")
        scales = self.scales.astype("<f4", copy=False).reshape(-1).view(np.uint8)
        values = self.code.pack(self.codes)
        indices = np.empty(0, np.uint8)
        if self.indices is not None:
            indices = encode_indices(self.indices, self.counts, self.layout)
        checksum = 0
        for section in (scales, indices, values):
            checksum = zlib.crc32(section.data, checksum)
        return Sections(scales, indices, values, checksum)

    def wrong_positions(self) -> str:
        """What is wrong with the type of indices or counts, or their number; empty if nothing is.

        Numpy takes others too. The compiled code, which is used later, does not.
        """
        numbers: dict[str, object] = {"counts": self.counts}
        if self.indices is not None:
            numbers["indices"] = self.indices
        for name, found in numbers.items():
            if isinstance(found, np.ndarray):
                if found.dtype != np.int64 or found.ndim != 1:
                    shape = tuple(found.shape)
                    return f"its {name} are {found.dtype} of shape {shape}; must be int64, one axis"
            elif isinstance(found, Tensor):
                return (
                    f"its {name} are a tensor of torch; must be an array of numpy: {name}.numpy()"
                )
            else:
                return f"its {name} are a {type(found).__name__}; must be an int64 array of numpy"
        tensors = len(self.layout.names)
        if len(self.counts) != tensors:
            return f"it has {len(self.counts)} counts; must be {tensors}, one for each tensor"
        return ""

    def decode(self) -> Tensor:
        """The decompressed vector, shape (D,), in new memory; zero where no entry was kept."""
        if self.indices is None:
            return torch.from_numpy(self.values.copy())
        dense = np.zeros(self.layout.numel, self.values.dtype)
        dense[self.indices] = self.values
        return torch.from_numpy(dense)

    def add_to_(self, target: Tensor, scale: float = 1.0) -> None:
        """Add `scale` times the decompressed vector to `target`, in place.

        A sparse payload does not touch other entries. The product is rounded before the sum, so
        that processors with and without fused multiply-add agree.

        Args:
            target: shape (D,), float32 or float64, on the CPU, without gradient.
            scale: factor, rounded to the target's type.

        Raises:
            CompressionError: `target` has another shape or type.
        """
        if target.shape != (self.layout.numel,) or target.dtype not in {
            torch.float32,
            torch.float64,
        }:
            raise CompressionError(
                f"cannot add to {tuple(target.shape)}, {target.dtype}; "
                f"must be ({self.layout.numel},), float32 or float64"
            )
        array = target.numpy()
        change = self.values.astype(array.dtype, copy=False)
        if scale != 1.0:
            change = change * array.dtype.type(scale)
        if self.indices is None:
            array += change
        else:
            np.add.at(array, self.indices, change)  # faster than +=, which gathers first
