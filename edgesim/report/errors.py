"""Errors of reports."""

from __future__ import annotations

from edgesim.errors import EdgesimError


class ReportError(EdgesimError, ValueError):
    """A report cannot be made of these runs, or cannot be written; the message says why."""


class NothingRecordedError(ReportError):
    """A run of which no round is recorded yet."""
