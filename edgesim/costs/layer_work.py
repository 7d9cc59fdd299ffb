"""Work of one layer in one training step, by pass, from its shapes.

MACs: each product of a convolution counts, also with padded zeros. The input gradient and the
weight gradient each take as many MACs as the forward pass (reference.md, section 6). In 8 bits,
forward pass and input gradient are products of codes. `QuantizationSettings.weight_gradient` sets
the precision of the products of the weight gradient (reference.md, section 1.3).

Element-wise operations: additions, products, comparisons, roundings and functions (exp, ...) that
the formulas ask for, one each, entry by entry; the table is `_FLOAT_OPS`. Operations that are done
once for a channel, a chunk or a sample's group are not counted, nor are checks for divergence. Sums
that both gradients need are counted for the weight gradient.

Traffic: each pass reads each of its operands and writes its result once, in the type in which the
step holds it between passes: codes in 1 byte, floats in 4, places of maxima in 1 or 8. Activations
and their gradients are fp32 between layers in both precisions, because a grid is known only when
all of a tensor is (reference.md, section 1.2): an 8-bit layer reads fp32, writes codes, and writes
fp32. What a layer saves for its backward pass is written once and read once. The model of the
caches: they hold everything within a pass and nothing between passes. A norm computes both
gradients in one pass; its traffic is counted for the input gradient. Scales, and other values with
one number per channel, are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import assert_never

from edgesim.costs.layer import PRODUCT_KINDS, Kind, Layer
from edgesim.costs.layer_tallies import tally_of
from edgesim.hardware.widths import CODE_BYTES, FLOAT_BYTES, INDEX_BYTES
from edgesim.hardware.work import NOISE_OPS, Work
from edgesim.quant.settings import QuantizationSettings, Rounding

RANGE_OPS = 2  # minimum and maximum, a comparison each
DEQUANTIZE_OPS = 2  # (code - zero point) scale
WEIGHT_CODE_OPS = 6  # |w|, maximum, product with 1 / scale, rounding, two ends
_STEP_OPS = 5  # product with 1 / scale, zero point, rounding, two ends
_RESCALE_OPS = 2  # sum of products of codes less the zero point's share, times the scales


@dataclass(frozen=True, slots=True)
class LayerWork:
    """Work of one layer in one step, by pass."""

    layer: Layer
    forward: Work
    input_gradient: Work
    weight_gradient: Work

    @property
    def total(self) -> Work:
        """All passes."""
        return self.forward + self.input_gradient + self.weight_gradient

    def between(self, other: LayerWork, share: float) -> LayerWork:
        """Work between that on two batches; see `StepWork.between`."""
        return LayerWork(
            self.layer,
            _between(self.forward, other.forward, share),
            _between(self.input_gradient, other.input_gradient, share),
            _between(self.weight_gradient, other.weight_gradient, share),
        )


@dataclass(frozen=True)
class StepWork:
    """Work of forward and backward pass on one batch, in the order of the forward pass.

    Attributes:
        layers: those that have closed forms.
        measured: work of all other layers, in both passes.
    """

    layers: tuple[LayerWork, ...]
    measured: Work = field(default_factory=Work)

    @classmethod
    def of(cls, layers: Iterable[Layer], measured: Work | None = None) -> StepWork:
        """Work of layers in one step, and the measured work of other layers."""
        return cls(tuple(work_of_layer(layer) for layer in layers), measured or Work())

    @cached_property
    def forward(self) -> Work:
        """Forward pass of all layers."""
        return sum((layer.forward for layer in self.layers), Work())

    @cached_property
    def input_gradient(self) -> Work:
        """Gradients at the inputs of all layers."""
        return sum((layer.input_gradient for layer in self.layers), Work())

    @cached_property
    def weight_gradient(self) -> Work:
        """Gradients at the parameters of all layers."""
        return sum((layer.weight_gradient for layer in self.layers), Work())

    @cached_property
    def total(self) -> Work:
        """All passes of all layers."""
        return self.forward + self.input_gradient + self.weight_gradient + self.measured

    def between(self, other: StepWork, share: float) -> StepWork:
        """Work on a batch whose size is between those of two others, of the same layers.

        Args:
            other: work on the other batch.
            share: of the work on this batch.
        """
        pairs = zip(self.layers, other.layers, strict=True)
        layers = tuple(own.between(its, share) for own, its in pairs)
        return StepWork(layers, _between(self.measured, other.measured, share))


def _between(work: Work, other: Work, share: float) -> Work:
    rest = other.each(lambda count: (1 - share) * count)
    return work.each(lambda count: share * count) + rest


@dataclass(frozen=True, slots=True)
class _ByPass:
    """Operations, or bytes, by pass: per entry of a layer's output, or of a whole layer."""

    forward: int
    input_gradient: int
    weight_gradient: int


# x: input  y: output  g: gradient at y  gamma, beta, v: parameters  mu, r: mean, 1 / deviation
# s: scale from the range  h: gate  n = x h
_SIGMOID_OPS = 5  # v x, its sign, exp, + 1, reciprocal
_FLOAT_OPS: dict[Kind, _ByPass] = {
    # y = max(0, (x - mu) r gamma + beta). Forward: mean 1, variance 3 (x - mu, square, sum),
    # x - mu, product, sum, maximum. Backward: g masked 2 and x - mu, product, sum, sum of g for the
    # weights; then gamma r (g - mean - (x - mu) c): x - mu, product, two differences, product.
    "batch_norm": _ByPass(8, 5, 6),
    "group_norm": _ByPass(8, 5, 6),
    # y = x h r gamma + beta, models/evonorm.py. Forward: mean 1, variance 3, gate 5, x h, product,
    # sum. Backward: sum of g 1, g h x and its sum 3, its product with 1 - h 2, with x and sum 2;
    # then g h + v (g x h (1 - h)): 2, - k (x - mu): 2, product and sum 2.
    "evonorm_s0": _ByPass(12, 6, 8),
    # y = (x - mu) s gamma + beta, rectified. Forward: range 2, mean 1, x - mu, two products, sum,
    # maximum. Backward: the sign of y anew 5, masked g 1, g (x - mu) and its sum 2, sum of g 1;
    # then the product with gamma s, its mean, the difference.
    "range_batch_norm": _ByPass(8, 3, 9),
    # y = (x - mu) r gamma + beta. Forward: mean 1, variance 3, x - mu, two products, sum. Backward:
    # x - mu, its product with r, with g, its sum, sum of g for the weights; then h = g gamma, its
    # sum, its product with x - mu and sum; h less its mean, product, product, difference.
    "layer_norm": _ByPass(8, 8, 5),
    "residual_sum": _ByPass(1, 0, 0),  # both branches get the same gradient
    "fork": _ByPass(0, 1, 0),  # the branches' gradients are added
    "dropout": _ByPass(NOISE_OPS + 3, 1, 0),  # draw, comparison, mask by 1 / (1 - p), product
    "relu": _ByPass(1, 1, 0),
    # Log-softmax: maximum, difference, exp, sum, difference of the sum's logarithm. Backward:
    # exp, difference of the label's 1, product with 1 / N.
    "loss": _ByPass(5, 3, 0),
    "copy": _ByPass(0, 0, 0),
    "view": _ByPass(0, 0, 0),
}
# y = x h s gamma + beta, quant/range_evonorm_formulas.py. Forward: range 2, gate 5, x h, three.
# Backward: gate and slope; g s gamma 2, its product with x slope 2, and with h, v, sum 3; g x h 2,
# its sum for the range 2; at the weights two products with their sums 4, sum of g 1.
_RANGE_EVONORM_OPS = {
    "sigmoid": _ByPass(2 + _SIGMOID_OPS + 4, _SIGMOID_OPS + 2 + 11, 5),  # slope h (1 - h)
    # Gate clip(v x / 6 + 1/2): 5 as well. Its slope: two comparisons, both, a sixth.
    "hard_sigmoid": _ByPass(2 + 5 + 4, 5 + 4 + 11, 5),
}


def quantize_ops(rounding: Rounding) -> int:
    """Operations to quantize one entry, including its share of finding the grid."""
    ops = RANGE_OPS + _STEP_OPS
    return ops + NOISE_OPS + 1 if rounding == "stochastic" else ops


def work_of_layer(layer: Layer) -> LayerWork:
    """Work of one layer in one step; its forward pass carries the layer's sizes."""
    counted = _counted(layer)
    if not layer.needs_weight_gradient:
        counted = replace(counted, weight_gradient=Work())
        if not layer.needs_input_gradient:  # of a norm, too
            counted = replace(counted, input_gradient=Work())
    forward = replace(counted.forward, layers=(tally_of(layer, counted.total),))
    return replace(counted, forward=forward)


def _counted(layer: Layer) -> LayerWork:
    if layer.kind in PRODUCT_KINDS:
        if layer.settings is None:
            return _float_product(layer)
        return _code_product(layer, layer.settings)
    if layer.kind == "product":
        return _product_of_activations(layer)
    if layer.kind == "embedding":
        return _embedding(layer)
    ops, traffic = _operations(layer), _traffic(layer)
    passes = (
        Work(elementwise_ops=ops.forward, traffic_bytes=traffic.forward),
        Work(elementwise_ops=ops.input_gradient, traffic_bytes=traffic.input_gradient),
        Work(elementwise_ops=ops.weight_gradient, traffic_bytes=traffic.weight_gradient),
    )
    # A norm's backward pass computes the gradient at its input in any case.
    if not layer.needs_input_gradient and not layer.num_affine:
        return LayerWork(layer, passes[0], Work(), passes[2])
    return LayerWork(layer, *passes)


def num_products(layer: Layer) -> int:
    """Products of one pass: each output sums over kernel and input channels of its group."""
    return layer.output_entries * (layer.input_shape[1] // layer.groups) * layer.taps


def _float_product(layer: Layer) -> LayerWork:
    macs, x, y = num_products(layer), layer.input_entries, layer.output_entries
    bias_ops = y if layer.num_affine else 0
    operands = x + layer.num_weights + y
    forward = Work(
        macs_fp32=macs,
        elementwise_ops=bias_ops,
        traffic_bytes=FLOAT_BYTES * (operands + layer.num_affine),
    )
    input_gradient = Work(macs_fp32=macs, traffic_bytes=FLOAT_BYTES * operands)
    return LayerWork(
        layer, forward, input_gradient if layer.needs_input_gradient else Work(), forward
    )


def _code_product(layer: Layer, settings: QuantizationSettings) -> LayerWork:
    macs, x, y = num_products(layer), layer.input_entries, layer.output_entries
    weights, bias_ops = layer.num_weights, y if layer.num_affine else 0
    both = FLOAT_BYTES + CODE_BYTES
    forward = Work(
        macs_int8=macs,
        elementwise_ops=x * quantize_ops(settings.activation_rounding)
        + weights * WEIGHT_CODE_OPS
        + y * _RESCALE_OPS
        + bias_ops,
        traffic_bytes=both * (x + weights) + FLOAT_BYTES * (y + layer.num_affine),
    )
    input_gradient = Work()
    if layer.needs_input_gradient:
        scaled = y if settings.weight_range == "per_out_channel" else 0
        input_gradient = Work(
            macs_int8=macs,
            elementwise_ops=y * quantize_ops(settings.gradient_rounding)
            + scaled
            + x * _RESCALE_OPS,
            traffic_bytes=both * y + CODE_BYTES * weights + FLOAT_BYTES * x,
        )
    g_ops, g_bytes = _gradient_for_weights(layer, settings)
    weight_gradient = Work(
        macs_int8=macs if settings.weight_gradient == "int8" else 0,
        macs_16bit=macs if settings.weight_gradient in ("fp16", "bf16") else 0,
        macs_fp32=macs if settings.weight_gradient == "fp32" else 0,
        # Codes of x less their zero point; sums times the scale.
        elementwise_ops=x + weights + y * g_ops + bias_ops,
        traffic_bytes=CODE_BYTES * x + y * g_bytes + FLOAT_BYTES * (weights + layer.num_affine),
    )
    return LayerWork(layer, forward, input_gradient, weight_gradient)


def _product_of_activations(layer: Layer) -> LayerWork:
    """Both gradients are input gradients, of which each takes as many MACs as the forward pass."""
    macs, y = layer.output_entries * layer.input_shape[-1], layer.output_entries
    rows, columns = layer.output_shape[-2:]
    x = layer.input_entries + layer.input_entries // rows * columns  # of both factors
    settings = layer.settings
    if settings is None:
        return LayerWork(
            layer,
            Work(macs_fp32=macs, traffic_bytes=FLOAT_BYTES * (x + y)),
            Work(macs_fp32=2 * macs, traffic_bytes=2 * FLOAT_BYTES * (x + y)),
            Work(),
        )
    both = FLOAT_BYTES + CODE_BYTES
    forward = Work(
        macs_int8=macs,
        elementwise_ops=x * quantize_ops(settings.activation_rounding) + y * _RESCALE_OPS,
        traffic_bytes=both * x + FLOAT_BYTES * y,
    )
    gradients = Work(
        macs_int8=2 * macs,
        elementwise_ops=y * quantize_ops(settings.gradient_rounding) + x * _RESCALE_OPS,
        # The codes of the gradient are read a second time.
        traffic_bytes=both * (x + y) + CODE_BYTES * y,
    )
    return LayerWork(layer, forward, gradients, Work())


def _embedding(layer: Layer) -> LayerWork:
    """Only rows in use count, each as often as it is used; tokens are read in both passes."""
    y, tokens = layer.output_entries, INDEX_BYTES * layer.input_entries
    # A row is read, quantized on its own scale, and written as numbers.
    ops = 0 if layer.settings is None else WEIGHT_CODE_OPS + 1
    forward = Work(elementwise_ops=y * ops, traffic_bytes=2 * FLOAT_BYTES * y + tokens)
    # The gradient is added to that of its row.
    gradient = Work(elementwise_ops=y, traffic_bytes=3 * FLOAT_BYTES * y + tokens)
    return LayerWork(layer, forward, Work(), gradient)


def _gradient_for_weights(layer: Layer, settings: QuantizationSettings) -> tuple[int, int]:
    """Operations and bytes per entry of the layer gradient, to round it for the weight gradient.

    Source: reference.md, section 1.3.
    """
    match settings.weight_gradient:
        case "fp32":
            return 0, FLOAT_BYTES
        case "bf16":
            return 1, FLOAT_BYTES
        case "fp16":  # |g|, maximum, times a power of two, rounding, back: quant/layer_step.py
            return 5, FLOAT_BYTES
        case "int8":
            # The input gradient's codes serve both, unless they were scaled by channel.
            if layer.needs_input_gradient and settings.weight_range == "per_tensor":
                return 0, CODE_BYTES
            return quantize_ops(settings.gradient_rounding), FLOAT_BYTES + CODE_BYTES
        case kind:
            assert_never(kind)


def _operations(layer: Layer) -> _ByPass:
    """Element-wise operations of a layer without products, in all."""
    y = layer.output_entries
    match layer.kind:
        case "max_pool" | "compact_max_pool":
            return _ByPass((layer.taps - 1) * y, y, 0)
        case "average":  # sums, and a product with 1 / (H W): as many as there are inputs
            return _ByPass(layer.input_entries, y, 0)
        case "range_evonorm":
            assert layer.gate is not None
            ops = _RANGE_EVONORM_OPS[layer.gate]
        case kind:
            ops = _FLOAT_OPS[kind]
    forward, backward = ops.forward, ops.input_gradient
    settings = layer.settings
    if settings is not None:
        gradient = quantize_ops(settings.gradient_rounding) + DEQUANTIZE_OPS
        codes = quantize_ops(settings.activation_rounding) + DEQUANTIZE_OPS
        if layer.kind == "residual_sum":
            forward, backward = forward + 2 * codes, backward + gradient
        else:  # a norm, which dequantizes its codes in the backward pass
            forward, backward = forward + codes, backward + gradient + DEQUANTIZE_OPS
    return _ByPass(forward * y, backward * y, ops.weight_gradient * y)


# Bytes per entry of the output, as operations above; what is read, then what is written.
_FLOAT_TRAFFIC: dict[Kind, _ByPass] = {
    "batch_norm": _ByPass(8, 16, 0),  # x, y; g, x, the sign of y, result
    "group_norm": _ByPass(8, 16, 0),
    "evonorm_s0": _ByPass(12, 16, 0),  # x, y and gate; g, x, gate, result
    "range_evonorm": _ByPass(8, 12, 0),  # x, y; g, x, result
    "range_batch_norm": _ByPass(8, 12, 0),
    "layer_norm": _ByPass(8, 12, 0),
    "residual_sum": _ByPass(12, 0, 0),
    "fork": _ByPass(0, 12, 0),
    "dropout": _ByPass(12, 12, 0),  # x, mask and y; g, mask, result
    "relu": _ByPass(8, 12, 0),  # x, y; g, the sign of y, result
    "copy": _ByPass(8, 0, 0),
    "loss": _ByPass(8, 8, 0),  # logits, logarithms of probabilities; these, result
    "view": _ByPass(0, 0, 0),
}
_CODE_TRAFFIC: dict[Kind, _ByPass] = {
    "range_evonorm": _ByPass(9, 10, 0),  # x, its codes and y; g, its codes, those of x, result
    "range_batch_norm": _ByPass(9, 10, 0),
    "layer_norm": _ByPass(9, 10, 0),
    "residual_sum": _ByPass(12, 8, 0),  # both inputs, y; g, its rounded numbers
}


def _traffic(layer: Layer) -> _ByPass:
    """Bytes read and written by a layer without products, in all."""
    x, y = layer.input_entries, layer.output_entries
    match layer.kind:
        case "max_pool" | "compact_max_pool":
            place_bytes = CODE_BYTES if layer.kind == "compact_max_pool" else INDEX_BYTES
            both = FLOAT_BYTES * (x + y) + place_bytes * y
            return _ByPass(both, both, 0)
        case "average":
            return _ByPass(FLOAT_BYTES * (x + y), FLOAT_BYTES * (x + y), 0)
        case kind:
            table = _FLOAT_TRAFFIC if layer.settings is None else _CODE_TRAFFIC
            per_entry, parameters = table[kind], FLOAT_BYTES * layer.num_affine
    return _ByPass(
        per_entry.forward * y + parameters,
        per_entry.input_gradient * y + parameters,
        per_entry.weight_gradient * y + parameters,
    )
