"""The errors of this package."""

from __future__ import annotations

from edgesim.errors import EdgesimError

START_AGAIN = (
    "End all processes, start them again, and go on from checkpoints of the same round (When a "
    "process fails, in docs/outside.md)"
)


class GossipError(EdgesimError):
    """Gossip among processes can't begin or go on; the message says where, why and the remedy."""
