"""Names that `edgesim list` takes, without their entries, which take time to load."""

from __future__ import annotations

from typing import Literal

What = Literal[
    "keys",
    "topologies",
    "models",
    "norms",
    "datasets",
    "partitions",
    "tasks",
    "algorithms",
    "compressors",
    "optimizers",
    "schedules",
    "devices",
    "scenarios",
    "columns",
    "metrics",
    "schema",
]
