"""Bytes between processes of a group of `torch.distributed`, from one process to another.

A message travels as it is: first its header, whose length every receiver knows and which says how
long the message is, then the rest. So the bytes that are sent are those that are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor
from torch import distributed as dist

from edgesim.compression.wire import HEADER, announced_bytes
from edgesim.distributed.errors import GossipError


class Peers:
    """The processes of a group, numbered by their ranks in it.

    Args:
        group: of processes; None for all of them.

    Attributes:
        rank: of this process.
        size: number of processes.

    Raises:
        GossipError: there is no such group, this process is not in it, or it can't send tensors of
            the CPU.
    """

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise GossipError(
                "torch.distributed is not initialised in this process; before gossip begins call "
                "torch.distributed.init_process_group('gloo') in each"
            )
        world = dist.group.WORLD
        assert world is not None, "since it is initialised"
        self._group = world if group is None else group
        self.rank, self.size = dist.get_rank(self._group), dist.get_world_size(self._group)
        if self.rank < 0:
            raise GossipError("this process is not in the group that it was given")
        backends = dist.get_backend_config(self._group)
        if "cpu:" not in backends:
            raise GossipError(
                f"the backend of the group is {backends}, which sends no tensors of the CPU; "
                "give gossip_around group=torch.distributed.new_group(backend='gloo')"
            )

    def gather(self, values: bytes) -> list[bytes]:
        """What all processes give here, equally many bytes each, by rank."""
        own = _as_tensor(values)
        every = [torch.empty_like(own) for _ in range(self.size)]
        with self._lost("at the start"):
            dist.all_gather(every, own, group=self._group)
        return [bytes(given.numpy()) for given in every]

    def sum_(self, vector: Tensor) -> Tensor:
        """Sum of the vectors of all processes, in place."""
        with self._lost("while it averages models"):
            dist.all_reduce(vector, group=self._group)
        return vector

    def exchange(
        self, messages: Mapping[int, bytes], senders: Sequence[int], round_index: int
    ) -> list[bytes]:
        """Send messages and receive others; returns when all have arrived.

        Args:
            messages: by receiver.
            senders: of the messages that arrive.
            round_index: of the exchange, for messages of errors.

        Returns:
            Messages in the order of `senders`.

        Raises:
            GossipError: the connection to a process was lost.
            WireError: what arrives is no message.
        """
        with self._lost(f"in round {round_index}"):
            sends = [
                self._send(receiver, part)
                for receiver, data in messages.items()
                for part in (data[: HEADER.size], data[HEADER.size :])
            ]
            pending = [self._receive(sender, HEADER.size) for sender in senders]
            heads = [transfer.done() for transfer in pending]
            pending = [
                self._receive(sender, announced_bytes(head) - HEADER.size)
                for sender, head in zip(senders, heads, strict=True)
            ]
            arrived = [head + rest.done() for head, rest in zip(heads, pending, strict=True)]
            for transfer in sends:
                transfer.done()
        return arrived

    def _send(self, receiver: int, data: bytes) -> _Transfer:
        tensor, place = _as_tensor(data), dist.get_global_rank(self._group, receiver)
        return _Transfer(dist.isend(tensor, place, group=self._group), tensor)

    def _receive(self, sender: int, num_bytes: int) -> _Transfer:
        tensor = torch.empty(num_bytes, dtype=torch.uint8)
        place = dist.get_global_rank(self._group, sender)
        return _Transfer(dist.irecv(tensor, place, group=self._group), tensor)

    @contextmanager
    def _lost(self, when: str) -> Iterator[None]:
        """Say where and when an error of torch.distributed happened."""
        try:
            yield
        except RuntimeError as error:  # of any backend; those of gloo have no class of their own
            raise GossipError(
                f"process {self.rank} of {self.size} lost another one {when}: {error}; all must "
                "call optimizer.step() equally often, and go on together from their checkpoints"
            ) from error


class _Transfer(NamedTuple):
    """Bytes under way, and the tensor that they are in until they are done."""

    work: dist.Work | None
    tensor: Tensor

    def done(self) -> bytes:
        """The bytes, once they have been sent or have arrived."""
        assert self.work is not None, "of a process of the group"
        self.work.wait()
        return self.tensor.numpy().tobytes()


def _as_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
