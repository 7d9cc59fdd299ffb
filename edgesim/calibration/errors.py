"""Errors of calibrations."""

from __future__ import annotations

from edgesim.errors import EdgesimError


class CalibrationError(EdgesimError, ValueError):
    """A calibration can't be done or written; the message says what to change."""
