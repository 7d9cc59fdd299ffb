"""A payload for messages that are not gossip: a whole vector without loss."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from edgesim.compression.payload import Payload
from edgesim.compression.value_codes import PLAIN_CODES
from edgesim.learning.parameters import ParameterLayout


def whole(x: Tensor, layout: ParameterLayout) -> Payload:
    """Every entry of a vector, bit for bit.

    Args:
        x: shape (D,), float32 or float64, finite.
        layout: of the vector.
    """
    return Payload(
        layout=layout,
        code=PLAIN_CODES["fp64" if x.dtype == torch.float64 else "fp32"],
        indices=None,
        counts=np.array(layout.sizes, np.int64),
        codes=x.numpy().copy(),
        scales=np.empty((layout.num_tensors, 0), np.float32),
    )
