"""The switches of 8-bit training, one frozen value.

The first value of each literal is that of the reference code (reference.md, section 12).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Rounding = Literal["stochastic", "nearest"]
ZeroPoint = Literal["float_offset", "integer"]
WeightRange = Literal["per_tensor", "per_out_channel"]
Ranges = Literal["gossiped", "local"]
WeightGradient = Literal["fp32", "fp16", "bf16", "int8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationSettings:
    """How numbers are quantized, and in which arithmetic weight gradients are computed.

    Attributes:
        zero_point: `integer`: zero is a code, and products are sums of integers. `float_offset`:
            the reference code's grid from minimum to maximum (reference.md, section 1.1), where
            zero may have no code.
        weight_range: one scale for a weight tensor, or one for each output channel.
        weight_gradient: format of the layer gradient when the weight gradient is computed
            (reference.md, section 1.3); `int8` switches bifurcation off.
        activation_rounding: of activations in training; the reference code's is stochastic
            (reference.md, section 1.4).
        evaluation_rounding: of activations in evaluation.
        gradient_rounding: of layer gradients.
        ranges: running ranges of activations travel with the model's parameters, as in the
            reference code (reference.md, section 1.5), or stay on the device as batch statistics
            do.
        range_momentum: weight of the old running range against the range of the batch; 0.1 in the
            reference code. Near 1, with gossiped ranges, evaluation uses the fleet's ranges instead
            of the last batch's.
    """

    zero_point: ZeroPoint
    weight_range: WeightRange
    weight_gradient: WeightGradient
    activation_rounding: Rounding
    evaluation_rounding: Rounding
    gradient_rounding: Rounding
    ranges: Ranges
    range_momentum: float

    @property
    def has_integer_zero(self) -> bool:
        """Whether products are sums of integers."""
        return self.zero_point == "integer"
