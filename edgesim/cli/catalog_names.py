"""Names of the catalogs of `edgesim list`, without their entries, which take time to load."""

from __future__ import annotations

from typing import Literal

Catalog = Literal[
    "keys", "topologies", "models", "datasets", "algorithms", "compressors", "devices", "scenarios"
]
