"""The layers that models are built of: the seam between an architecture and its arithmetic.

An architecture defines the connections and gets its layers from a `Layers`. A new arithmetic is a
new `Layers`; no architecture has to change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn
from torch.nn import functional

from edgesim.models.norms import make_norm_act
from edgesim.quant.arithmetic import Gate
from edgesim.quant.compact_max_pool import CompactMaxPool2d


class Layers(Protocol):
    """Makes the layers of one model: all that have parameters, and the sums of branches."""

    @property
    def norm(self) -> str:
        """Norm that follows each convolution."""
        ...

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
        ...

    def linear(self, in_features: int, out_features: int) -> nn.Module:
        """Fully connected layer with bias."""
        ...

    def norm_act(self, channels: int) -> nn.Module:
        """Norm with its nonlinearity; no further nonlinearity follows it.

        Raises:
            ModelError: the channels don't fit the norm.
        """
        ...

    def residual_sum(self) -> nn.Module:
        """Module that adds the two branches of a block."""
        ...

    def max_pool(
        self, kernel_size: int, *, stride: int, padding: int = 0, ceil_mode: bool = False
    ) -> nn.Module:
        """Maximum of each window."""
        ...


@dataclass(frozen=True, slots=True)
class FullPrecision:
    """Layers in fp32.

    Attributes:
        norm: which follows each convolution.
        gate: of Range EvoNorm.
        conv_bias: whether convolutions have biases where the architecture has them; the reference
            code's low-precision VGG-11 has none (reference.md, section 2).
    """

    norm: str
    gate: Gate
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
        padding, has_bias = kernel_size // 2, bias and self.conv_bias
        return nn.Conv2d(
            in_channels, out_channels, kernel_size, stride, padding, 1, groups, has_bias
        )

    def linear(self, in_features: int, out_features: int) -> nn.Module:
        """Fully connected layer with bias."""
        return nn.Linear(in_features, out_features)

    def norm_act(self, channels: int) -> nn.Module:
        """Norm with its nonlinearity."""
        return make_norm_act(self.norm, channels, self.gate)

    def residual_sum(self) -> nn.Module:
        """Sum of two tensors."""
        return ResidualSum()

    def max_pool(
        self, kernel_size: int, *, stride: int, padding: int = 0, ceil_mode: bool = False
    ) -> nn.Module:
        """Maximum of each window."""
        return RepeatableMaxPool2d(kernel_size, stride=stride, padding=padding, ceil_mode=ceil_mode)


class RepeatableMaxPool2d(CompactMaxPool2d):
    """Maximum pooling: torch's on a CPU; edgesim's on a GPU, where torch's is not repeatable."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Shape (N, C, H', W')."""
        if x_NCHW.is_cuda:
            return super().forward(x_NCHW)
        return functional.max_pool2d(
            x_NCHW, self.kernel_size, self.stride, self.padding, ceil_mode=self.ceil_mode
        )


class ResidualSum(nn.Module):
    """Sum of the branches of a residual block."""

    def forward(self, branch: Tensor, shortcut: Tensor) -> Tensor:
        """Entry by entry, shape of both."""
        return branch + shortcut
