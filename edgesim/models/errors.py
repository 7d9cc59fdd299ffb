"""Error of the choice of a model."""

from __future__ import annotations

from edgesim.errors import EdgesimError


class ModelError(EdgesimError, ValueError):
    """A model that does not exist, or that can't take these images or this norm."""
