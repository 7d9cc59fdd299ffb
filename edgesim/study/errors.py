"""What can be wrong with a question about a scenario's costs."""

from __future__ import annotations

from edgesim.errors import EdgesimError


class StudyError(EdgesimError, ValueError):
    """The study can't be done, or can't be written where it was asked to."""
