"""Range norms in 8 bits as modules: inputs, parameters, scales and gradients are quantized.

Source: reference.md, section 1.2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from edgesim.quant import autograd
from edgesim.quant import range_batch_norm_formulas as range_batch_norm
from edgesim.quant.arithmetic import Arithmetic, RangeNormShape
from edgesim.quant.layers import InputQuantizer
from edgesim.quant.norm_parameters import GatedNorm, NormByRange
from edgesim.quant.range_evonorm_formulas import chunks_of
from edgesim.quant.settings import QuantizationSettings


class QuantizedRangeEvoNorm(GatedNorm):
    """Range EvoNorm with hard sigmoid, a norm with its nonlinearity (arXiv 2111.09389, Eq. 2).

    Source: reference.md, section 2.

    Args:
        channels: C of the input, shape (N, C, H, W), a multiple of `groups`.
        groups: number of groups of channels.
        arithmetic: back end.
        settings: of quantization.
    """

    def __init__(
        self,
        channels: int,
        *,
        groups: int,
        arithmetic: Arithmetic,
        settings: QuantizationSettings,
    ) -> None:
        super().__init__(channels, groups)
        self.input = InputQuantizer(arithmetic, settings)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Normalised and gated activations, shape of the input, float32.

        Raises:
            ValueError: a sample's group has a single entry.
        """
        step = self.input.layer_step()
        chunks = chunks_of(x_NCHW.numel() // len(x_NCHW) // self.groups)
        return autograd.range_evonorm(
            x_NCHW,
            self.v,
            self.gamma,
            self.beta,
            x=self.input(x_NCHW, step),
            shape=RangeNormShape(self.groups, chunks),
            step=step,
        )


class QuantizedRangeBatchNorm(NormByRange):
    """Range BatchNorm and ReLU (arXiv 1805.11046; reference.md, section 2)."""

    def __init__(
        self, channels: int, *, arithmetic: Arithmetic, settings: QuantizationSettings
    ) -> None:
        super().__init__(channels)
        self.input = InputQuantizer(arithmetic, settings)

    def forward(self, x: Tensor) -> Tensor:
        """Normalised and rectified activations, shape of the input, float32.

        Args:
            x: samples first, then channels, then any axes.
        """
        if x.dim() == 4:
            return self._of_images(x)
        x_NC1L = x.reshape(*x.shape[:2], 1, -1)
        return self._of_images(x_NC1L).reshape(x.shape)

    def _of_images(self, x_NCHW: Tensor) -> Tensor:
        step = self.input.layer_step()
        x = self.input(x_NCHW, step)
        if self.training:
            y, mean, scale = autograd.range_batch_norm(
                x_NCHW, self.gamma, self.beta, x=x, step=step
            )
            self.remember_(mean, scale)
            return y
        with torch.no_grad():
            parameters = self.running_scale, self.gamma, self.beta
            y_NHWC = range_batch_norm.apply(
                x.grid.centered(x.codes),
                x.grid.factor,
                self.running_mean,
                *step.requantize_parameters(*parameters),
            )
        return y_NHWC.permute(0, 3, 1, 2)
