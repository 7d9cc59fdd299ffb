"""Messages that hold two vectors of the model's layout, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from edgesim.compression.compressors import Compressor
from edgesim.compression.message_form import MessageForm
from edgesim.compression.payload import Payload
from edgesim.gossip.algorithm import Share
from edgesim.learning.parameters import ParameterLayout


@lru_cache(maxsize=8)
def twice(layout: ParameterLayout) -> ParameterLayout:
    """Layout of two vectors, one after the other."""
    second = tuple(f"second {name}" for name in layout.names)
    return ParameterLayout(layout.names + second, layout.shapes * 2)


def compress_both(
    compressor: Compressor,
    layout: ParameterLayout,
    first: Tensor,
    second: Tensor,
    rng: np.random.Generator,
) -> Payload:
    """One payload of two vectors, shape (D,) each, of this layout."""
    return compressor.compress(torch.cat((first, second)), twice(layout), rng)


def add_both_(first: Tensor, second: Tensor, received: Sequence[Share], rate: float) -> None:
    """Add `rate` times w_e times the two vectors of each share to `first` and `second`."""
    for share in received:
        values = share.payload.decode().mul_(rate * share.weight)
        first.add_(values[: len(first)])
        second.add_(values[len(first) :])


def form_of_both(compressor: Compressor, layout: ParameterLayout) -> MessageForm:
    """Form of such a message."""
    return compressor.form(twice(layout))
