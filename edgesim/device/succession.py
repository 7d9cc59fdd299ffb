"""Handover of the state of a leaver to its successor.

membership.py says which device the successor is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from torch import Tensor

from edgesim.compression.lossless import whole
from edgesim.compression.payload import Payload
from edgesim.compression.wire import Kind, Message
from edgesim.device.membership import Edge, HandoverNotes, Membership
from edgesim.gossip.algorithm import Algorithm, GossipState
from edgesim.learning.parameters import ParameterLayout
from topologies.schedules import Schedule


@dataclass(frozen=True, slots=True)
class Draft:
    """A message before it is addressed.

    Attributes:
        kind: `handover` or `copy`.
        payload: a whole vector.
        push_weight: u with the handover, otherwise 0.
        notes: of a handover, its `HandoverNotes`; of a copy, the two addresses of its edge.
    """

    kind: Kind
    payload: Payload
    push_weight: float
    notes: tuple[int, ...]


def handover(
    state: GossipState,
    layout: ParameterLayout,
    membership: Membership,
    next_sequences: Mapping[Edge, int],
) -> Iterator[Draft]:
    """Drafts of all messages to a successor: x and u, then the public copies.

    Args:
        state: of the device that leaves, after its last shares.
        layout: of its vectors.
        membership: its addresses.
        next_sequences: numbers of the next messages on its edges, in and out.
    """
    copies = copies_for_successor(state, membership)
    own = membership.addresses
    passed = {e: number for e, number in next_sequences.items() if e[0] in own or e[1] in own}
    notes = HandoverNotes(len(copies), own, passed)
    yield Draft("handover", whole(state.x, layout), state.u, notes.to_numbers())
    for ends, copy in copies:
        yield Draft("copy", whole(copy, layout), 0.0, ends)


def copies_for_successor(state: GossipState, membership: Membership) -> list[tuple[Edge, Tensor]]:
    """Public copies of edges to and from others, by the addresses at both ends."""
    sent, received = state.public_copies()
    own, index = membership.addresses, membership.index
    by_edge = {(index if at is None else at, peer): copy for (peer, at), copy in sent.items()}
    by_edge |= {(peer, index if at is None else at): copy for (peer, at), copy in received.items()}
    others = ((e, copy) for e, copy in by_edge.items() if not (e[0] in own and e[1] in own))
    return sorted(others, key=itemgetter(0))


def most_copies(algorithm: Algorithm[Any], schedule: Schedule, device: int) -> int:
    """Public copies that a device has at most when it leaves, of the edges of all rounds.

    Args:
        algorithm: of the fleet.
        schedule: of the graphs.
        device: of the scenario, without addresses that it takes over.
    """
    if not algorithm.keeps_edges:
        return 0
    receivers, senders = schedule.possible_receivers(device), schedule.possible_senders(device)
    return algorithm.buffers(len(receivers), len(senders)).kept


def inherit_copies_(state: GossipState, messages: Sequence[Message]) -> None:
    """Take over the public copies of leavers, before messages on their edges are absorbed.

    Args:
        state: of the successor.
        messages: of the round, with the copies of each handover.
    """
    sent, received = state.public_copies()
    left = {a for m in messages if m.kind == "handover" for a in notes_of(m).addresses}
    for message in messages:
        if message.kind == "copy":
            sender, receiver = message.notes
            copy = message.payload.decode()
            if sender in left:
                sent[receiver, sender] = copy
            else:
                received[sender, receiver] = copy


def drop_internal_copies_(state: GossipState, membership: Membership) -> None:
    """Delete public copies of edges between addresses of the device, which are no longer used."""
    own = membership.addresses
    if len(own) > 1:
        for copies in state.public_copies():
            for edge in [edge for edge in copies if edge[0] in own]:
                del copies[edge]


def inherit_mass_(state: GossipState, handover: Message) -> None:
    """Add x and u of a device that has left."""
    handover.payload.add_to_(state.x)
    state.u += handover.push_weight


def inherited_sequences(handover: Message) -> dict[Edge, int]:
    """Numbers of the next messages that the successor sends in the leaver's name."""
    notes = notes_of(handover)
    return {e: number for e, number in notes.sequences.items() if e[0] in notes.addresses}


def notes_of(handover: Message) -> HandoverNotes:
    """Notes of a handover message."""
    return HandoverNotes.from_numbers(handover.notes)
