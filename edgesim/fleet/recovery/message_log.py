"""The sender-based message log: sent envelopes that a receiver may ask for again.

A restarted receiver is restored from its checkpoint and needs the messages that it had absorbed
since. So its senders keep every envelope until a checkpoint of the receiver covers it. Envelopes
sent since the last checkpoint are in memory, and so are those of that checkpoint; older ones are in
checkpoint files. Each envelope is written twice: as an own envelope of one checkpoint, and as a
copy in the next one. So one damaged file loses no envelope.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from threading import Lock
from typing import Any

from edgesim.compression.wire import HEADER
from edgesim.device.mail import Envelope
from edgesim.device.membership import Edge
from edgesim.fleet.transport.network import EnvelopesLostError
from edgesim.hardware.timeline import Stamp
from edgesim.storage.checkpoint_format import CheckpointError
from edgesim.storage.store import StorageError

_log = logging.getLogger(__name__)

KEPT_CHECKPOINTS = 2
"""Newest checkpoints that are always kept; the older one in case the newest is damaged."""
MANY_CHECKPOINTS = 6
"""With more checkpoints, the needed envelopes of the oldest are moved to the next one.

Otherwise an edge without further messages, which is never covered, would keep all later files.
"""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Envelopes of one payload, sent one after the other.

    A fleet of ten thousand devices keeps millions of envelopes. As objects of their own they would
    take several times the memory of their bytes.

    Attributes:
        edges: of each envelope, which is addressed to the receiver of its edge.
        sequences: number of each on its edge.
        stamps: of each; None where devices have no clock.
        heads: first bytes of each one's data, which are unique, one after the other.
        tail: the other bytes, the same of all.
    """

    edges: tuple[Edge, ...]
    sequences: array[int]
    stamps: tuple[Stamp | None, ...] | None
    heads: bytes
    tail: bytes

    def envelopes(self, is_wanted: Callable[[Edge, int], bool]) -> Iterator[Envelope]:
        """Envelopes as they were sent, of those edges and sequences that are wanted."""
        for place, (edge, sequence) in enumerate(zip(self.edges, self.sequences, strict=True)):
            if is_wanted(edge, sequence):
                head = self.heads[place * HEADER.size : (place + 1) * HEADER.size]
                stamp = self.stamps[place] if self.stamps is not None else None
                yield Envelope(edge, sequence, head + self.tail, stamp, edge[1])


@dataclass(frozen=True, slots=True)
class _Sealed:
    """The own envelopes of a checkpoint: by edge, the last sequence plus 1."""

    round_index: int
    ends: Mapping[Edge, int]


@dataclass(frozen=True, slots=True)
class WrittenEnvelopes:
    """Envelopes in the file of a checkpoint, in the order in which they were sent.

    Attributes:
        copies: own envelopes of the checkpoint before that were not covered.
        own: envelopes since then.
    """

    copies: Sequence[Envelope]
    own: Sequence[Envelope]


class MessageLog:
    """Message log of one device.

    One thread moves sent envelopes to a checkpoint while another thread answers requests; a request
    in between finds each envelope in one of the two places.

    Args:
        read: envelopes in the device's checkpoint of a round, or CheckpointError if it is damaged.
    """

    def __init__(self, read: Callable[[int], WrittenEnvelopes]) -> None:
        self._read = read
        self._fresh: list[_Batch] = []
        self._newest_sealed: list[_Batch] = []  # own envelopes of the last checkpoint
        self._fresh_bytes = 0
        self._sealed: list[_Sealed] = []
        self._covered: dict[Edge, int] = {}
        self._carried: set[int] = set()
        self._lock = Lock()

    def to_write(self) -> WrittenEnvelopes:
        """Envelopes for the next checkpoint."""
        with self._lock:
            copies = _whole(self._newest_sealed, self._is_needed)
            return WrittenEnvelopes(copies, _whole(self._fresh))

    @property
    def fresh_bytes(self) -> int:
        """Bytes in memory of envelopes that no checkpoint holds yet."""
        return self._fresh_bytes

    def add(self, envelopes: Iterable[Envelope]) -> None:
        """Keep envelopes before they are sent."""
        with self._lock:
            self._add(envelopes)

    def _add(self, envelopes: Iterable[Envelope]) -> None:
        for tail, group in groupby(envelopes, key=lambda envelope: envelope.data[HEADER.size :]):
            together = list(group)
            edges = tuple(envelope.edge for envelope in together)
            if self._fresh and self._fresh[-1].edges == edges:
                edges = self._fresh[-1].edges  # one object for all rounds of a fixed graph
            stamps = tuple(envelope.stamp for envelope in together)
            kept = stamps if any(stamps) else None
            heads = b"".join(envelope.data[: HEADER.size] for envelope in together)
            sequences = array("Q", (envelope.sequence for envelope in together))
            self._fresh.append(_Batch(edges, sequences, kept, heads, tail))
            self._fresh_bytes += len(heads) + len(tail)

    def cover(self, edge: Edge, sequence: int) -> None:
        """Note that envelopes of an edge below a sequence will not be requested any more."""
        self._covered[edge] = max(sequence, self._covered.get(edge, 0))

    def seal(self, round_index: int) -> None:
        """Note that the envelopes of `to_write` are in the checkpoint of this round."""
        with self._lock:
            ends: dict[Edge, int] = {}
            for batch in self._fresh:
                for edge, sequence in zip(batch.edges, batch.sequences, strict=True):
                    ends[edge] = max(sequence + 1, ends.get(edge, 0))
            self._sealed.append(_Sealed(round_index, ends))
            self._newest_sealed, self._fresh, self._fresh_bytes = self._fresh, [], 0

    def drop_covered(self) -> list[int]:
        """Forget checkpoints that are not needed once a new one is written; return their rounds.

        A checkpoint is dropped only together with all older ones, so that none is kept without its
        predecessors. Call this before a checkpoint is written, as it may have to hold older
        envelopes.
        """
        with self._lock:
            return self._drop_covered()

    def _drop_covered(self) -> list[int]:
        dropped = []
        while len(self._sealed) >= KEPT_CHECKPOINTS and (
            self._sealed[0].round_index in self._carried or self._are_covered(self._sealed[0])
        ):
            dropped.append(self._sealed.pop(0).round_index)
        self._carried.difference_update(dropped)
        if len(self._sealed) >= MANY_CHECKPOINTS:
            self._carry_oldest()
        return dropped

    def _carry_oldest(self) -> None:
        """Move the needed envelopes of the oldest checkpoint to the next checkpoint.

        The oldest checkpoint is removed only with the checkpoint after the next: if the next one is
        damaged, the device is restored from the one before it, which needs the oldest.
        """
        envelopes = self._own_envelopes(0)
        fresh, self._fresh = self._fresh, []
        self._add(e for e in envelopes if self._is_needed(e.edge, e.sequence))
        self._fresh += fresh
        self._carried.add(self._sealed[0].round_index)

    def _is_needed(self, edge: Edge, sequence: int) -> bool:
        """Whether an envelope may still be requested: no checkpoint of its receiver covers it."""
        return sequence >= self._covered.get(edge, 0)

    def _are_covered(self, sealed: _Sealed) -> bool:
        return all(self._covered.get(edge, 0) >= end for edge, end in sealed.ends.items())

    def _own_envelopes(self, number: int) -> Sequence[Envelope]:
        """Own envelopes of one of the checkpoints; covered ones may be missing.

        Raises:
            CheckpointError: its file is damaged, and the next file is damaged too or has no copies.
            StorageError: the files can't be read.
        """
        sealed, *later = self._sealed[number:]
        if not later:
            return _whole(self._newest_sealed)
        try:
            return self._read(sealed.round_index).own
        except (CheckpointError, StorageError) as error:
            _log.warning("%s; the envelopes in it are taken from the next one", error)
            copies = self._read(later[0].round_index).copies
            copied = {(envelope.edge, envelope.sequence) for envelope in copies}
            for edge, end in sealed.ends.items():
                if end > self._covered.get(edge, 0) and (edge, end - 1) not in copied:
                    raise  # the next one is of an early version, which wrote no copies
            return copies

    def envelopes(self, edge: Edge, next_sequence: int) -> list[Envelope]:
        """Envelopes of an edge from a sequence on, in order.

        Raises:
            EnvelopesLostError: one of them is gone.
            CheckpointError: two checkpoints in a row that hold some are damaged.
        """
        with self._lock:  # also while files are read: they must not be dropped meanwhile
            found = {
                envelope.sequence: envelope
                for number, sealed in enumerate(self._sealed)
                if sealed.ends.get(edge, 0) > next_sequence
                for envelope in self._own_envelopes(number)
                if envelope.edge == edge
            }
            fresh = _whole(self._fresh, lambda of, _: of == edge)
            found |= {envelope.sequence: envelope for envelope in fresh}
        wanted = [found[sequence] for sequence in sorted(found) if sequence >= next_sequence]
        for sequence, envelope in enumerate(wanted, next_sequence):
            if envelope.sequence > sequence:
                raise _lost(edge, sequence, envelope.sequence)
        covered = self._covered.get(edge, 0)
        if not wanted and next_sequence < covered:
            raise _lost(edge, next_sequence, covered)
        return wanted

    def uncovered(self) -> list[Envelope]:
        """All envelopes that somebody may lack, in the order in which they were sent.

        Raises:
            CheckpointError: two checkpoints in a row that hold some are damaged.
        """
        with self._lock:
            sealed = [
                envelope
                for number, part in enumerate(self._sealed)
                if not self._are_covered(part)
                for envelope in self._own_envelopes(number)
            ]
            envelopes = (*sealed, *_whole(self._fresh))
        return [e for e in envelopes if self._is_needed(e.edge, e.sequence)]

    def state(self) -> dict[str, Any]:
        """State of the log for a checkpoint, beside the fresh envelopes."""
        return {
            # A copy: an acknowledgement may come in another thread.
            "covered": [[*edge, sequence] for edge, sequence in self._covered.copy().items()],
            "sealed": [
                [part.round_index, [[*edge, end] for edge, end in part.ends.items()]]
                for part in self._sealed
            ],
            "carried": sorted(self._carried),
        }

    def restore(
        self,
        state: Mapping[str, Any],
        round_index: int,
        envelopes: WrittenEnvelopes,
        kept_rounds: Container[int],
    ) -> None:
        """Restore the log from a checkpoint.

        Args:
            state: state of the log in the checkpoint.
            round_index: round of the checkpoint.
            envelopes: envelopes in the checkpoint.
            kept_rounds: rounds whose checkpoints are still there; the envelopes of others were
                covered when these were removed, or carried into this one.
        """
        self._carried = set(state["carried"])
        self._covered = {(s, r): sequence for s, r, sequence in state["covered"]}
        self._sealed = []
        for older, described in state["sealed"]:
            ends = {(s, r): end for s, r, end in described}
            if older in kept_rounds:
                self._sealed.append(_Sealed(older, ends))
            elif older in self._carried:
                self._carried.remove(older)
            else:
                for edge, end in ends.items():
                    self.cover(edge, end)
        self._fresh = []
        self.add(envelopes.own)
        self.seal(round_index)


def _lost(edge: Edge, asked: int, first_kept: int) -> EnvelopesLostError:
    sender, receiver = edge
    return EnvelopesLostError(
        f"device {receiver} asks for message {asked} of device {sender}, which keeps those from "
        f"{first_kept} on: files in checkpoints/device-{receiver:06d} are lost or damaged; bring "
        "them back from a copy, or start the run anew"
    )


def _whole(
    batches: Iterable[_Batch], is_wanted: Callable[[Edge, int], bool] = lambda *_: True
) -> list[Envelope]:
    return [envelope for batch in batches for envelope in batch.envelopes(is_wanted)]


def describe_envelope(envelope: Envelope) -> list[Any]:
    """All fields of an envelope except its data, as values that JSON can hold."""
    return [*envelope.edge, envelope.sequence, envelope.stamp and asdict(envelope.stamp)]


def read_envelope(described: Sequence[Any], data: bytes) -> Envelope:
    """An envelope as it was described."""
    sender, receiver, sequence, stamp = described
    edge = sender, receiver
    return Envelope(edge, sequence, data, Stamp(**stamp) if stamp else None, receiver)
