"""Fixtures of the tests of storage."""

from stores import bucket, s3_store, store, tiny_disk

__all__ = ["bucket", "s3_store", "store", "tiny_disk"]
