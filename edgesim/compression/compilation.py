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

import numpy as np

from edgesim.learning.parameters import ParameterLayout

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


def load_compiled_code() -> None:
    """Load the compiled code, or compile it, and use it from now on."""
    from edgesim.compression.index_code import decode_indices, encode_indices
    from edgesim.compression.selection import largest_per_tensor

    _usage.calls_in_numpy = CALLS_IN_NUMPY
    layout, counts = ParameterLayout.from_shapes([(3,), (5,)]), np.array([1, 2])
    indices = largest_per_tensor(np.arange(8, dtype=np.uint32), counts, layout)
    for array in (indices, counts):
        array.setflags(write=False)  # as in payloads: numba compiles anew for read-only arrays
    code = encode_indices(indices, counts, layout).tobytes()  # as it arrives: to be read alone
    decode_indices(np.frombuffer(code, np.uint8), len(indices), layout)
