"""When commands look for garbage: not among what imports make, nor at the end of the process.

Nearly all that imports make stays. torch alone makes hundreds of thousands of objects; to look
through them again and again takes a quarter of the time of a short command.
"""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Context for imports: no collection inside; if modules were new, none looks there later."""
    modules, was_enabled = len(sys.modules), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > modules:
            gc.freeze()
        if was_enabled:
            gc.enable()


def skip_last_collection() -> None:
    """Let the process end without a search for garbage: all its memory is given back anyway."""
    atexit.unregister(_end)  # one registration is enough
    atexit.register(_end)


def _end() -> None:
    """Hide all objects from the last search.

    Triton, which builds of torch for GPUs import, prints pages about what is not found then.
    """
    if "triton" in sys.modules:
        gc.unfreeze()
    else:
        gc.freeze()
