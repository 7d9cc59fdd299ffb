"""Errors that a user can cause and mend.

Packages derive their own (`DataError`, `ModelError`, ...). One that is a `ValueError` too is bad
input: the command line prints its one or two lines and ends with status 2; the others end with 1.
"""

from __future__ import annotations


class EdgesimError(Exception):
    """Root of the errors that are edgesim's own."""


class ScenarioError(EdgesimError, ValueError):
    """A scenario file or an override can't be used; the message says where, why and the remedy."""
