"""The catalogs that `edgesim list` shows; apart from what fills them, which takes time to load."""

from __future__ import annotations

from typing import Literal

Catalog = Literal[
    "keys", "topologies", "models", "datasets", "algorithms", "compressors", "devices", "scenarios"
]
