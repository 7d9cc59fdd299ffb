"""Bytes of a message: really encoded, and as the paper and the reference code would count it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edgesim.compression.compressors import QSGD, Compressor, Identity, RandomK, TopK
from edgesim.compression.conventions import (
    paper_dense8_bytes,
    paper_sparse8_bytes,
    reference_dense_bytes,
    reference_sparse_bytes,
)
from edgesim.compression.index_code import entropy_bytes
from edgesim.compression.payload import Payload
from edgesim.compression.selection import kept_counts
from edgesim.compression.wire import ByteCounts, Message, encode
from edgesim.learning.parameters import ParameterLayout

_SEED = 0  # of the vector that is sent


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCosts:
    """Bytes of one message.

    Attributes:
        compressor: its kind.
        num_entries: entries of the vector that it compresses.
        num_kept: entries that are sent.
        encoded: bytes of the encoded message, by kind.
        is_exact: all messages are of this length; else it holds for Gaussian noise, and positions
            in another vector take a few bytes more or less.
        index_entropy_bytes: that no index code can beat on average; 0 without indices.
        by_convention: bytes by `reference` (R§3.6) and `paper_8bit` (R§6), where they have a rule.
    """

    compressor: str
    num_entries: int
    num_kept: int
    encoded: ByteCounts
    is_exact: bool
    index_entropy_bytes: float
    by_convention: Mapping[str, int]


def noise(num_entries: int) -> Tensor:
    """A vector of Gaussian noise, always the same; a shorter one is its beginning."""
    rng = np.random.default_rng(_SEED)
    return torch.from_numpy(rng.standard_normal(num_entries, np.float32))


def compress_noise(compressor: Compressor, layout: ParameterLayout, x: Tensor) -> Payload:
    """What a compressor makes of noise.

    Args:
        compressor: of gossip.
        layout: of its vectors.
        x: noise, at least as long as these.
    """
    return compressor.compress(x[: layout.numel], layout, np.random.default_rng(_SEED))


def message_costs(compressor: Compressor, payload: Payload, algorithm_name: str) -> MessageCosts:
    """Encode a message and count it.

    Args:
        compressor: that made the payload.
        payload: of noise.
        algorithm_name: of gossip; it travels in the header.
    """
    message = Message(
        algorithm=algorithm_name,
        sender=0,
        receiver=1,
        sequence=0,
        round_index=0,
        weight=1.0,
        push_weight=1.0,
        payload=payload,
    )
    counts = message.byte_counts
    assert len(encode(message)) == counts.total, "byte counts are of the encoded message"
    layout, is_sparse = payload.layout, payload.indices is not None
    return MessageCosts(
        compressor=compressor.name,
        num_entries=layout.numel,
        num_kept=payload.num_values,
        encoded=counts,
        is_exact=not is_sparse,
        index_entropy_bytes=entropy_bytes(payload.counts, layout) if is_sparse else 0.0,
        by_convention=_bytes_by_convention(compressor, layout),
    )


def _bytes_by_convention(compressor: Compressor, layout: ParameterLayout) -> dict[str, int]:
    match compressor:
        case TopK() | RandomK():
            kept = int(kept_counts(compressor.keep, layout).sum())
            return {
                "reference": reference_sparse_bytes(kept),
                "paper_8bit": paper_sparse8_bytes(kept, layout.num_tensors),
            }
        case QSGD():  # the reference's counter does not look at the number of levels
            return {"reference": reference_dense_bytes(layout.numel)}
        case Identity():
            return {
                "reference": reference_dense_bytes(layout.numel),
                "paper_8bit": paper_dense8_bytes(layout.numel, layout.num_tensors),
            }
        case _:
            return {}
