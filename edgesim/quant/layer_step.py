"""Context of a quantized operation: its layer, step, settings and back end."""

from __future__ import annotations

from math import frexp
from typing import NamedTuple, assert_never

import torch
from torch import Tensor

from edgesim.quant.affine import (
    LARGEST_RANGE,
    Grid,
    Quantized,
    QuantizedRows,
    QuantizedWeight,
    grid_of,
)
from edgesim.quant.arithmetic import Arithmetic, Range
from edgesim.quant.errors import NonFiniteError
from edgesim.quant.rounding_noise import derive
from edgesim.quant.settings import QuantizationSettings

_GRADIENT, _SECOND_OPERAND = 1, 2  # places of noise within a layer; 0 is the first operand
_LARGEST_EXPONENT = 127  # of a power of two in float32
_FP16_EXPONENT = 14  # fp16 ends at 2^16: the largest entry is brought to [2^13, 2^14)


class LayerStep(NamedTuple):
    """One quantized layer in one step.

    Attributes:
        arithmetic: back end.
        settings: of quantization.
        layer: name, for errors.
        seed: of the layer's noise in this step, 64 bits.
        training: whether the step is one of training.
    """

    arithmetic: Arithmetic
    settings: QuantizationSettings
    layer: str
    seed: int
    training: bool

    @property
    def activation_seeds(self) -> tuple[int, int] | None:
        """Seeds for the first and the second input; None to round to nearest."""
        first = self.activation_seed
        return None if first is None else (first, derive(self.seed, _SECOND_OPERAND))

    @property
    def activation_seed(self) -> int | None:
        """Seed for the only input."""
        settings = self.settings
        rounding = settings.activation_rounding if self.training else settings.evaluation_rounding
        return None if rounding == "nearest" else derive(self.seed, 0)

    @property
    def gradient_seed(self) -> int | None:
        """Seed for the gradient at the output; None to round to nearest."""
        if self.settings.gradient_rounding == "nearest":
            return None
        return derive(self.seed, _GRADIENT)

    def grid(self, extremes: Range, tensor: str) -> Grid:
        """Grid of a range.

        Args:
            extremes: minimum and maximum.
            tensor: whose range it is, for the error.

        Raises:
            NonFiniteError: the range is not one of finite numbers.
        """
        self.require_finite(extremes, tensor)
        return grid_of(*extremes, has_integer_zero=self.settings.has_integer_zero)

    def require_finite(self, extremes: Range, tensor: str) -> None:
        """Check that the range of a tensor is finite.

        Raises:
            NonFiniteError: the range is not one of finite numbers.
        """
        low, high = extremes
        if not high - low < LARGEST_RANGE:  # also refuses NaN
            raise NonFiniteError(self.layer, tensor)

    def quantize_gradient(self, g: Tensor) -> Quantized:
        """Quantize a gradient at the output, on the grid from its minimum to its maximum.

        Raises:
            NonFiniteError: the gradient holds NaN or infinity.
        """
        quantized, extremes = self.arithmetic.quantize_whole(g, self.gradient_seed)
        self.require_finite(extremes, "gradients")
        return quantized

    def quantize_gradient_by_rows(self, g: Tensor) -> QuantizedRows:
        """Quantize a gradient at the output, each row on the grid from its minimum to its maximum.

        For operations on single rows, along the last axis: a row with large gradients, as that of
        the token that a classifier reads, does not take the others' precision.

        Raises:
            NonFiniteError: the gradient holds NaN or infinity.
        """
        quantized, extremes = self.arithmetic.quantize_by_rows(g, self.gradient_seed)
        self.require_finite(extremes, "gradients")
        return quantized

    def requantize_gradient(self, g: Tensor) -> Tensor:
        """A gradient rounded by `quantize_gradient` and dequantized."""
        values, extremes = self.arithmetic.requantize_whole(g, self.gradient_seed)
        self.require_finite(extremes, "gradients")
        return values

    def quantize_weight(self, weight_OIhw: Tensor) -> QuantizedWeight:
        """Codes of a layer's weights.

        Raises:
            NonFiniteError: the weights hold NaN or infinity.
        """
        if not self.settings.has_integer_zero:  # such scales do not show NaN
            self.require_finite(self.arithmetic.full_range(weight_OIhw), "weights")
        weight = self.arithmetic.quantize_weight(
            weight_OIhw, per_out_channel=self.settings.weight_range == "per_out_channel"
        )
        self.require_finite((0.0, sum(weight.scales.tolist())), "weights")
        return weight

    def quantize_rows(self, rows_RC: Tensor) -> Tensor:
        """Rows of a table by way of 8 bits, each on a scale of its own, float32.

        Raises:
            NonFiniteError: a row holds NaN or infinity.
        """
        if not self.settings.has_integer_zero:  # one grid for all, which does not show NaN
            self.require_finite(self.arithmetic.full_range(rows_RC), "weights")
        rows = self.arithmetic.quantize_weight(rows_RC[:, :, None, None], per_out_channel=True)
        self.require_finite((0.0, float(rows.scales.sum())), "weights")
        return rows.dequantize()[:, :, 0, 0]

    def requantize_parameters(self, *parameters: Tensor) -> tuple[Tensor, ...]:
        """Parameters of one shape, rounded to 8 bits to nearest, each on its own grid.

        Raises:
            NonFiniteError: a parameter holds NaN or infinity.
        """
        values, ranges = self.arithmetic.requantize_parameters(parameters)
        for extremes in ranges:
            self.require_finite(extremes, "parameters")
        return values

    def round_for_weights(self, g: Tensor) -> Tensor:
        """The gradient at the output, rounded for the weight gradient.

        Source: reference.md, section 1.3.

        16-bit formats round this gradient; products are summed in float32, as in hardware.
        """
        match self.settings.weight_gradient:
            case "fp32":
                return g
            case "bf16":
                return g.to(torch.bfloat16).to(g.dtype)
            case "fp16":
                # Small gradients would vanish in fp16; scaling by a power of two is exact.
                exponent = _FP16_EXPONENT - frexp(float(g.abs().amax()))[1]
                power = 2.0 ** min(exponent, _LARGEST_EXPONENT)
                return (g * power).to(torch.float16).to(g.dtype).div_(power)
            case "int8":
                return self.requantize_gradient(g)
            case kind:
                assert_never(kind)
