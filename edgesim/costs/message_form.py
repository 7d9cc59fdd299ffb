"""What a message of a compressor consists of, whatever vector it is made of.

Symbols:
    D: entries of the flat vector   T: tensors   K: entries in the message
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch

from edgesim.compression.compressors import (
    QSGD,
    Compressor,
    Identity,
    MinMaxUInt8,
    RandomK,
    SignScale,
    TopK,
)
from edgesim.compression.selection import kept_counts
from edgesim.compression.value_codes import (
    PLAIN_CODES,
    FloatCode,
    MinMaxByte,
    ScaledInteger,
    SignBit,
    ValueCode,
)
from edgesim.compression.wire import HEADER, Message, encode
from edgesim.costs.errors import CostError
from edgesim.costs.widths import FLOAT_BYTES, INDEX_BYTES
from edgesim.gossip.choco import Choco
from edgesim.gossip.choco_numerator import ChocoNumerator
from edgesim.gossip.dcd import Dcd
from edgesim.gossip.deep_squeeze import DeepSqueeze
from edgesim.gossip.fixed_graph_choco import FixedGraphChoco
from edgesim.gossip.gradient_push import GradientPush
from edgesim.learning.parameters import ParameterLayout

PerEdgeChoco: TypeAlias = Choco | ChocoNumerator
"""The forms of CHOCO that hold a public copy for each edge."""

CountedAlgorithm: TypeAlias = PerEdgeChoco | FixedGraphChoco | DeepSqueeze | GradientPush | Dcd
"""The gossip algorithms whose work and memory are known."""


@dataclass(frozen=True, slots=True)
class MessageForm:
    """Sizes of one compressed vector.

    Attributes:
        code: of its values.
        num_tensors: T.
        entries: K.
        is_sparse: it has indices.
    """

    code: ValueCode
    num_tensors: int
    entries: int
    is_sparse: bool

    @classmethod
    def of(cls, compressor: Compressor, layout: ParameterLayout) -> MessageForm:
        """The form of a compressor's messages.

        Raises:
            CostError: a compressor of unknown form.
        """
        match compressor:
            case TopK() | RandomK():
                kept = int(kept_counts(compressor.keep, layout).sum())
                return cls(PLAIN_CODES[compressor.values], layout.num_tensors, kept, True)
            case Identity():
                code: ValueCode = PLAIN_CODES[compressor.values]
            case MinMaxUInt8():
                code = MinMaxByte()
            case SignScale():
                code = SignBit()
            case QSGD():
                code = ScaledInteger(compressor.bits + 1)
            case _:
                raise CostError(f"a compressor of type {type(compressor).__name__} has no counts")
        return cls(code, layout.num_tensors, layout.numel, False)

    @property
    def value_bytes(self) -> int:
        """Packed values of an encoded message."""
        return -(-self.entries * self.code.bits // 8)

    @property
    def scale_bytes(self) -> int:
        """Scales, in memory and encoded."""
        return FLOAT_BYTES * self.code.scales_per_tensor * self.num_tensors

    @property
    def payload_bytes(self) -> int:
        """A payload as its maker and its receiver hold it: both have decoded its values."""
        codes = self.entries * max(1, self.code.bits // 8)  # below 8 bits one a byte
        is_decoded = isinstance(self.code, FloatCode) and self.code.bits >= 32
        values = 0 if is_decoded else FLOAT_BYTES * self.entries
        # With indices come the counts of each tensor.
        indices = INDEX_BYTES * (self.entries + self.num_tensors) if self.is_sparse else 0
        return codes + values + indices + self.scale_bytes

    @property
    def shared_bytes(self) -> int:
        """What all payloads of a device have together: dense ones, the sizes of the tensors."""
        return 0 if self.is_sparse else INDEX_BYTES * self.num_tensors

    def section_bytes(self, message_bytes: int, algorithm_name: str) -> int:
        """What encoding adds to a payload: values of less than a byte packed, coded indices."""
        header = HEADER.size + len(algorithm_name)
        indices = message_bytes - header - self.scale_bytes - self.value_bytes
        return indices + (self.value_bytes if self.code.bits < 8 else 0)


def random_message_bytes(algorithm: CountedAlgorithm, rng: np.random.Generator) -> int:
    """Length of an encoded message that carries a vector of Gaussian noise.

    That of any message, if it is dense; positions in sparse ones take a few bytes more or less.
    """
    x = torch.from_numpy(rng.standard_normal(algorithm.layout.numel, np.float32))
    payload = algorithm.compressor.compress(x, algorithm.layout, rng)
    message = Message(
        algorithm=algorithm.name,
        sender=0,
        receiver=1,
        sequence=0,
        round_index=0,
        weight=1.0,
        push_weight=1.0,
        payload=payload,
    )
    return len(encode(message))
