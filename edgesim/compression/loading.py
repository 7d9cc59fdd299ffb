"""Loads the compiled code of messages before it is due (compilation.py)."""

from __future__ import annotations

import numpy as np

from edgesim.compression.compilation import use_compiled_code
from edgesim.compression.index_code import decode_indices, encode_indices
from edgesim.compression.selection import largest_per_tensor
from edgesim.learning.parameters import ParameterLayout


def load_compiled_code() -> None:
    """Load the compiled code, or compile it, and use it from now on."""
    use_compiled_code()
    layout, counts = ParameterLayout.from_shapes([(3,), (5,)]), np.array([1, 2])
    indices = largest_per_tensor(np.arange(8, dtype=np.uint32), counts, layout)
    for array in (indices, counts):
        array.setflags(write=False)  # as in payloads: numba compiles anew for read-only arrays
    code = encode_indices(indices, counts, layout).tobytes()  # as it arrives: to be read alone
    decode_indices(np.frombuffer(code, np.uint8), len(indices), layout)
