"""Bytes of a message: encoded, and by the conventions of the paper and the reference code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgesim.assembly.parts.own_errors import own_code
from edgesim.compression.compressors import Compressor
from edgesim.compression.payload import Payload
from edgesim.compression.wire import ByteCounts, Message, encode
from edgesim.gossip.algorithm import Algorithm
from edgesim.gossip.optional_members import has_several_messages, longest_message, message_between
from edgesim.learning.parameters import ParameterLayout

_SEED = 0  # of the vector that is sent


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCosts:
    """Bytes of one message.

    Attributes:
        compressor: kind of the compressor.
        num_entries: entries of the vector that it compresses.
        num_kept: entries that are sent.
        encoded: bytes of the encoded message, by kind.
        is_exact: whether all messages have this length. Otherwise it is the length for Gaussian
            noise; indices of other vectors take a few bytes more or less.
        index_entropy_bytes: mean length that no index code can beat; 0 without indices.
        by_convention: bytes by the conventions that the compressor knows.
    """

    compressor: str
    num_entries: int
    num_kept: int
    encoded: ByteCounts
    is_exact: bool
    index_entropy_bytes: float
    by_convention: Mapping[str, int]


class NoiseMessages:
    """Encodes each kind of message once, always of the same Gaussian noise."""

    def __init__(self) -> None:
        self._noise = torch.empty(0)
        self._found: dict[tuple[Compressor, ParameterLayout], dict[str, MessageCosts]] = {}

    def costs(
        self, compressor: Compressor, layout: ParameterLayout, algorithms: Sequence[str]
    ) -> Mapping[str, MessageCosts]:
        """Bytes of a message by the name of the algorithm, which travels in the header.

        Args:
            compressor: compressor of gossip.
            layout: layout of the vectors.
            algorithms: names of the algorithms.
        """
        found = self._found.setdefault((compressor, layout), {})
        missing = [name for name in algorithms if name not in found]
        if missing:
            rng = np.random.default_rng(_SEED)
            payload = compressor.compress(self._vector(layout.numel), layout, rng)
            found.update(
                {name: _message_costs(compressor, layout, payload, name) for name in missing}
            )
        return found

    def bytes_between(self, algorithm: Algorithm[Any]) -> Callable[[int, int], int]:
        """Function that gives the bytes of a message from a device to another."""
        name = algorithm.name
        if not has_several_messages(algorithm):
            length = self.costs(*longest_message(algorithm), [name])[name].encoded.total
            return lambda _sender, _receiver: length
        found: dict[tuple[int, int], int] = {}

        def between(sender: int, receiver: int) -> int:
            edge = sender, receiver
            if edge not in found:
                kind = message_between(algorithm, sender, receiver)
                found[edge] = self.costs(*kind, [name])[name].encoded.total
            return found[edge]

        return between

    def _vector(self, num_entries: int) -> Tensor:
        """Noise of any length; a shorter vector is the beginning of a longer one."""
        if len(self._noise) < num_entries:
            rng = np.random.default_rng(_SEED)
            self._noise = torch.from_numpy(rng.standard_normal(num_entries, np.float32))
        return self._noise[:num_entries]


@own_code("while the bytes of a message are counted")
def random_message_bytes(algorithm: Algorithm[Any], rng: np.random.Generator) -> int:
    """Length of an encoded message that carries a vector of Gaussian noise, of the longest ones.

    All dense messages have this length; indices of sparse ones take a few bytes more or less.
    """
    compressor, layout = longest_message(algorithm)
    x = torch.from_numpy(rng.standard_normal(layout.numel, np.float32))
    payload = compressor.compress(x, layout, rng)
    return len(encode(_message(payload, algorithm.name)))


def _message(payload: Payload, algorithm: str) -> Message:
    return Message(
        algorithm=algorithm,
        sender=0,
        receiver=1,
        sequence=0,
        round_index=0,
        weight=1.0,
        push_weight=1.0,
        payload=payload,
    )


def _message_costs(
    compressor: Compressor, layout: ParameterLayout, payload: Payload, algorithm: str
) -> MessageCosts:
    """Encode a message of a vector of this layout, and count it."""
    message = _message(payload, algorithm)
    counts = message.byte_counts
    assert len(encode(message)) == counts.total, "byte counts are of the encoded message"
    form = compressor.form(layout)
    return MessageCosts(
        compressor=compressor.name,
        num_entries=layout.numel,
        num_kept=payload.num_values,
        encoded=counts,
        is_exact=not form.is_sparse,
        index_entropy_bytes=form.index_entropy_bytes,
        by_convention=compressor.conventions(layout),
    )
