"""Error of the counting of costs."""

from __future__ import annotations

from edgesim.errors import EdgesimError


class CostError(EdgesimError, ValueError):
    """The work or memory of a layer, optimizer or algorithm is unknown."""
