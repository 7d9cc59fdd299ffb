"""The seam between a device and its gossip algorithm.

An algorithm is a frozen object of hyper-parameters. It has no access to the network: it is given
what arrived and returns what to send. Each round of a device runs the same sequence at either pace:

    local step on state.x        (the optimizer, before the algorithm is called)
    shares = send_(state, ...)   one compressed share per active out-edge
    absorb_(state, received)     the shares that arrived, sorted by (sender, sequence)

Push-sum (reference.md, section 3.1): x is the numerator, u the push weight, z = x/u the model that
a device trains and evaluates. Gossip never changes the sums of x and of u over all devices, shares
in flight included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from edgesim.compression.compressors import Compressor
from edgesim.compression.errors import NonFiniteEntryError
from edgesim.compression.payload import Payload
from edgesim.errors import EdgesimError
from edgesim.hardware.work import Work
from edgesim.learning.parameters import ParameterLayout

LEAST_PUSH_WEIGHT = 1e-12
"""A device with a smaller push weight keeps its mass until it has received more.

The push weight of a device that sends far more often than it receives becomes smaller and smaller.
x = u z is float32 and loses precision below 1e-38. Then z would be lost, although u, a double, is
still exact.
"""


ROUNDING_OF_U = 1e-11
"""How far below 0 rounding may leave the push weight of a device that sends all its mass away."""


@dataclass(frozen=True, slots=True)
class OutEdge:
    """An active edge to a neighbour and the share of the sender's mass that travels on it.

    Attributes:
        receiver: at the other end.
        weight: w_e.
        address: the leaver in whose name the sender, its successor, sends; None if it sends in its
            own name.
    """

    receiver: int
    weight: float
    address: int | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """Content of one message, as algorithms see it.

    Attributes:
        peer: the receiver of a share that is sent, the sender of one that arrived.
        weight: w_e, the mixing weight that the sender chose for this edge.
        push_weight: u of the sender when it sent.
        payload: the compressed vector.
        address: the leaver whose end of the edge this device, its successor, has taken over; None
            for the device's own end.
    """

    peer: int
    weight: float
    push_weight: float
    payload: Payload
    address: int | None = None


OwnEdge: TypeAlias = tuple[int, int | None]
"""An edge as seen from one of its ends: the peer, and `address` as in `Share`."""


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
        """Public copies of out-edges and of in-edges, which a successor takes over.

        If the algorithm keeps such copies, these are the dicts of the state itself: a caller may
        add and remove copies.
        """
        return {}, {}

    def take_rate_(self, gamma: float) -> None:
        """Note the learning rate of the local step that has just changed x; by default ignored."""

    def debiased(self) -> Tensor:
        """Model z = x/u, which is trained and evaluated; shares memory with x while u is 1."""
        return self.x if self.u == 1.0 else self.x / self.u


def edges_with_mass(state: GossipState, out_edges: Sequence[OutEdge]) -> Sequence[OutEdge]:
    """Out-edges with their weights, all zero while u is below `LEAST_PUSH_WEIGHT`."""
    if state.u >= LEAST_PUSH_WEIGHT:
        return out_edges
    return [replace(edge, weight=0.0) for edge in out_edges]


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """Memory that an algorithm uses on a device, beside x.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanges:
    """Properties of a fleet's exchanges that are known before it starts.

    Attributes:
        are_fixed: the same edges carry one message each in every exchange.
        are_balanced: `are_fixed`, and the weights are doubly stochastic: push weights stay 1.
    """

    are_fixed: bool
    are_balanced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Facts about one device of a fleet that some algorithms need.

    Attributes:
        index: number of the device, from 0.
        num_devices: of the fleet.
        num_samples: training samples of the device.
        steps_first: whether it takes a step in round 0.
        num_trained: entries of x that steps move by gradients times the rate; the others, at its
            end, are statistics. None: all.
    """

    index: int
    num_devices: int
    num_samples: int
    steps_first: bool = True
    num_trained: int | None = None


State = TypeVar("State", bound=GossipState)


class Algorithm(Hashable, Protocol[State]):
    """Gossip algorithm in edge form (docs/gossip.md): a frozen object.

    Its class may also have the members that `optional_members.py` reads: `needs_one_graph`,
    `needs_exchanges`, `needs_exact_messages`, `carries_steps`, `mixes_first`,
    `is_idle_without_edges`, `disagrees`, `for_exchanges`, `graph_problem`, `message_layouts`,
    `longest_message`, `message_between`, `for_device`, `exchanges`, `own_schedule` and `init_at`.
    """

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
        """Compressor that makes its messages."""
        ...

    @property
    def keeps_edges(self) -> bool:
        """Whether it holds memory for each edge from the edge's first message on.

        If so, `kept` of its `buffers` is asked for all neighbours of the run, otherwise for those
        of one round. All else is asked for those of one round.
        """
        ...

    def work(self, out_degree: int, in_degree: int) -> Work:
        """Work of one round's gossip on one device, including z = x/u for the next step.

        Operations and traffic are those of the formulas: each statement reads each of its vectors
        and writes its result once. There are no MACs: a vector operation has no operand to reuse.

        Args:
            out_degree: active out-edges in the round.
            in_degree: messages absorbed in it.
        """
        ...

    def buffers(self, out_degree: int, in_degree: int) -> Buffers:
        """Memory beside x on a device with so many neighbours (see `keeps_edges`)."""
        ...

    def init(self, x: Tensor, in_weights: Mapping[int, float]) -> State:
        """State at the start. It takes over the memory of `x`, which is equal on all devices.

        `in_weights` maps the in-neighbours of round 0 to the weight of their edge.
        """
        ...

    def send_(
        self, state: State, out_edges: Sequence[OutEdge], rng: np.random.Generator
    ) -> list[Share]:
        """Subtract the mass that leaves on the active out-edges; return a share for each edge.

        Called after the local step, when state.x is x~. Changes `state` in place. The order of
        shares is free.
        """
        ...

    def absorb_(self, state: State, received: Sequence[Share]) -> None:
        """Add shares in the given order. The order must not depend on the times of arrival."""
        ...


Form: TypeAlias = Callable[..., Algorithm[Any]]
"""Makes an algorithm of `compressor`, `layout`, `averaging_rate` if it has one, and options."""


class WrongSharesError(EdgesimError):
    """An algorithm does not send one share, of finite weights, on each edge that it is given."""


class WrongStateError(EdgesimError):
    """An algorithm leaves a state from which no device can train."""


def checked_shares_(
    algorithm: Algorithm[State],
    state: State,
    out_edges: Sequence[OutEdge],
    rng: np.random.Generator,
) -> list[Share]:
    """Shares that an algorithm sends, as `Algorithm.send_` makes them.

    Raises:
        NonFiniteEntryError, WrongSharesError: see `check_shares`.
    """
    shares = algorithm.send_(state, out_edges, rng)
    check_shares(shares, out_edges)
    return shares


def check_shares(shares: Sequence[Share], out_edges: Sequence[OutEdge]) -> None:
    """Check that what an algorithm gives can be sent.

    A receiver waits for each message that the graph says it gets. One that is never sent would
    hold up the fleet for ever.

    Raises:
        NonFiniteEntryError: a value to be sent is not finite: the training has diverged.
        WrongSharesError: there is not one share for each edge, or its weights are not finite.
    """
    due = [(edge.receiver, edge.address) for edge in out_edges]
    made = [(share.peer, share.address) for share in shares]
    if made != due and Counter(made) != Counter(due):
        raise WrongSharesError(
            f"send_ gives shares for {_named(made)}, but its out-edges are to {_named(due)}; one "
            "Share is due for each edge, with its receiver and address"
        )
    for share in shares:
        if not isinstance(share.payload, Payload):
            raise WrongSharesError(
                f"send_ gives a share whose payload is of type {type(share.payload).__name__}; "
                "must be a Payload, as `self.compressor.compress` makes it"
            )
        if not (isfinite(share.weight) and isfinite(share.push_weight) and share.push_weight >= 0):
            raise WrongSharesError(
                f"send_ gives a share for device {share.peer} with weight {share.weight} and push "
                f"weight {share.push_weight}; must be finite, and a push weight not negative"
            )
        if not np.isfinite(share.payload.values).all():
            raise NonFiniteEntryError("a value to be sent is not finite")


def check_state(state: GossipState, after: str, numel: int, dtype: torch.dtype) -> None:
    """Check that a device can train from a state.

    Whether x is finite is seen elsewhere: it takes as long as a message.

    Args:
        state: that an algorithm has changed.
        after: the method that changed it.
        numel: entries of x.
        dtype: of x.

    Raises:
        WrongStateError: it can't.
    """
    x, u = state.x, state.u
    if not isinstance(x, Tensor) or x.shape != (numel,) or x.dtype != dtype:
        found = (
            f"{x.dtype} of shape {tuple(x.shape)}"
            if isinstance(x, Tensor)
            else f"of type {type(x).__name__}"
        )
        raise WrongStateError(
            f"after {after} x is {found}; must stay {dtype} of shape {(numel,)}".replace(
                "torch.", ""
            )
        )
    if not isinstance(u, float) or not (isfinite(u) and u >= -ROUNDING_OF_U):
        raise WrongStateError(
            f"after {after} u is {u!r}; must be a finite float of Python, at least 0"
        )


def _named(edges: Sequence[OwnEdge]) -> str:
    """Edges, in a message."""
    names = [f"{peer}" if own is None else f"{peer} for {own}" for peer, own in edges]
    return f"devices {', '.join(names)}" if names else "no device"
