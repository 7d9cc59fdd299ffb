"""Bytes of the types in which numbers are held."""

from __future__ import annotations

CODE_BYTES = 1  # uint8, int8
FLOAT_BYTES = 4  # float32
INDEX_BYTES = 8  # int64: indices, labels, counts, places of extremes
