"""What can be wrong with data that a user brings; each message says what, where and the remedy."""

from __future__ import annotations

from edgesim.errors import EdgesimError


class DataError(EdgesimError, ValueError):
    """A dataset is missing, broken, or not of the expected kind."""


class PartitionError(EdgesimError, ValueError):
    """A dataset can't be divided among the devices as asked."""
