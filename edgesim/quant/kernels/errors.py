"""Error of the integer kernels."""

from __future__ import annotations

from edgesim.errors import EdgesimError


class KernelError(EdgesimError, ValueError):
    """Arrays or sizes that a kernel can't work on; says which and what it takes."""
