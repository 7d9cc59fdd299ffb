"""Measures the memory of a device by running a round and following what is really allocated.

Counted is what exists between operations: all tensors, payloads and messages that a layer, an
operation of the 8-bit back end, autograd, the optimizer, the algorithm or the codec is given, gives
or keeps; each storage once, from when it is first seen until it is freed. Not counted is scratch
memory within one operation: blocks of a kernel, keys of a selection, and what the `reference` back
end needs to compute 8 bits in float32, which no device would.

The peak is that of all components together. Through the round a device holds the messages of its
last round, of which it can't know that they have arrived, and one waiting message for each in-edge;
one more is being read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from step_watch import watch_step
from storage_ledger import StorageLedger
from torch import Tensor

from edgesim.compression.compressors import Compressor
from edgesim.compression.payload import Payload
from edgesim.compression.wire import Message, decode, encode
from edgesim.costs.memory_table import MemoryTable
from edgesim.gossip.algorithm import Algorithm, GossipState, OutEdge, Share
from edgesim.gossip.dcd import Dcd
from edgesim.gossip.optional_members import message_layouts
from edgesim.learning.flat_model import FlatModel
from edgesim.learning.optimizers import Optimizer
from edgesim.learning.parameters import ParameterLayout
from edgesim.quant.layers import InputQuantizer

_RATE, _SELF, _SEED = 1e-3, 0, 0  # of the rounds that are run; memory depends on none of them


@dataclass(frozen=True, slots=True)
class MeasuredMemory:
    """What a device held.

    Attributes:
        at_peak: when it was most in all.
        message_bytes: length of its longest encoded message; of one kind, they are nearly equal.
    """

    at_peak: MemoryTable
    message_bytes: int


def measure_device_memory(
    *,
    model: FlatModel,
    batch: tuple[Tensor, Tensor],
    optimizer: Optimizer,
    algorithm: Algorithm,
    out_edges: Sequence[OutEdge],
    in_weights: Mapping[int, float],
    met_before: Sequence[int] = (),
) -> MeasuredMemory:
    """Memory at the peak of a round of a device whose gossip is under way.

    Gossips once, which brings all of its vectors into being, then runs a round as a device does;
    instead of messages of its in-neighbours it takes its own. The model is changed as by training,
    and has to have its seeds.

    Args:
        model: that the device computes with.
        batch: images and labels.
        optimizer: of the device.
        algorithm: of the device, with the model's layout.
        out_edges: to whom it sends in each round.
        in_weights: weight of each in-edge, by sender.
        met_before: other peers, each of which exchanged a message in a round of its own.
    """
    device = _Device(model, batch, optimizer, algorithm, in_weights)
    for peer in met_before:
        device.send([OutEdge(peer, 0.5)], StorageLedger())
        device.absorb(device.messages_to_itself({peer: 0.5}))
    device.send(out_edges, StorageLedger())
    device.absorb(device.messages_to_itself())
    device.unbalance()
    ledger = StorageLedger()
    device.show(ledger)
    waiting = device.messages_to_itself()
    for message in waiting:
        if message.payload.indices is None:  # sizes of tensors or buckets, which all of them share
            ledger.see(message.payload.counts, "send_buffers")
        ledger.see(message.payload, "mailbox")
    received = encode(waiting[-1]) if waiting else b""  # one more, that is being read
    ledger.see(received, "receive_buffers")
    device.train(ledger)
    device.send(out_edges, ledger)
    device.absorb(waiting)
    message_bytes = max(map(len, [received, *device.envelopes]))
    return MeasuredMemory(MemoryTable.of(ledger.at_peak), message_bytes)


class _Device:
    """The vectors of `edgesim.device.device.Device`, and its steps in their order.

    Attributes:
        envelopes: encoded messages of the newest round.
    """

    def __init__(
        self,
        model: FlatModel,
        batch: tuple[Tensor, Tensor],
        optimizer: Optimizer,
        algorithm: Algorithm,
        in_weights: Mapping[int, float],
    ) -> None:
        self._model = model
        self._batch = batch
        self._optimizer = optimizer
        self._algorithm = algorithm
        self._in_weights = in_weights
        self._buffers = model.buffers.clone()
        x = model.parameters.clone()
        self._momentum = optimizer.init(x[: model.num_trainable])
        self._gossip: GossipState = algorithm.init(x, in_weights)
        self.envelopes: list[bytes] = []

    def show(self, ledger: StorageLedger) -> None:
        """All that is held from round to round."""
        codes_are_apart = any(isinstance(m, InputQuantizer) for m in self._model.model.modules())
        ledger.see(self._gossip.x, "master_copy")
        ledger.see(self._model.parameters, "master_copy" if codes_are_apart else "weights")
        ledger.see(self._model.gradient, "gradients")
        ledger.see(list(self._model.model.buffers()), "weights")
        ledger.see(self._buffers, "weights")
        ledger.see(self._momentum, "optimizer")
        ledger.see(self._gossip, "gossip_state")
        ledger.see(self.envelopes, "send_buffers")

    def train(self, ledger: StorageLedger) -> None:
        """A training step at z = x/u."""
        model, state, trainable = self._model, self._gossip, self._model.num_trainable
        images_NCHW, labels_N = self._batch
        ledger.see([images_NCHW, labels_N], "activations")
        z = state.debiased()
        ledger.see(z, "master_copy")
        model.load_(z, self._buffers)
        del z
        with watch_step(model, ledger):
            _, gradient = model.loss_and_gradient(images_NCHW, labels_N)
        self._buffers.copy_(model.buffers)
        x = state.x[:trainable]
        self._optimizer.step_(self._momentum, x, gradient[:trainable], _RATE)
        ledger.see(self._momentum, "optimizer")
        state.x[trainable:] = model.parameters[trainable:] * state.u

    def send(self, out_edges: Sequence[OutEdge], ledger: StorageLedger) -> None:
        """The messages of the round."""
        compressor = _SeenCompressor(self._algorithm.compressor, ledger)
        algorithm: Algorithm[Any] = replace(self._algorithm, compressor=compressor)
        shares = algorithm.send_(self._gossip, out_edges, np.random.default_rng(_SEED))
        envelopes = []
        for share in shares:
            envelopes.append(encode(self._message(share, _SELF, share.peer)))
            ledger.see([share.payload, envelopes[-1]], "send_buffers")
        ledger.forget(self.envelopes, "send_buffers")
        self.envelopes = envelopes

    def unbalance(self) -> None:
        """Move u from 1, where x/u would need no memory beside x; most graphs and roundings do."""
        if not isinstance(self._algorithm, Dcd):
            self._gossip.u *= 1.5

    def messages_to_itself(self, weights: Mapping[int, float] | None = None) -> list[Message]:
        """One for each in-edge, decoded, of the size of those that it sends."""
        layout = message_layouts(self._algorithm)[0]
        rng = np.random.default_rng(_SEED)
        payload = self._algorithm.compressor.compress(self._gossip.x, layout, rng)
        shares = [
            (sender, Share(_SELF, weight, 1.0, payload))
            for sender, weight in (weights or self._in_weights).items()
        ]
        return [
            decode(encode(self._message(share, sender, _SELF)), payload.layout)
            for sender, share in shares
        ]

    def absorb(self, messages: Sequence[Message]) -> None:
        """Gossip's end of the round; the optimizer's takes no memory of its own."""
        shares = [Share(m.sender, m.weight, m.push_weight, m.payload) for m in messages]
        algorithm: Algorithm[Any] = self._algorithm
        algorithm.absorb_(self._gossip, shares)

    def _message(self, share: Share, sender: int, receiver: int) -> Message:
        return Message(
            algorithm=self._algorithm.name,
            sender=sender,
            receiver=receiver,
            sequence=0,
            round_index=0,
            weight=share.weight,
            push_weight=share.push_weight,
            payload=share.payload,
        )


class _SeenCompressor:
    """A compressor whose operand and payload are seen."""

    def __init__(self, compressor: Compressor, ledger: StorageLedger) -> None:
        self._compressor = compressor
        self._ledger = ledger
        self.name = compressor.name

    def compress(self, x: Tensor, layout: ParameterLayout, rng: np.random.Generator) -> Payload:
        """As the compressor does."""
        self._ledger.see(x, "send_buffers")
        payload = self._compressor.compress(x, layout, rng)
        self._ledger.see(payload, "send_buffers")
        return payload
