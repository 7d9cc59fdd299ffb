"""Message sizes as others count them, to stand beside the true ones of wire.py.

Neither convention is a format: the reference code moves 8 bytes for each entry that it counts as 6,
and the paper's 8-bit messages exist in no code (reference.md, sections 0 and 3.6).
"""

from __future__ import annotations

from edgesim.compression.compressors import QSGD, Compressor, Identity, RandomK, TopK
from edgesim.compression.selection import kept_counts
from edgesim.learning.parameters import ParameterLayout


def bytes_by_convention(compressor: Compressor, layout: ParameterLayout) -> dict[str, int]:
    """One message as the reference code (`reference`) and the paper (`paper_8bit`) count it.

    Source: reference.md, sections 3.6 and 6.

    Only conventions that have a rule for the compressor are given.
    """
    match compressor:
        case TopK() | RandomK():
            kept = int(kept_counts(compressor.keep, layout).sum())
            return {
                "reference": reference_sparse_bytes(kept),
                "paper_8bit": paper_sparse8_bytes(kept, layout.num_tensors),
            }
        case QSGD():  # the reference's counter does not look at the number of levels
            return {"reference": reference_dense_bytes(layout.numel)}
        case Identity():
            return {
                "reference": reference_dense_bytes(layout.numel),
                "paper_8bit": paper_dense8_bytes(layout.numel, layout.num_tensors),
            }
        case _:
            return {}


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
