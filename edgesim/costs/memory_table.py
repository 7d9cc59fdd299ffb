"""Memory of a device, by what it is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

Component = Literal[
    "weights",
    "master_copy",
    "gradients",
    "optimizer",
    "activations",
    "layer_gradients",
    "gossip_state",
    "send_buffers",
    "receive_buffers",
    "mailbox",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTable:
    """Bytes of a device by component.

    Attributes:
        weights: operands of products (fp32 values or 8-bit codes), and the model's statistics.
        master_copy: fp32 values that the optimizer and gossip change, or from which codes are made.
        gradients: of the parameters.
        optimizer: state of the optimizer.
        activations: the batch, outputs that later layers read, and what the backward pass needs.
        layer_gradients: gradients at outputs of layers.
        gossip_state: vectors of the algorithm beside x.
        send_buffers: a compressed vector and encoded messages.
        receive_buffers: an encoded message that is being read.
        mailbox: messages that wait to be absorbed.
    """

    weights: int = 0
    master_copy: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    layer_gradients: int = 0
    gossip_state: int = 0
    send_buffers: int = 0
    receive_buffers: int = 0
    mailbox: int = 0

    @classmethod
    def of(cls, bytes_by_component: Mapping[Component, int]) -> MemoryTable:
        """A table of these components; all others are 0."""
        return cls(**{str(component): held for component, held in bytes_by_component.items()})

    @property
    def by_component(self) -> dict[str, int]:
        """Bytes by name, in the order of the attributes."""
        return asdict(self)

    @property
    def total(self) -> int:
        """Bytes of all components together."""
        return sum(self.by_component.values())
