"""Bytes that a layer holds in a training step, from its shapes.

The formulas follow from what the autograd functions save.

Symbols:
    N: samples   C: channels   G: groups   P: chunks of a range norm
    x, y: entries of a layer's input and output   g: gradient at y
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from edgesim.costs.layer import NORM_KINDS, PRODUCT_KINDS, Kind, Layer
from edgesim.hardware.widths import CODE_BYTES, FLOAT_BYTES, INDEX_BYTES
from edgesim.quant.backends import BackendName
from edgesim.quant.range_batch_norm_formulas import chunking
from edgesim.quant.range_evonorm_formulas import chunks_of
from edgesim.quant.settings import QuantizationSettings

_KEEP_FLOAT_INPUT = PRODUCT_KINDS | NORM_KINDS | {"max_pool"}  # in fp32
_KEEP_OUTPUT: frozenset[Kind] = frozenset({"batch_norm", "group_norm", "relu"})  # its sign is read
_PASS_GRADIENT: frozenset[Kind] = frozenset({"residual_sum", "view"})  # unchanged, in fp32


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMemory:
    """Bytes of one layer in one step.

    Attributes:
        output: y.
        keeps_input: whether the backward pass reads x itself.
        keeps_output: whether it reads y.
        kept: other tensors that it reads: codes, gates, statistics, places of extremes.
        kept_weights: 8-bit codes of weights, and the numbers of 8-bit parameters, that it reads.
        passing_weights: 8-bit parameters that only the forward pass reads.
        before_codes: g, copied or times scales by channel, until it is quantized.
        gradient_codes: g in 8 bits.
        rounded_gradient: g rounded for the weight gradient, if it is not g itself.
        activation_gradient: gradient between a norm and a ReLU that are separate for autograd.
        input_gradient: gradient at x; 0 if g is passed on unchanged, or if none is needed.
        parameter_gradients: of its parameters, until they are added to the flat gradient.
    """

    output: int
    keeps_input: bool
    keeps_output: bool
    kept: int
    kept_weights: int = 0
    passing_weights: int = 0
    before_codes: int = 0
    gradient_codes: int = 0
    rounded_gradient: int = 0
    activation_gradient: int = 0
    input_gradient: int
    parameter_gradients: int


def memory_of_layer(layer: Layer, backend: BackendName, *, is_last_feature: bool) -> LayerMemory:
    """Memory of a layer in a step.

    Args:
        layer: in the step.
        backend: of 8-bit layers.
        is_last_feature: whether the average over the image follows. The gradient of the average has
            another memory layout than 8-bit layers take, so it is copied.
    """
    if layer.settings is None:
        return _in_floats(layer)
    if layer.kind in PRODUCT_KINDS:
        return _code_product(layer, layer.settings)
    is_copied = is_last_feature and prod(layer.output_shape[2:]) > 1
    copied = FLOAT_BYTES * layer.output_entries if is_copied else 0
    if layer.kind == "residual_sum":
        return LayerMemory(
            output=FLOAT_BYTES * layer.output_entries,
            keeps_input=False,
            keeps_output=False,
            kept=0,
            before_codes=copied,
            input_gradient=FLOAT_BYTES * layer.output_entries,
            parameter_gradients=0,
        )
    return _code_norm(layer, backend, copied)


def _in_floats(layer: Layer) -> LayerMemory:
    """Memory of a layer in fp32, or of a layer without parameters."""
    x, y = layer.input_entries, layer.output_entries
    has_relu = layer.kind in ("batch_norm", "group_norm")
    hands_on = layer.kind in _PASS_GRADIENT or not layer.needs_input_gradient
    return LayerMemory(
        output=0 if layer.kind in ("view", "fork", "loss") else FLOAT_BYTES * y,
        keeps_input=layer.kind in _KEEP_FLOAT_INPUT,
        keeps_output=layer.kind in _KEEP_OUTPUT,
        kept=_kept_in_floats(layer),
        activation_gradient=FLOAT_BYTES * y if has_relu else 0,
        input_gradient=0 if hands_on else FLOAT_BYTES * x,
        parameter_gradients=FLOAT_BYTES * (layer.num_weights + layer.num_affine),
    )


def _kept_in_floats(layer: Layer) -> int:
    """Bytes beside input and output that the backward pass reads."""
    N, C, y = layer.input_shape[0], layer.input_shape[1], layer.output_entries
    per_group = FLOAT_BYTES * N * layer.groups
    match layer.kind:
        case "batch_norm":
            return 2 * FLOAT_BYTES * C  # mean, 1 / deviation
        case "group_norm":
            return 2 * per_group
        case "evonorm_s0":
            return FLOAT_BYTES * y + 2 * per_group  # gate; mean, 1 / deviation
        case "range_evonorm":
            return per_group + _extremes_by_group(layer)  # scale
        case "range_batch_norm":
            return 2 * FLOAT_BYTES * C + _extremes_by_channel(layer)  # mean, scale
        case "max_pool":
            return INDEX_BYTES * y
        case "compact_max_pool":
            return CODE_BYTES * y
        case "dropout":
            return FLOAT_BYTES * y  # mask
        case "loss":
            return FLOAT_BYTES * (y + 1)  # logarithms of probabilities; sum of sample weights
        case _:
            return 0


def _code_product(layer: Layer, settings: QuantizationSettings) -> LayerMemory:
    """Memory of a convolution or linear layer on 8-bit codes."""
    x, y, O = layer.input_entries, layer.output_entries, layer.output_shape[1]  # noqa: E741
    has_scales = settings.weight_range == "per_out_channel"
    needs_gradient = layer.needs_input_gradient
    return LayerMemory(
        output=FLOAT_BYTES * y,
        keeps_input=False,
        keeps_output=False,
        kept=CODE_BYTES * x,
        kept_weights=CODE_BYTES * layer.num_weights + FLOAT_BYTES * (O if has_scales else 1),
        passing_weights=FLOAT_BYTES * layer.num_affine,
        before_codes=FLOAT_BYTES * y if has_scales and needs_gradient else 0,
        gradient_codes=CODE_BYTES * y if needs_gradient else 0,
        rounded_gradient=0 if settings.weight_gradient == "fp32" else FLOAT_BYTES * y,
        input_gradient=FLOAT_BYTES * x if needs_gradient else 0,
        parameter_gradients=FLOAT_BYTES * (layer.num_weights + layer.num_affine),
    )


def _code_norm(layer: Layer, backend: BackendName, copied: int) -> LayerMemory:
    """Memory of a range norm on 8-bit codes; back ends keep different small tensors."""
    N, C, y = layer.input_shape[0], layer.input_shape[1], layer.output_entries
    parameters = FLOAT_BYTES * layer.num_affine
    if layer.kind == "range_evonorm":
        kept = 2 * FLOAT_BYTES * N * layer.groups  # scale, and as it is in 8 bits
        extremes, passing = _extremes_by_group(layer), FLOAT_BYTES * C  # beta
    else:
        kept = 3 * FLOAT_BYTES * C  # mean, scale, and as it is in 8 bits
        extremes, passing = _extremes_by_channel(layer), 0
    if backend == "int8_cpu":  # computes extremes again; its parameters are one array
        extremes = passing = 0
    return LayerMemory(
        output=FLOAT_BYTES * y,
        keeps_input=False,
        keeps_output=False,
        kept=CODE_BYTES * y + kept + extremes,
        kept_weights=parameters - passing,
        passing_weights=passing,
        before_codes=copied,
        gradient_codes=CODE_BYTES * y,
        input_gradient=FLOAT_BYTES * y,
        parameter_gradients=parameters,
    )


def _extremes_by_group(layer: Layer) -> int:
    """Places of the extremes of each chunk, in the shortest type: Range EvoNorm."""
    entries = prod(layer.input_shape[1:]) // layer.groups
    chunks = chunks_of(entries)
    length = entries // chunks
    place_bytes = 1 if length <= 1 << 8 else 2 if length <= 1 << 15 else 4
    return 2 * place_bytes * layer.input_shape[0] * layer.groups * chunks


def _extremes_by_channel(layer: Layer) -> int:
    """Places of the extremes of Range BatchNorm: chunks extend over the batch, so 8 bytes each."""
    chunks, _ = chunking(layer.input_entries // layer.input_shape[1])
    return 2 * INDEX_BYTES * chunks * layer.input_shape[1]
