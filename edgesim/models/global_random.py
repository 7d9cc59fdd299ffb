"""Use of torch's global generator by models that draw from it: one at a time, with a known seed.

edgesim itself draws from no global generator. A model from outside may draw from it in its
constructor, or in a step by `functional.dropout`, `torch.rand` and the like. The process has one
such generator for several devices that compute at the same time. So it is seeded and used under a
lock, and then its state is restored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch
from torch import nn

_LOCK = RLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Context in which torch's global generators start from a seed, for one thread at a time.

    Args:
        seed: in [0, 2**63).
    """
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with _LOCK, torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield


def state() -> bytes:
    """State of the processor's global generator, to be compared with an earlier one.

    It is read under the lock, so other threads do not change it meanwhile.
    """
    with _LOCK:
        return torch.random.get_rng_state().numpy().tobytes()


class StepSeed(nn.Module):
    """Holds the seed of a step.

    It is a module without tensors, so `seed_dropout_` finds it in the model.

    Attributes:
        seed: of the current step, in [0, 2**63).
    """

    def __init__(self) -> None:
        super().__init__()
        self.seed = 0
