"""What workers of Ray have loaded when they begin, as forks of a process that imports this."""

from __future__ import annotations

import numba  # noqa: F401
import torch  # noqa: F401

import edgesim.fleet.host.build  # noqa: F401
from edgesim.compression.loading import load_compiled_code

load_compiled_code()  # else each worker would load it, or compile it, and have it in its own memory
