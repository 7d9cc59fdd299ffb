"""Buckets of entries: pieces of a tensor that have scales of their own in a message.

A message has its scales tensor by tensor of its payload's layout. So a message in buckets is one
with a layout whose tensors are the buckets. Codes, bytes and sizes follow from the layout, and a
receiver knows the buckets by the layout's digest in the header.

Bagua's buckets are another thing: parameters that are compressed together
(gossip/bagua_low_precision.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from edgesim.compression.errors import CompressionError
from edgesim.learning.parameters import ParameterLayout

LEAST_BUCKET_SIZE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class InBuckets:
    """A compressor that has a scale for each tensor, or for each bucket of its entries.

    Attributes:
        bucket_size: entries of a bucket; a bucket does not cross tensors, so the last one of each
            tensor may be shorter. None: each tensor is one.
    """

    bucket_size: int | None = None

    def __post_init__(self) -> None:
        if self.bucket_size is not None and self.bucket_size < LEAST_BUCKET_SIZE:
            raise CompressionError(
                f"bucket_size is {self.bucket_size}; must be at least {LEAST_BUCKET_SIZE} entries"
            )

    def message_layout(self, layout: ParameterLayout) -> ParameterLayout:
        """Layout of the payload of a vector of this layout: its tensors are the buckets."""
        return layout if self.bucket_size is None else in_buckets(layout, self.bucket_size)


@lru_cache(maxsize=16)
def in_buckets(layout: ParameterLayout, bucket_size: int) -> ParameterLayout:
    """The same vector with each bucket as a tensor, which has the name of the tensor it is of.

    The layout itself if no tensor is longer than a bucket.
    """
    if max(layout.sizes) <= bucket_size:
        return layout
    names: list[str] = []
    shapes: list[tuple[int, ...]] = []
    for name, size in zip(layout.names, layout.sizes, strict=True):
        whole, rest = divmod(size, bucket_size)
        pieces = [(bucket_size,)] * whole + [(rest,)] * bool(rest)
        names += [name] * len(pieces)
        shapes += pieces
    return ParameterLayout(tuple(names), tuple(shapes))


def message_layout(compressor: object, layout: ParameterLayout) -> ParameterLayout:
    """Layout of the payloads that a compressor makes of vectors of this layout.

    As its method `message_layout` says; by default the same.
    """
    find = getattr(compressor, "message_layout", None)
    found: ParameterLayout = layout if find is None else find(layout)
    return found
