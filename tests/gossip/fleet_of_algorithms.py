"""Drives gossip algorithms of several devices through the wire, without devices or hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from edgesim.compression.wire import Message, decode_one_of, encode
from edgesim.gossip.algorithm import OutEdge, Place, Share
from edgesim.gossip.optional_members import message_layouts, starting_state
from edgesim.learning.parameters import ParameterLayout


class AlgorithmFleet:
    """Devices with a common algorithm, float64 vectors and a quadratic loss each.

    Messages really are encoded and decoded, so both ends work with what was on the wire.
    """

    def __init__(
        self,
        algorithm: Any,
        X: np.ndarray,
        W0: np.ndarray,
        layout: ParameterLayout,
        samples: list[int] | None = None,
        num_trained: int | None = None,
    ):
        n = len(X)
        self.algorithm, self.layout = algorithm, layout
        self.layouts = {of.digest: of for of in message_layouts(algorithm)}
        self.states = [
            starting_state(
                algorithm,
                torch.from_numpy(X[i].copy()),
                {j: W0[i, j] for j in range(n) if j != i and W0[i, j] > 0},
                Place(
                    index=i,
                    num_devices=n,
                    num_samples=samples[i] if samples else 1,
                    num_trained=num_trained,
                ),
            )
            for i in range(n)
        ]
        self.sequence = np.zeros((n, n), int)
        self.round = 0

    @property
    def X(self) -> np.ndarray:
        return np.stack([state.x.numpy() for state in self.states])

    @property
    def u(self) -> np.ndarray:
        return np.array([state.u for state in self.states])

    @property
    def Z(self) -> np.ndarray:
        return np.stack([state.debiased().numpy() for state in self.states])

    def step(self, gradient: Callable[[np.ndarray], np.ndarray], gamma: float) -> None:
        G = gradient(self.Z)
        for state, g in zip(self.states, G, strict=True):
            state.x.sub_(torch.from_numpy(gamma * g))
            state.take_rate_(gamma)

    def send(self, W: np.ndarray, seed: int = 0) -> list[bytes]:
        """What all devices send in this round."""
        envelopes = []
        for j, state in enumerate(self.states):
            edges = [OutEdge(i, W[i, j]) for i in range(len(W)) if i != j and W[i, j] > 0]
            rng = np.random.default_rng([seed, self.round, j])
            envelopes += [self._encode(j, s) for s in self.algorithm.send_(state, edges, rng)]
        self.round += 1
        return envelopes

    def absorb(self, envelopes: list[bytes]) -> None:
        """Deliver envelopes; each device sorts its own by sender and sequence."""
        messages = [decode_one_of(envelope, self.layouts) for envelope in envelopes]
        messages.sort(key=lambda m: (m.receiver, m.sender, m.sequence))
        for i, state in enumerate(self.states):
            shares = [
                Share(m.sender, m.weight, m.push_weight, m.payload)
                for m in messages
                if m.receiver == i
            ]
            self.algorithm.absorb_(state, shares)

    def _encode(self, sender: int, share: Share) -> bytes:
        sequence = self.sequence[share.peer, sender]
        self.sequence[share.peer, sender] += 1
        return encode(
            Message(
                algorithm=self.algorithm.name,
                sender=sender,
                receiver=share.peer,
                sequence=int(sequence),
                round_index=self.round,
                weight=share.weight,
                push_weight=share.push_weight,
                payload=share.payload,
            )
        )
