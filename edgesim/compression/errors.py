"""The errors of this package."""

from __future__ import annotations

from edgesim.errors import EdgesimError


class CompressionError(EdgesimError, ValueError):
    """A vector, target or hyper-parameter that a compressor cannot work with."""


class NonFiniteEntryError(CompressionError):
    """An entry of a vector is NaN or infinite, or is so when it is read from a message."""


class WrongPayloadError(EdgesimError):
    """A compressor of one's own gives what can't be sent, or changes what it is given."""


class WireError(EdgesimError, ValueError):
    """Bytes that are no valid message, or a message that cannot be written.

    The codec's only exception: a receiver that catches it and asks again needs to catch no other.
    """
