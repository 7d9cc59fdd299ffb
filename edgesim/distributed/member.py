"""One process's part in gossip: its vectors, its mass, its rounds and its bytes.

It goes through the same rounds as a device of the emulator in lockstep (edgesim/device): the same
algorithm, streams and messages. The local steps are the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from edgesim.assembly.build import streams_of
from edgesim.compression.errors import NonFiniteEntryError
from edgesim.compression.wire import ByteCounts, decode_one_of
from edgesim.device.mail import Outbox
from edgesim.distributed.errors import GossipError
from edgesim.distributed.peers import Peers
from edgesim.distributed.rules import Rules
from edgesim.gossip.algorithm import (
    GossipState,
    OutEdge,
    Place,
    Share,
    WrongSharesError,
    WrongStateError,
    check_state,
    checked_shares_,
)
from edgesim.gossip.optional_members import longest_message, starting_state
from edgesim.storage.state_tree import Arrays, pack, restore_, unpack
from edgesim.streams import StreamPurpose, stream
from topologies import first_exchange, takes_step, weight_by_sender

# Of a state; Gossip adds the first.
_KEYS = (
    *("digest", "rank", "round_index", "gossip", "next_sequences"),
    *("sent", "received_bytes", "vectors"),
)


class Member:
    """A member of a group of processes that gossip.

    Args:
        rules: of the group.
        peers: the processes.
        x: initial parameters, shape (D,), the same in all processes; taken over.
        num_samples: training samples of the process.

    Attributes:
        state: vectors and mass.
        round_index: rounds that are completed.
        sent: bytes of all messages that the process has sent.
        received_bytes: of all that it has absorbed.
    """

    def __init__(self, rules: Rules, peers: Peers, x: Tensor, num_samples: int) -> None:
        self._rules = rules
        self._peers = peers
        self._layouts = rules.message_layouts
        compressor, layout = longest_message(rules.algorithm)
        self._longest_bytes = compressor.form(layout).longest_bytes(rules.algorithm.name)
        schedule, rank = rules.schedule, peers.rank
        self._outbox = Outbox(rank, rules.algorithm.name, meter=None)
        self.state: GossipState = starting_state(
            rules.algorithm,
            x,
            weight_by_sender(schedule, rank, first_exchange(schedule)),
            Place(index=rank, num_devices=peers.size, num_samples=num_samples),
        )
        self.round_index = 0
        self.sent = ByteCounts(0, 0, 0, 0)
        self.received_bytes = 0

    def end_round_(self) -> None:
        """Exchange messages after a local step, and go on to the next round that has a step.

        Raises:
            GossipError: the training has diverged, or another process is lost or out of step.
        """
        self._exchange_()
        while not takes_step(self._rules.schedule, self._peers.rank, self.round_index):
            self._exchange_()

    def _exchange_(self) -> None:
        """Send and absorb the messages of one round, if it has any."""
        rank, r, schedule = self._peers.rank, self.round_index, self._rules.schedule
        scenario, algorithm = self._rules.scenario, self._rules.algorithm
        rng = stream(scenario.seed, StreamPurpose.COMPRESS, streams_of(scenario, rank), r)
        numel = algorithm.layout.numel
        edges = [OutEdge(receiver, weight) for receiver, weight in schedule.out_edges(rank, r)]
        try:
            shares = checked_shares_(algorithm, self.state, edges, rng)
            check_state(self.state, "send_", numel, torch.float32)
        except NonFiniteEntryError as error:
            raise diverged(rank, r, str(error)) from error
        except (WrongSharesError, WrongStateError) as error:
            raise self._own_code_error(error) from error
        messages = {share.peer: self._encoded(share) for share in shares}
        senders = schedule.in_neighbors(rank, r)
        arrived = self._peers.exchange(
            messages,
            senders,
            r,
            longest_bytes=self._longest_bytes,
            next_senders=schedule.in_neighbors(rank, r + 1),
        )
        received = [self._decoded(s, data) for s, data in zip(senders, arrived, strict=True)]
        algorithm.absorb_(self.state, received)  # sorted by sender, as everywhere
        try:
            check_state(self.state, "absorb_", numel, torch.float32)
        except WrongStateError as error:
            raise self._own_code_error(error) from error
        self.sent += self._outbox.sent
        self.received_bytes += sum(map(len, arrived))
        self._outbox.clear()
        self.round_index += 1

    def _own_code_error(self, error: WrongSharesError | WrongStateError) -> GossipError:
        where = f"on rank {self._peers.rank} in round {self.round_index}"
        return GossipError(f"gossip.algorithm: {where} {error}")

    def _encoded(self, share: Share) -> bytes:
        envelope = self._outbox.write(
            (self._peers.rank, share.peer),
            self.round_index,
            "share",
            share.payload,
            weight=share.weight,
            push_weight=share.push_weight,
            sent_in=self.round_index,
        )
        return envelope.data

    def _decoded(self, sender: int, data: bytes) -> Share:
        """The share of a message, which must be the one that is due."""
        message, rank = decode_one_of(data, self._layouts), self._peers.rank
        found = message.algorithm, message.sender, message.receiver, message.round_index
        due = self._rules.algorithm.name, sender, rank, self.round_index
        if found != due:
            raise GossipError(
                f"process {rank} waits for {_said(*due)}, but got {_said(*found)}: all processes "
                "must call optimizer.step() equally often, and load checkpoints of the same round"
            )
        return Share(sender, message.weight, message.push_weight, message.payload)

    def state_dict(self) -> dict[str, Any]:
        """State between two rounds: plain values and tensors, which `torch.save` can write."""
        arrays: Arrays = {}
        return {
            "rank": self._peers.rank,
            "round_index": self.round_index,
            "gossip": pack(self.state, arrays, "gossip"),
            "next_sequences": pack(self._outbox.next_sequences, arrays, "next_sequences"),
            "sent": [self.sent.values, self.sent.indices, self.sent.scales, self.sent.header],
            "received_bytes": self.received_bytes,
            "vectors": {path: torch.from_numpy(array) for path, array in arrays.items()},
        }

    def check_state(self, state: object) -> None:
        """Refuse what `Gossip.state_dict` did not give.

        Raises:
            GossipError: keys are lacking, or no step is due in its round.
        """
        if not isinstance(state, Mapping):
            what = f"it is a {type(state).__name__}"
        elif lacking := [key for key in _KEYS if key not in state]:
            what = f"it has no key {lacking[0]}"
        elif not self._begins_step(state["round_index"]):
            what = f"its round_index is {state['round_index']!r}, where no step begins"
        else:
            return
        raise GossipError(
            f"this is no state of gossip: {what}; give what gossip.state_dict() returned, in this "
            "process"
        )

    def _begins_step(self, round_index: object) -> bool:
        if not isinstance(round_index, int) or round_index < 0:
            return False
        return takes_step(self._rules.schedule, self._peers.rank, round_index)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that `state_dict` gave; the tensors in it are copied.

        Raises:
            GossipError: it is another process's.
        """
        rank = self._peers.rank
        if state["rank"] != rank:
            raise GossipError(
                f"process {rank} was given the state of process {state['rank']}; each loads its own"
            )
        arrays = {path: vector.cpu().numpy() for path, vector in state["vectors"].items()}
        restore_(self.state, state["gossip"], arrays)
        self._outbox.next_sequences = unpack(state["next_sequences"], arrays)
        self.round_index = state["round_index"]
        self.sent = ByteCounts(*state["sent"])
        self.received_bytes = state["received_bytes"]


def diverged(rank: int, round_index: int, what: str) -> GossipError:
    """Error of a process whose numbers are not finite."""
    return GossipError(
        f"process {rank} diverged in round {round_index}: {what}; lower the learning rate or "
        "gossip.averaging_rate"
    )


def _said(algorithm: str, sender: int, receiver: int, round_index: int) -> str:
    return f"{algorithm}'s message {sender} -> {receiver} of round {round_index}"
