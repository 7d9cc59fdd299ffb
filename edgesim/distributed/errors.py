"""The errors of this package."""

from __future__ import annotations

from edgesim.errors import EdgesimError


class GossipError(EdgesimError):
    """Gossip among processes can't begin or go on; the message says where, why and the remedy."""
