"""Torch's global generator, lent to models that draw from it, one at a time and from a known seed.

edgesim itself draws from no global generator. A model from outside may: in its constructor, or in
a step through `functional.dropout`, `torch.rand` and the like. The generator is one of the whole
process, and several devices compute at a time: it is seeded and used under a lock, and then put
back as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch
from torch import Tensor, nn

_LOCK = RLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within it torch's global generators start from a seed; nobody else within it draws.

    Args:
        seed: in [0, 2**63).
    """
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with _LOCK, torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield


def state() -> Tensor:
    """State of the processor's global generator, to be compared with an earlier one.

    It is read while nobody has the generator on loan, so other threads don't change it.
    """
    with _LOCK:
        return torch.random.get_rng_state()


class StepSeed(nn.Module):
    """Holds the seed of a step; a module without tensors, so that it is found among the others.

    Attributes:
        seed: of the step under way, in [0, 2**63).
    """

    def __init__(self) -> None:
        super().__init__()
        self.seed = 0
