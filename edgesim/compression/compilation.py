"""When compiled code takes the place of numpy, which gives the same bytes in a part of the time.

To load numba and the compiled code takes some tenths of a second, as long as a few hundred messages
in numpy. So a process begins with numpy, and a command that makes few messages never loads numba.
"""

from __future__ import annotations

from dataclasses import dataclass

CALLS_IN_NUMPY = 256  # of a process, before compiled code is worth the time that its loading takes


@dataclass(slots=True)
class _Usage:
    calls_in_numpy: int = 0


_usage = _Usage()


def is_compiled_code_due() -> bool:
    """Whether this call is to be made by compiled code; counts the calls that are not."""
    if _usage.calls_in_numpy >= CALLS_IN_NUMPY:
        return True
    _usage.calls_in_numpy += 1
    return False


def use_compiled_code() -> None:
    """Use compiled code from now on, also for the first calls of this process."""
    _usage.calls_in_numpy = CALLS_IN_NUMPY
