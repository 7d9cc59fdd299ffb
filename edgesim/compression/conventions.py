"""Message sizes by published conventions, for comparison with the true sizes of wire.py.

`reference` is the reference code's count (reference.md, section 3.6), `paper_8bit` the paper's
(section 6). Neither is a real format: the reference code sends 8 bytes for each entry that it
counts as 6 bytes, and no code encodes the 8-bit messages of the paper (sections 0 and 3.6).
`bagua` is the length of Bagua's buffers (section 7), which it sends as they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgesim.learning.parameters import ParameterLayout

_BAGUA_UNIT = 32  # bytes: of a header, and of what codes are filled up to


def dense_conventions(layout: ParameterLayout) -> dict[str, int]:
    """An uncompressed message, as the reference code and the paper count it."""
    return {
        "reference": reference_dense_bytes(layout.numel),
        "paper_8bit": paper_dense8_bytes(layout.numel, layout.num_tensors),
    }


def dense_levels_conventions(layout: ParameterLayout) -> dict[str, int]:
    """A message of levels; the count of the reference code ignores the number of levels."""
    return {"reference": reference_dense_bytes(layout.numel)}


def sparse_conventions(counts: NDArray[np.int64], layout: ParameterLayout) -> dict[str, int]:
    """A message of kept entries, as the reference code and the paper count it.

    Args:
        counts: kept entries of each tensor.
        layout: of the vector.
    """
    kept = int(counts.sum())
    return {
        "reference": reference_sparse_bytes(kept),
        "paper_8bit": paper_sparse8_bytes(kept, layout.num_tensors),
    }


def reference_dense_bytes(num_entries: int) -> int:
    """The reference code's count of an uncompressed message: 4 (d + 1), push weight included."""
    return 4 * (num_entries + 1)


def reference_sparse_bytes(num_kept: int) -> int:
    """The reference code's count of a top-k message: 6 k + 3, at 4 bytes a value, 2 an index."""
    return 6 * num_kept + 3


def paper_dense8_bytes(num_entries: int, num_tensors: int) -> int:
    """The paper's 8-bit message: d codes, two float32 a tensor, one float32 push weight.

    Source: reference.md, section 6.
    """
    return num_entries + 8 * num_tensors + 4


def paper_sparse8_bytes(num_kept: int, num_tensors: int) -> int:
    """8-bit top-k: 1 byte a value, 2 an index, two float32 a tensor, one push weight.

    Source: reference.md, section 6.
    """
    return 3 * num_kept + 8 * num_tensors + 4


def bagua_bytes(layout: ParameterLayout) -> int:
    """Bagua's MinMaxUInt8: a header of 32 bytes and the codes, filled up to 32, for each bucket.

    Source: reference.md, section 7.

    Args:
        layout: of the vector; each of its tensors is a bucket.
    """
    return sum(_BAGUA_UNIT + -(-size // _BAGUA_UNIT) * _BAGUA_UNIT for size in layout.sizes)
