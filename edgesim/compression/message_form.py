"""Sizes of a compressor's messages, and the work on them.

They do not depend on the vector. If a compressor of one's own sends unlike numbers of entries, they
are those of its largest message.

Operations and traffic are those of the formulas. Messages are held as codes, with 8 bytes for each
index of a sparse one. Scales are moved with them where tensors are divided into buckets; those of
whole tensors are too few to count. Operations on scales are not counted. Encoding to bytes and
checksums are not counted; they take time where a profile has times of messages.

Symbols:
    D: entries of the flat vector   T: tensors   K: entries in the message
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgesim.compression.index_code import entropy_bytes
from edgesim.compression.value_codes import FloatCode, PlainCode, ValueCode
from edgesim.compression.wire import HEADER
from edgesim.hardware.widths import FLOAT_BYTES, INDEX_BYTES
from edgesim.hardware.work import LayerTally, Work
from edgesim.learning.parameters import ParameterLayout


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MessageForm:
    """Sizes of one compressed vector, and the operations to make and to use it.

    Attributes:
        layout: of the payload: that of the vector, or that of its buckets.
        code: of its values; each takes `code.bits` bits.
        counts: entries of each tensor in the message, shape (T,).
        is_sparse: it has indices.
        select_ops: operations on the whole vector to find the entries that are kept.
        encode_ops: operations to make the code of an entry.
        moves_scales: whether scales count as traffic.
    """

    layout: ParameterLayout
    code: ValueCode
    counts: NDArray[np.int64]
    is_sparse: bool
    select_ops: int
    encode_ops: int
    moves_scales: bool = False

    @classmethod
    def dense(
        cls,
        code: ValueCode,
        layout: ParameterLayout,
        *,
        encode_ops: int,
        moves_scales: bool = False,
    ) -> MessageForm:
        """Every entry is sent."""
        return cls(
            layout=layout,
            code=code,
            counts=layout.size_array,
            is_sparse=False,
            select_ops=0,
            encode_ops=encode_ops,
            moves_scales=moves_scales,
        )

    @classmethod
    def sparse(
        cls,
        code: PlainCode,
        counts: NDArray[np.int64],
        layout: ParameterLayout,
        *,
        select_ops: int,
    ) -> MessageForm:
        """Some entries of each tensor are sent, each with its index."""
        return cls(
            layout=layout,
            code=code,
            counts=counts,
            is_sparse=True,
            select_ops=select_ops,
            encode_ops=code.encode_ops,
        )

    @property
    def entries(self) -> int:
        """K."""
        return int(self.counts.sum())

    @property
    def is_exact(self) -> bool:
        """Whether the message holds a vector of fp32 without loss."""
        return not self.is_sparse and self._is_decoded

    @property
    def value_bytes(self) -> int:
        """Packed values of an encoded message."""
        return -(-self.entries * self.code.bits // 8)

    @property
    def scale_bytes(self) -> int:
        """Scales, in memory and encoded."""
        return FLOAT_BYTES * self.code.scales_per_tensor * self.layout.num_tensors

    @property
    def index_entropy_bytes(self) -> float:
        """Bytes that no index code can beat on average; 0 without indices."""
        return entropy_bytes(self.counts, self.layout) if self.is_sparse else 0.0

    @property
    def payload_bytes(self) -> int:
        """Memory of a payload at its sender and at its receiver; both have decoded its values."""
        codes = self.entries * max(1, self.code.bits // 8)  # below 8 bits one a byte
        values = 0 if self._is_decoded else FLOAT_BYTES * self.entries
        # With indices come the counts of each tensor.
        indices = INDEX_BYTES * (self.entries + self.layout.num_tensors) if self.is_sparse else 0
        return codes + values + indices + self.scale_bytes

    @property
    def shared_bytes(self) -> int:
        """Memory that all dense payloads of a device share: the sizes of the tensors or buckets."""
        return 0 if self.is_sparse else INDEX_BYTES * self.layout.num_tensors

    def longest_bytes(self, algorithm_name: str) -> int:
        """Length that no encoded message of this form exceeds, of whole numbers alone.

        Each tensor has a mode byte, a varint of at most 5 bytes, and as many bits as its bitmap or
        its positions of fixed width; the index code takes the shortest.
        """
        index_bytes = 0
        if self.is_sparse:
            sizes, counts = self.layout.size_array.tolist(), self.counts.tolist()
            bits = sum(min(n, k * n.bit_length()) for n, k in zip(sizes, counts, strict=True))
            index_bytes = 6 * len(sizes) + bits // 8 + 2  # fields and flags end in whole bytes
        return HEADER.size + len(algorithm_name) + self.scale_bytes + index_bytes + self.value_bytes

    def section_bytes(self, message_bytes: int, algorithm_name: str) -> int:
        """Memory that encoding adds to a payload: packed values and coded indices."""
        header = HEADER.size + len(algorithm_name)
        indices = message_bytes - header - self.scale_bytes - self.value_bytes
        return indices + (self.value_bytes if self.code.bits < 8 else 0)

    def compress_work(self) -> Work:
        """Work to select and quantize the entries of a vector."""
        work = Work(
            elementwise_ops=self.select_ops + self.encode_ops * self.entries,
            traffic_bytes=FLOAT_BYTES * self.layout.numel + self._held_bytes,
        )
        return replace(work, layers=self._tallies("encoding", work))

    def decode_work(self) -> Work:
        """Work to check a message and to read its entries: time alone, where a profile has it."""
        return Work(layers=self._tallies("decoding", Work()))

    def add_work(self) -> Work:
        """Work to add the message to a vector."""
        return self._added(ops=1)

    def add_times_work(self) -> Work:
        """Work to add the message times a factor."""
        return self._added(ops=2)

    def _added(self, ops: int) -> Work:
        return Work(
            elementwise_ops=(self.code.decode_ops + ops) * self.entries,
            traffic_bytes=self._held_bytes + 2 * FLOAT_BYTES * self.entries,
        )

    def _tallies(self, name: str, work: Work) -> tuple[LayerTally, ...]:
        """The message as a kind of layer (hardware/layer_kinds.py); none of a kind without time."""
        if not self.is_sparse and not self._is_decoded:
            return ()
        tally = LayerTally(
            kind=f"{name}_{'sparse' if self.is_sparse else 'dense'}",
            calls=1,
            macs=0,
            entries=self.layout.numel,
            far_entries=0,
            weights=self.entries,
            work=work,
        )
        return (tally,)

    @property
    def _is_decoded(self) -> bool:
        """Whether the codes are the values."""
        return isinstance(self.code, FloatCode) and self.code.bits >= 32

    @property
    def _held_bytes(self) -> int:
        """Bytes of codes, indices and scales in memory, which the work reads and writes."""
        indices = INDEX_BYTES * self.entries if self.is_sparse else 0
        return self.value_bytes + indices + (self.scale_bytes if self.moves_scales else 0)
