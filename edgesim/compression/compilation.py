"""When compiled code takes the place of numpy. Both give the same bytes; compiled code is faster.

Loading numba and the compiled code takes some tenths of a second, as long as some hundred messages
take in numpy. Compiling it takes up to ten seconds, once on a machine. So a process begins with
numpy, and a command that makes few messages never loads numba. Workers of Ray are forks of a
process that has loaded the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

CALLS_IN_NUMPY = 256  # of a process, before compiled code is worth the time that its loading takes


@dataclass(slots=True)
class _Usage:
    calls_in_numpy: int = 0
    is_counted: bool = True


_usage = _Usage()


def is_compiled_code_due() -> bool:
    """Whether this call is to be made by compiled code; counts the calls that are not."""
    if _usage.calls_in_numpy >= CALLS_IN_NUMPY:
        return True
    _usage.calls_in_numpy += _usage.is_counted
    return False


@contextmanager
def uncounted_calls() -> Iterator[None]:
    """Context whose calls load no compiled code; they use it if it is loaded already."""
    _usage.is_counted = False
    try:
        yield
    finally:
        _usage.is_counted = True


def use_compiled_code() -> None:
    """Make compiled code due from now on."""
    _usage.calls_in_numpy = CALLS_IN_NUMPY
