"""What can be wrong with a question about costs."""

from __future__ import annotations

from edgesim.errors import EdgesimError


class CostError(EdgesimError, ValueError):
    """Something whose work or memory has no count here: a layer, an optimizer, an algorithm."""
