"""Bytes between processes of a group of `torch.distributed`, from one process to another.

A message travels as it is; its header says how long it is. So the bytes that are sent are those
that are counted.

gloo sends nothing before its receiver has asked for it. So a process that waits for the messages of
a round has asked for those of the next one too: messages travel while their receiver computes or
waits for others. It asks for as many bytes as a message can have, and gloo delivers fewer.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch import distributed as dist

from edgesim.compression.wire import HEADER, announced_bytes
from edgesim.distributed.errors import START_AGAIN, GossipError

_FIRST_TAG = 0x65640000  # far from the caller's own tags
_COUNT_BYTES = 4
_num_made: Counter[str] = Counter()  # Peers of each group, by its name

_TIMED_OUT = re.compile(r"[Tt]imed out waiting (\d+)ms")  # as gloo says it
_PLACE = re.compile(r"^\[[^]]*\] ")  # in gloo's own code


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
        self._group = _checked(group)
        self.rank, self.size = dist.get_rank(self._group), dist.get_world_size(self._group)
        backends = dist.get_backend_config(self._group)
        if "cpu:" not in backends:
            raise GossipError(
                f"the backend of the group is {backends}, which sends no tensors of the CPU; "
                "give gossip_around group=torch.distributed.new_group(backend='gloo')"
            )
        self._tag = _FIRST_TAG
        self._open: defaultdict[int, deque[Transfer]] = defaultdict(deque)  # by sender

    def start(self, record: bytes) -> list[bytes]:
        """Begin a gossip in all processes, each of which gives a record of equally many bytes.

        The gossip gets a tag of its own: a receive that is open must not catch another's message.

        Returns:
            Records of all processes, by rank.
        """
        name = self._group.group_name
        every = self._gather(_num_made[name].to_bytes(_COUNT_BYTES, "little") + record)
        counts = [int.from_bytes(each[:_COUNT_BYTES], "little") for each in every]
        _num_made[name] = 1 + max(counts)
        self._tag = _FIRST_TAG + _num_made[name]
        return [each[_COUNT_BYTES:] for each in every]

    def _gather(self, values: bytes) -> list[bytes]:
        """What all processes give here, equally many bytes each, by rank."""
        own = _as_tensor(values)
        every = [torch.empty_like(own) for _ in range(self.size)]
        cause = "all processes must call gossip_around, equally often"
        with self._lost("at the start", cause):
            dist.all_gather(every, own, group=self._group)
        return [bytes(given.numpy()) for given in every]

    def sum_(self, vector: Tensor) -> Tensor:
        """Sum of the vectors of all processes, in place."""
        cause = "all processes must call average() at once, after equally many steps"
        with self._lost("in average()", cause):
            dist.all_reduce(vector, group=self._group)
        return vector

    def exchange(
        self,
        messages: Mapping[int, bytes],
        senders: Sequence[int],
        round_index: int,
        *,
        longest_bytes: int,
        next_senders: Sequence[int] = (),
    ) -> list[bytes]:
        """Send messages and receive others; returns when all have arrived.

        Args:
            messages: by receiver.
            senders: of the messages that arrive.
            round_index: of the exchange, for messages of errors.
            longest_bytes: of a message; the same in all processes and rounds.
            next_senders: of the messages of the next exchange, which may arrive before it begins.

        Returns:
            Messages in the order of `senders`.

        Raises:
            GossipError: the connection to a process was lost, or a message is too long.
            WireError: what arrives is no message.
        """
        if (length := max(map(len, messages.values()), default=0)) > longest_bytes:
            raise GossipError(
                f"process {self.rank} has a message of {length} bytes for others that wait for "
                f"{longest_bytes} at most: the compressor sends more entries than its form says"
            )
        sends = {}
        for receiver, data in messages.items():
            with self._lost_in(round_index, receiver):
                sends[receiver] = self._send(receiver, data)
        for sender, num_messages in Counter([*senders, *next_senders]).items():
            with self._lost_in(round_index, sender):
                while len(self._open[sender]) < num_messages:
                    self._open[sender].append(self._receive(sender, longest_bytes))
        arrived = [self._arrived(sender, round_index) for sender in senders]
        for receiver, transfer in sends.items():
            with self._lost_in(round_index, receiver):
                transfer.work.wait()
        return arrived

    def _arrived(self, sender: int, round_index: int) -> bytes:
        """The next message of a process, once it has arrived."""
        transfer = self._open[sender].popleft()
        with self._lost_in(round_index, sender):
            transfer.work.wait()
        num_bytes = announced_bytes(transfer.tensor[: HEADER.size].numpy())
        return transfer.tensor[:num_bytes].numpy().tobytes()

    def _send(self, receiver: int, data: bytes) -> Transfer:
        tensor, place = _as_tensor(data), dist.get_global_rank(self._group, receiver)
        return Transfer.of(dist.isend(tensor, place, self._group, self._tag), tensor)

    def _receive(self, sender: int, num_bytes: int) -> Transfer:
        tensor = torch.empty(num_bytes, dtype=torch.uint8)
        place = dist.get_global_rank(self._group, sender)
        return Transfer.of(dist.irecv(tensor, place, self._group, self._tag), tensor)

    def _lost_in(self, round_index: int, peer: int) -> AbstractContextManager[None]:
        """Say that an error happened between this process and another one in a round."""
        cause = (
            f"process {peer} is slower, has ended, or is in average() or another call that waits "
            "for all; all must call optimizer.step() equally often"
        )
        return self._lost(f"in round {round_index}", cause, peer)

    @contextmanager
    def _lost(self, when: str, cause: str, peer: int | None = None) -> Iterator[None]:
        """Say where, when and with whom an error of torch.distributed happened."""
        try:
            yield
        except RuntimeError as error:  # of any backend; those of gloo have no class of their own
            if limit := _TIMED_OUT.search(str(error)):
                other = "the others" if peer is None else f"process {peer}"
                seconds = float(limit[1]) / 1000
                what = f"waits {when} for {other}: nothing came within {seconds:g} s; {cause}"
            else:
                other = "another process" if peer is None else f"process {peer}"
                said = _PLACE.sub("", str(error)).partition(". ")[0]
                what = f"lost {other} {when}: it ended or raised an error ({said})"
            raise GossipError(
                f"process {self.rank} of {self.size} {what}. {START_AGAIN}"
            ) from error


class Transfer(NamedTuple):
    """Bytes under way, and the tensor that they are in until they are done."""

    work: dist.Work
    tensor: Tensor

    @classmethod
    def of(cls, work: dist.Work | None, tensor: Tensor) -> Self:
        """A transfer that torch has begun."""
        assert work is not None, "of a process of the group"
        return cls(work, tensor)


def _as_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _checked(group: object) -> dist.ProcessGroup:
    """The group that is meant, of which this process is a member."""
    if group is None:
        group = dist.group.WORLD
    if group == dist.GroupMember.NON_GROUP_MEMBER:  # what new_group gives to the others
        raise GossipError("this process is not in the group that it was given")
    if not isinstance(group, dist.ProcessGroup):
        raise GossipError(
            f"group is a {type(group).__name__}; must be a group that torch.distributed.new_group "
            "returned, or None for all processes"
        )
    return group
