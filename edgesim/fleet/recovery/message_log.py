"""The sender-based message log: sent envelopes that a receiver may ask for again.

A receiver that is restarted goes on from its checkpoint and needs what it had absorbed since. Its
senders therefore keep every envelope until a checkpoint of the receiver covers it: since their own
last checkpoint but one in memory, older ones in the files of their checkpoints. Each is written
twice, as one of a checkpoint's own envelopes and as a copy in the next one, so that no damaged file
takes envelopes along.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
"""Newest checkpoints of a device that are kept whatever happens: the second, if one is damaged."""
MANY_CHECKPOINTS = 6
"""Beyond these, envelopes of the oldest that are still needed go into the next checkpoint. An edge
on which nothing is sent any more is never covered, and must not keep all later files."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """An envelope in memory; one payload sent on many edges is kept once.

    Attributes:
        envelope: without its data.
        head: first bytes of its data, which no two envelopes share.
        tail: the others.
    """

    envelope: Envelope
    head: bytes
    tail: bytes

    def whole(self) -> Envelope:
        """The envelope as it was sent."""
        return replace(self.envelope, data=self.head + self.tail)


@dataclass(frozen=True, slots=True)
class _Sealed:
    """A checkpoint's own envelopes: by edge, one past the last sequence."""

    round_index: int
    ends: Mapping[Edge, int]


@dataclass(frozen=True, slots=True)
class WrittenEnvelopes:
    """What the file of a checkpoint holds, each in the order in which it was sent.

    Attributes:
        copies: of the own envelopes of the checkpoint before, as far as they were not covered.
        own: envelopes since then.
    """

    copies: Sequence[Envelope]
    own: Sequence[Envelope]


class MessageLog:
    """See above; of one device.

    One thread seals what the device has sent while another answers who asks for it: whoever asks
    in between must find each envelope in one place or the other.

    Args:
        read: envelopes in the device's checkpoint of a round, or CheckpointError if it is damaged.
    """

    def __init__(self, read: Callable[[int], WrittenEnvelopes]) -> None:
        self._read = read
        self._fresh: list[_Kept] = []
        self._newest_sealed: list[_Kept] = []  # own envelopes of the last checkpoint
        self._fresh_bytes = 0
        self._sealed: list[_Sealed] = []
        self._covered: dict[Edge, int] = {}
        self._carried: set[int] = set()
        self._lock = Lock()

    def to_write(self) -> WrittenEnvelopes:
        """What the next checkpoint has to hold."""
        with self._lock:
            copies = [kept for kept in self._newest_sealed if not self._is_covered(kept.envelope)]
            return WrittenEnvelopes(_whole(copies), _whole(self._fresh))

    @property
    def fresh_bytes(self) -> int:
        """Bytes in memory of envelopes that no checkpoint holds yet."""
        return self._fresh_bytes

    def add(self, envelopes: Iterable[Envelope]) -> None:
        """Keep envelopes before they are sent."""
        with self._lock:
            self._add(envelopes)

    def _add(self, envelopes: Iterable[Envelope]) -> None:
        tail = b""
        for envelope in envelopes:
            head, own_tail = envelope.data[: HEADER.size], envelope.data[HEADER.size :]
            self._fresh_bytes += len(head)
            if own_tail != tail:
                tail = own_tail
                self._fresh_bytes += len(tail)
            self._fresh.append(_Kept(replace(envelope, data=b""), head, tail))

    def cover(self, edge: Edge, sequence: int) -> None:
        """Learn that envelopes of an edge below a sequence will not be asked for."""
        self._covered[edge] = max(sequence, self._covered.get(edge, 0))

    def seal(self, round_index: int) -> None:
        """What was to be written is in the file of the checkpoint of this round."""
        with self._lock:
            ends: dict[Edge, int] = {}
            for kept in self._fresh:
                edge, sequence = kept.envelope.edge, kept.envelope.sequence
                ends[edge] = max(sequence + 1, ends.get(edge, 0))
            self._sealed.append(_Sealed(round_index, ends))
            self._newest_sealed, self._fresh, self._fresh_bytes = self._fresh, [], 0

    def drop_covered(self) -> list[int]:
        """Forget checkpoints that nobody needs once a new one is written; returns their rounds.

        One goes only with all that are older, so that no round is left without its past. Call it
        before a checkpoint is written, which may have to hold envelopes of older ones too.
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
        """Take what is still needed of the oldest checkpoint into the next one.

        The old one goes with the checkpoint after that: until then, if the next one is damaged,
        the one before it is gone on from, and needs the old one.
        """
        envelopes = self._own_envelopes(0)
        fresh, self._fresh = self._fresh, []
        self._add(envelope for envelope in envelopes if not self._is_covered(envelope))
        self._fresh += fresh
        self._carried.add(self._sealed[0].round_index)

    def _is_covered(self, envelope: Envelope) -> bool:
        return envelope.sequence < self._covered.get(envelope.edge, 0)

    def _are_covered(self, sealed: _Sealed) -> bool:
        return all(self._covered.get(edge, 0) >= end for edge, end in sealed.ends.items())

    def _own_envelopes(self, number: int) -> Sequence[Envelope]:
        """Own envelopes of one of the checkpoints, but maybe for some that are covered.

        Raises:
            CheckpointError: its file is damaged, and the next one, too, or that has no copies.
            StorageError: likewise, where a file can't be read at all.
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
            found |= {
                k.envelope.sequence: k.whole() for k in self._fresh if k.envelope.edge == edge
            }
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
        return [envelope for envelope in envelopes if not self._is_covered(envelope)]

    def state(self) -> dict[str, Any]:
        """What a checkpoint has to remember beside the fresh envelopes."""
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
        """Become what it was when a checkpoint had been written.

        Args:
            state: in that checkpoint.
            round_index: of it.
            envelopes: in it.
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


def _whole(envelopes: Iterable[_Kept]) -> list[Envelope]:
    return [kept.whole() for kept in envelopes]


def describe_envelope(envelope: Envelope) -> list[Any]:
    """All of an envelope but its data, as JSON can hold it."""
    return [*envelope.edge, envelope.sequence, envelope.stamp and asdict(envelope.stamp)]


def read_envelope(described: Sequence[Any], data: bytes) -> Envelope:
    """An envelope as it was described."""
    sender, receiver, sequence, stamp = described
    edge = sender, receiver
    return Envelope(edge, sequence, data, Stamp(**stamp) if stamp else None, receiver)
