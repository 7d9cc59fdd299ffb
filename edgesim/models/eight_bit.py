"""Layers in 8 bits, including the first and the last layer of a model."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from edgesim.models.norms import NORMS, make_norm_act
from edgesim.quant.arithmetic import Arithmetic, Geometry
from edgesim.quant.compact_max_pool import CompactMaxPool2d
from edgesim.quant.layers import QuantizedConv2d, QuantizedLinear, QuantizedSum
from edgesim.quant.settings import QuantizationSettings


@dataclass(frozen=True, slots=True)
class EightBit:
    """Layers whose inputs, weights and gradients are 8 bits wide (reference.md, section 1).

    A norm without a form in 8 bits stays what it is in fp32.

    Attributes:
        norm: which follows each convolution.
        arithmetic: back end.
        settings: of quantization.
        conv_bias: whether convolutions have biases where the architecture has them.
    """

    norm: str
    arithmetic: Arithmetic
    settings: QuantizationSettings
    conv_bias: bool

    def conv(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        stride: int = 1,
        groups: int = 1,
        bias: bool = False,
    ) -> nn.Module:
        """Square convolution, padded so that stride 1 keeps the image's size (odd kernels)."""
        return QuantizedConv2d(
            in_channels,
            out_channels,
            Geometry.square(kernel_size, stride=stride, padding=kernel_size // 2, groups=groups),
            bias=bias and self.conv_bias,
            arithmetic=self.arithmetic,
            settings=self.settings,
        )

    def linear(self, in_features: int, out_features: int) -> nn.Module:
        """Fully connected layer with bias."""
        return QuantizedLinear(
            in_features, out_features, arithmetic=self.arithmetic, settings=self.settings
        )

    def norm_act(self, channels: int) -> nn.Module:
        """Norm with its nonlinearity."""
        make = NORMS[self.norm].make_eight_bit
        if make is None:
            return make_norm_act(self.norm, channels, "hard_sigmoid")
        return make(channels, self.arithmetic, self.settings)

    def residual_sum(self) -> nn.Module:
        """Sum of two tensors, each in 8 bits."""
        return QuantizedSum(self.arithmetic, self.settings)

    def max_pool(
        self, kernel_size: int, *, stride: int, padding: int = 0, ceil_mode: bool = False
    ) -> nn.Module:
        """Maximum of each window; its position is saved for the backward pass in 8 bits."""
        return CompactMaxPool2d(kernel_size, stride=stride, padding=padding, ceil_mode=ceil_mode)
