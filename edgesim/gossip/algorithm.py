"""The seam between a device and its gossip algorithm.

An algorithm is a frozen object of hyper-parameters. It never calls out: it is told what arrived and
says what to send. Each round of a device runs the same sequence, whatever the pace of the fleet:

    local step on state.x        (the optimizer, before the algorithm is called)
    shares = send_(state, ...)   one compressed share per active out-edge
    absorb_(state, received)     the shares that arrived, sorted by (sender, sequence)

Push-sum (reference.md, section 3.1): x is the numerator, u the push weight, z = x/u the model that
a device trains and evaluates. Gossip never changes the sums of x and of u over all devices, shares
in flight included.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
from torch import Tensor

from edgesim.compression.compressors import Compressor
from edgesim.compression.payload import Payload
from edgesim.hardware.work import Work
from edgesim.learning.parameters import ParameterLayout

LEAST_PUSH_WEIGHT = 1e-12
"""A device with a smaller push weight keeps its mass until it has received more.

A device that sends far more often than it receives divides its mass again and again. x = u z is
float32 and would lose digits below 1e-38, so z would be lost although u, a double, goes on.
"""


@dataclass(frozen=True, slots=True)
class OutEdge:
    """An active edge to a neighbour and the share of the sender's mass that travels on it.

    Attributes:
        receiver: at the other end.
        weight: w_e.
        address: in whose name it is sent, if that is a device that has left and whose place the
            sender took; None for the sender itself.
    """

    receiver: int
    weight: float
    address: int | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """What one message says to the algorithm at its other end.

    Attributes:
        peer: the receiver of a share that is sent, the sender of one that arrived.
        weight: w_e, the mixing weight that the sender chose for this edge.
        push_weight: u of the sender when it sent.
        payload: the compressed vector.
        address: at this end of the edge, if that is a device that has left and whose place this
            one took; None for the device itself.
    """

    peer: int
    weight: float
    push_weight: float
    payload: Payload
    address: int | None = None


OwnEdge: TypeAlias = tuple[int, int | None]
"""An edge as one of its ends sees it: the peer, and the own address as in `Share`."""


@dataclass(slots=True)
class GossipState:
    """State common to all algorithms.

    Attributes:
        x: numerator, shape (D,).
        u: push-sum weight; 1 at the start.
    """

    x: Tensor
    u: float

    def public_copies(self) -> tuple[dict[OwnEdge, Tensor], dict[OwnEdge, Tensor]]:
        """Public copies of out-edges and of in-edges that a successor has to go on with.

        The state's own, where the algorithm keeps such copies: what is put in is kept.
        """
        return {}, {}

    def debiased(self) -> Tensor:
        """Z = x/u, the model that is trained and evaluated; shares memory with x while u is 1."""
        return self.x if self.u == 1.0 else self.x / self.u


def edges_with_mass(state: GossipState, out_edges: Sequence[OutEdge]) -> Sequence[OutEdge]:
    """Out-edges with the weights that may leave: none below `LEAST_PUSH_WEIGHT`."""
    if state.u >= LEAST_PUSH_WEIGHT:
        return out_edges
    return [replace(edge, weight=0.0) for edge in out_edges]


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """What an algorithm holds of a device's memory beside x.

    Attributes:
        kept: flat vectors between rounds.
        payloads: compressed vectors that are made in one round.
        operands: flat vectors that exist while messages are made, such as the difference that is
            compressed.
        models: flat vectors that z = x/u takes; 0 where u is 1 throughout, so that z is x.
    """

    kept: int
    payloads: int
    operands: int
    models: int = 1


State = TypeVar("State", bound=GossipState)


class Algorithm(Hashable, Protocol[State]):
    """Gossip algorithm in edge form (docs/gossip.md): a frozen object."""

    @property
    def name(self) -> str:
        """Name in the headers of messages."""
        ...

    @property
    def layout(self) -> ParameterLayout:
        """Layout of the vectors."""
        ...

    @property
    def compressor(self) -> Compressor:
        """What makes its messages."""
        ...

    @property
    def keeps_edges(self) -> bool:
        """Whether it holds memory for each edge from the edge's first message on.

        Then the neighbours of the whole run count in its memory, not those of a round.
        """
        ...

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Work of one round's gossip on one device, z = x/u of the next step included.

        Operations and traffic are those of the formulas: each statement reads each of its vectors
        and writes its result once. There are no MACs: a vector operation has no operand to reuse.

        Args:
            out_degree: active out-edges in the round.
            in_degree: messages absorbed in it.
        """
        ...

    def buffers(self, out_degree: int, in_degree: int) -> Buffers:
        """Memory beside x on a device with so many neighbours, as `keeps_edges` counts them."""
        ...

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> State:
        """State at the start, which takes over `x`, the same on all devices.

        `in_weights` maps the in-neighbours of round 0 to the weight of their edge.
        """
        ...

    def send_(
        self, state: State, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Split off the mass that leaves on the active out-edges and say what to send on each.

        Called after the local step, when state.x is x~. Changes `state` in place.
        """
        ...

    def absorb_(self, state: State, received: Sequence[Share]) -> None:
        """Take in shares, in the order given, which must not depend on when they arrived."""
        ...
