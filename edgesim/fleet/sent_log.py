"""Letters that a device has sent and that a receiver may ask for again.

A receiver that is restarted goes on from its checkpoint and needs what it had absorbed since. Its
senders therefore keep every letter until a checkpoint of the receiver covers it: since their own
last checkpoint in memory, older ones in the files of their checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from threading import Lock
from typing import Any

from edgesim.compression.wire import HEADER
from edgesim.fleet.network import LettersLostError
from edgesim.hardware.timeline import Stamp
from edgesim.mail import Letter
from edgesim.membership import Edge

KEPT_CHECKPOINTS = 2
"""Newest checkpoints of a device that are kept whatever happens: the second, if one is damaged."""
MANY_CHECKPOINTS = 6
"""Beyond these, letters of the oldest that are still needed go into the next checkpoint. An edge on
which nothing is sent any more is never covered, and must not keep all later files."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A letter in memory; one payload sent on many edges is kept once.

    Attributes:
        letter: without its data.
        head: first bytes of its data, which no two letters share.
        tail: the others.
    """

    letter: Letter
    head: bytes
    tail: bytes

    def whole(self) -> Letter:
        """The letter as it was sent."""
        return replace(self.letter, data=self.head + self.tail)


@dataclass(frozen=True, slots=True)
class _Sealed:
    """Letters in the file of a checkpoint: by edge, one past the last sequence."""

    round_index: int
    ends: Mapping[Edge, int]


class SentLog:
    """See above; of one device.

    One thread seals what the device has sent while another answers who asks for it: whoever asks
    in between must find each letter in one place or the other.

    Args:
        read: letters in the device's checkpoint of a round.
    """

    def __init__(self, read: Callable[[int], Sequence[Letter]]) -> None:
        self._read = read
        self._fresh: list[_Kept] = []
        self._fresh_bytes = 0
        self._sealed: list[_Sealed] = []
        self._covered: dict[Edge, int] = {}
        self._carried: set[int] = set()
        self._lock = Lock()

    @property
    def fresh(self) -> Sequence[Letter]:
        """Letters since the last checkpoint."""
        return [kept.whole() for kept in list(self._fresh)]

    @property
    def fresh_bytes(self) -> int:
        """Bytes that these take in memory."""
        return self._fresh_bytes

    def add(self, letters: Iterable[Letter]) -> None:
        """Keep letters before they are sent."""
        with self._lock:
            self._add(letters)

    def _add(self, letters: Iterable[Letter]) -> None:
        tail = b""
        for letter in letters:
            head, own_tail = letter.data[: HEADER.size], letter.data[HEADER.size :]
            self._fresh_bytes += len(head)
            if own_tail != tail:
                tail = own_tail
                self._fresh_bytes += len(tail)
            self._fresh.append(_Kept(replace(letter, data=b""), head, tail))

    def cover(self, edge: Edge, sequence: int) -> None:
        """Learn that letters of an edge below a sequence will not be asked for."""
        self._covered[edge] = max(sequence, self._covered.get(edge, 0))

    def seal(self, round_index: int) -> None:
        """The fresh letters are in the file of the checkpoint of this round."""
        with self._lock:
            self.seal_letters(round_index, (kept.letter for kept in self._fresh))
            self._fresh, self._fresh_bytes = [], 0

    def seal_letters(self, round_index: int, letters: Iterable[Letter]) -> None:
        """These letters are in the file of the checkpoint of this round."""
        ends: dict[Edge, int] = {}
        for letter in letters:
            ends[letter.edge] = max(letter.sequence + 1, ends.get(letter.edge, 0))
        self._sealed.append(_Sealed(round_index, ends))

    def drop_covered(self) -> list[int]:
        """Forget checkpoints that nobody needs once a new one is written; returns their rounds.

        One goes only with all that are older, so that no round is left without its past. Call it
        before a checkpoint is written, which may have to hold letters of older ones too.
        """
        with self._lock:
            return self._drop_covered()

    def _drop_covered(self) -> list[int]:
        dropped = []
        while len(self._sealed) >= KEPT_CHECKPOINTS and (
            self._sealed[0].round_index in self._carried or self._is_covered(self._sealed[0])
        ):
            dropped.append(self._sealed.pop(0).round_index)
        self._carried.difference_update(dropped)
        if len(self._sealed) >= MANY_CHECKPOINTS:
            self._carry(self._sealed[0].round_index)
        return dropped

    def _carry(self, round_index: int) -> None:
        """Take what is still needed of a checkpoint into the next one.

        The old one goes with the checkpoint after that: until then, if the next one is damaged,
        the one before it is gone on from, and needs the old one.
        """
        fresh, self._fresh = self._fresh, []
        self._add(
            letter
            for letter in self._read(round_index)
            if letter.sequence >= self._covered.get(letter.edge, 0)
        )
        self._fresh += fresh
        self._carried.add(round_index)

    def _is_covered(self, sealed: _Sealed) -> bool:
        return all(self._covered.get(edge, 0) >= end for edge, end in sealed.ends.items())

    def letters(self, edge: Edge, next_sequence: int) -> list[Letter]:
        """Letters of an edge from a sequence on, in order.

        Raises:
            LettersLostError: the first of them is gone.
        """
        with self._lock:  # also while files are read: they must not be dropped meanwhile
            found = {
                letter.sequence: letter
                for sealed in self._sealed
                if sealed.ends.get(edge, 0) > next_sequence
                for letter in self._read(sealed.round_index)
                if letter.edge == edge
            }
            found |= {k.letter.sequence: k.whole() for k in self._fresh if k.letter.edge == edge}
        wanted = [found[sequence] for sequence in sorted(found) if sequence >= next_sequence]
        if wanted and wanted[0].sequence > next_sequence:
            raise LettersLostError(
                f"device {edge[1]} asks for message {next_sequence} of device {edge[0]}, which "
                f"keeps those from {wanted[0].sequence} on: older checkpoints of device {edge[1]} "
                "are lost or damaged; start the run anew"
            )
        return wanted

    def uncovered(self) -> list[Letter]:
        """All letters that somebody may lack, in the order in which they were sent."""
        sealed = [
            letter
            for part in self._sealed
            if not self._is_covered(part)
            for letter in self._read(part.round_index)
        ]
        return [
            letter
            for letter in (*sealed, *self.fresh)
            if letter.sequence >= self._covered.get(letter.edge, 0)
        ]

    def state(self) -> dict[str, Any]:
        """What a checkpoint has to remember beside the fresh letters."""
        return {
            # A copy: a receipt may come in another thread.
            "covered": [[*edge, sequence] for edge, sequence in self._covered.copy().items()],
            "sealed": [
                [part.round_index, [[*edge, end] for edge, end in part.ends.items()]]
                for part in self._sealed
            ],
            "carried": sorted(self._carried),
        }

    def restore(self, state: Mapping[str, Any], kept_rounds: Container[int]) -> None:
        """Become what `state` described.

        Args:
            state: of a checkpoint.
            kept_rounds: rounds whose checkpoints are still there; the letters of others were
                covered when these were removed, or carried into this one.
        """
        self._carried = set(state.get("carried", ()))  # absent in files of early versions
        self._covered = {(s, r): sequence for s, r, sequence in state["covered"]}
        self._sealed = []
        for round_index, described in state["sealed"]:
            ends = {(s, r): end for s, r, end in described}
            if round_index in kept_rounds:
                self._sealed.append(_Sealed(round_index, ends))
            elif round_index in self._carried:
                self._carried.remove(round_index)
            else:
                for edge, end in ends.items():
                    self.cover(edge, end)


def describe_letter(letter: Letter) -> list[Any]:
    """All of a letter but its data, as JSON can hold it."""
    return [*letter.edge, letter.sequence, letter.stamp and asdict(letter.stamp)]


def read_letter(described: Sequence[Any], data: bytes) -> Letter:
    """A letter as it was described."""
    sender, receiver, sequence, stamp = described
    edge = sender, receiver
    return Letter(edge, sequence, data, Stamp(**stamp) if stamp else None, receiver)
