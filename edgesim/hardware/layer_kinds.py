"""Kinds of layers whose time of a step differs, by the names that profiles give them.

The precision of a layer ends its name: in 8 bits the same layer runs other code.
"""

from __future__ import annotations

_EITHER = (
    "first_convolution",  # has no input gradient, and few channels
    "convolution",
    "pointwise_convolution",  # kernel 1
    "depthwise_convolution",  # groups: sees one channel, or a few
    "linear",
    "product",  # of two activations
    "embedding",
    "range_evonorm",
    "range_batch_norm",
    "layer_norm",
    "residual_sum",  # with the fork before it
    "max_pool",
)
_FLOAT = (
    "evonorm_s0",
    "batch_norm",
    "group_norm",
    "dropout",
    "relu",
    "ends",  # copy of the inputs, average over images, loss: once a step
    "operation",  # of torch, outside of known layers
)

LAYER_KINDS: tuple[str, ...] = (
    *(f"{kind}_{precision}" for kind in _EITHER for precision in ("fp32", "int8")),
    *(f"{kind}_fp32" for kind in _FLOAT),
)
"""All of them."""
