"""Kinds of layers whose times in a step differ, by the names that profiles give them.

The precision ends a name: in 8 bits the same layer runs other code. A `first_convolution` has no
input gradient and few channels; a `pointwise_convolution` has a kernel of 1; a
`depthwise_convolution` has groups; an `unfolded_convolution`, with groups or without (`depthwise`),
has a kernel, stride or padding that is no square, or dilation; a `product` is that of two
activations; a `small_evonorm_s0`, of images below `COMPILED_FROM` entries (models/evonorm.py), runs
torch's operations; a `residual_sum` counts with the fork of its branches; `ends` are the copy of
the inputs, the average over images and the loss, once a step; an `operation` is one of torch's,
outside of layers of known kinds.

Messages have times like layers. `encoding` is to choose entries and make bytes of them, `decoding`
to check bytes and make entries of them. Their entries are those of the vector, their weights those
that are sent. Dense messages are those of fp32; others go by the rates.

So have the updates of edgesim's own optimizers, `sgd_update` and the like, once a step. Their
entries are those of the flat vector.
"""

from __future__ import annotations

from typing import Literal, get_args

LayerKind = Literal[
    "first_convolution_fp32",
    "convolution_fp32",
    "pointwise_convolution_fp32",
    "depthwise_convolution_fp32",
    "linear_fp32",
    "product_fp32",
    "embedding_fp32",
    "evonorm_s0_fp32",
    "small_evonorm_s0_fp32",
    "batch_norm_fp32",
    "group_norm_fp32",
    "range_evonorm_fp32",
    "range_batch_norm_fp32",
    "layer_norm_fp32",
    "residual_sum_fp32",
    "max_pool_fp32",
    "dropout_fp32",
    "relu_fp32",
    "ends_fp32",
    "operation_fp32",
    "first_convolution_int8",
    "convolution_int8",
    "pointwise_convolution_int8",
    "depthwise_convolution_int8",
    "unfolded_convolution_int8",
    "unfolded_depthwise_convolution_int8",
    "linear_int8",
    "product_int8",
    "embedding_int8",
    "range_evonorm_int8",
    "range_batch_norm_int8",
    "layer_norm_int8",
    "residual_sum_int8",
    "max_pool_int8",
    "encoding_sparse",
    "encoding_dense",
    "decoding_sparse",
    "decoding_dense",
    "sgd_update",
    "quasi_global_sgd_update",
    "adam_update",
    "quasi_global_adam_update",
]

LAYER_KINDS: tuple[LayerKind, ...] = get_args(LayerKind)
"""All of them."""
