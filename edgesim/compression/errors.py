"""The errors of this package."""

from __future__ import annotations

from edgesim.errors import MEND_OWN_CODE, EdgesimError, OwnCodeError


class CompressionError(EdgesimError, ValueError):
    """A vector, target or hyper-parameter that a compressor cannot work with."""


class NonFiniteEntryError(CompressionError):
    """An entry of a vector is NaN or infinite, or is so when it is read from a message."""


class WrongPayloadError(OwnCodeError):
    """A compressor of one's own gives what can't be sent, or changes what it is given.

    Attributes:
        problem: what is wrong, without the key and the remedy.
    """

    problem: str

    @classmethod
    def of(cls, problem: str) -> WrongPayloadError:
        """The error of a problem."""
        error = cls(f"gossip.compressor.kind: {problem}\n{MEND_OWN_CODE}")
        error.problem = problem
        return error


class WireError(EdgesimError, ValueError):
    """Bytes that are no valid message, or a message that cannot be written.

    The codec's only exception: a receiver that catches it and asks again needs to catch no other.
    """
