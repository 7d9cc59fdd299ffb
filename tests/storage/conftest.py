"""Fixtures of the tests of storage."""

import pytest
from stores import bucket, s3_store, store, tiny_disk

from edgesim.results.run_directory import RunDirectory

__all__ = ["bucket", "directory", "s3_store", "store", "tiny_disk"]


@pytest.fixture
def directory(store):
    """A run directory that was just created, in a store of each kind."""
    return RunDirectory.create(store, "digest")
