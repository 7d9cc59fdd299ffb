"""Errors of a user's data; each message names problem, place and remedy."""

from __future__ import annotations

from edgesim.errors import EdgesimError


class DataError(EdgesimError, ValueError):
    """A dataset is missing, broken, or not of the expected kind."""


class MissingFilesError(DataError):
    """The files of a dataset are not where they should be."""


class PartitionError(EdgesimError, ValueError):
    """A dataset can't be divided among the devices as asked."""
