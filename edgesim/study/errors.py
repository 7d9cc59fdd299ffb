"""Error of a study of costs."""

from __future__ import annotations

from edgesim.errors import EdgesimError


class StudyError(EdgesimError, ValueError):
    """The study can't be done, or its files can't be written."""
