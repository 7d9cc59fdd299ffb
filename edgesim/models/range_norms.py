"""Range EvoNorm and Range BatchNorm in fp32: the norms of 8-bit training, without 8 bits.

Source: reference.md, section 2.

With them the effect of the range on accuracy can be told from that of rounding (Fig. 1 of arXiv
2111.09389).
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from edgesim.models.norms import GROUPS, NormKind, check_groups, takes_kernels
from edgesim.quant import range_batch_norm_formulas as range_batch_norm
from edgesim.quant import range_evonorm_formulas as range_evonorm
from edgesim.quant.arithmetic import Arithmetic, Gate, RangeNormShape
from edgesim.quant.backward_pass import Context
from edgesim.quant.norm_parameters import GatedNorm, NormByRange
from edgesim.quant.norms import QuantizedRangeBatchNorm, QuantizedRangeEvoNorm
from edgesim.quant.settings import QuantizationSettings


class RangeEvoNorm(GatedNorm):
    """y = gamma x gate(v x) / (kappa R + eps) + beta; initially gamma = v = 1, beta = 0.

    Args:
        channels: C of the input, shape (N, C, H, W), a multiple of `groups`.
        groups: number of groups of channels.
        gate: `sigmoid`, or the piecewise linear one of the 8-bit norm.
    """

    def __init__(self, channels: int, *, groups: int, gate: Gate) -> None:
        super().__init__(channels, groups)
        self.gate = gate

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Normalised and gated activations, shape of the input, channels_last.

        Raises:
            ValueError: a sample's group has a single entry.
        """
        chunks = range_evonorm.chunks_of(x_NCHW[0].numel() // self.groups)
        shape = RangeNormShape(self.groups, chunks)
        if takes_kernels(x_NCHW):
            from edgesim.models.compiled_range_evonorm import compiled_range_evonorm  # loads numba

            return compiled_range_evonorm(x_NCHW, self.v, self.gamma, self.beta, shape, self.gate)
        return by_torch_operations(x_NCHW, self.v, self.gamma, self.beta, shape, self.gate)

    def extra_repr(self) -> str:
        """For printing the model."""
        return f"{super().extra_repr()}, gate={self.gate}"


def by_torch_operations(
    x_NCHW: Tensor, v: Tensor, gamma: Tensor, beta: Tensor, shape: RangeNormShape, gate: Gate
) -> Tensor:
    """Range EvoNorm of any floating-point type on any device; as `compiled_range_evonorm`."""
    y: Tensor = _RangeEvoNorm.apply(x_NCHW, v, gamma, beta, shape, gate)  # type: ignore[no-untyped-call]
    return y


class RangeBatchNormReLU(NormByRange):
    """Range BatchNorm and ReLU."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Normalised and rectified activations, shape of the input, channels_last."""
        if not self.training:
            x_NHWC = x_NCHW.permute(0, 2, 3, 1)
            y_NHWC = range_batch_norm.apply(
                x_NHWC, 1.0, self.running_mean, self.running_scale, self.gamma, self.beta
            )
            return y_NHWC.permute(0, 3, 1, 2)
        result: tuple[Tensor, Tensor, Tensor] = _RangeBatchNorm.apply(x_NCHW, self.gamma, self.beta)  # type: ignore[no-untyped-call]
        y, mean, scale = result
        self.remember_(mean, scale)
        return y


class _Context(Context, Protocol):
    shape: RangeNormShape
    gate: Gate

    def mark_non_differentiable(self, *tensors: Tensor) -> None: ...


class _RangeEvoNorm(Function):
    @staticmethod
    def forward(
        ctx: _Context,
        x_NCHW: Tensor,
        v: Tensor,
        gamma: Tensor,
        beta: Tensor,
        shape: RangeNormShape,
        gate: Gate,
    ) -> Tensor:
        x = x_NCHW.permute(0, 2, 3, 1).contiguous()
        y, saved = range_evonorm.forward(x, 1.0, v, gamma, beta, shape, gate, None, _keep)
        ctx.shape, ctx.gate = shape, gate
        ctx.save_for_backward(x, v, gamma, saved.s, saved.s_hat, saved.highest, saved.lowest)
        return y.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, g_NCHW: Tensor) -> tuple[Tensor | None, ...]:
        x, v, gamma, *saved = ctx.saved_tensors
        g = range_evonorm.backward(
            x,
            1.0,
            v,
            gamma,
            ctx.shape,
            ctx.gate,
            range_evonorm.Saved(*saved),
            g_NCHW.permute(0, 2, 3, 1).contiguous(),
        )
        return g.x.permute(0, 3, 1, 2), g.v, g.gamma, g.beta, None, None


class _RangeBatchNorm(Function):
    @staticmethod
    def forward(
        ctx: _Context, x_NCHW: Tensor, gamma: Tensor, beta: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        x = x_NCHW.permute(0, 2, 3, 1).contiguous()
        y, saved = range_batch_norm.forward(x, 1.0, gamma, beta, None, _keep)
        ctx.save_for_backward(
            x, gamma, beta, saved.mean, saved.s, saved.s_hat, saved.highest, saved.lowest
        )
        mean, scale = saved.mean.clone(), saved.s.clone()
        ctx.mark_non_differentiable(mean, scale)
        return y.permute(0, 3, 1, 2), mean, scale

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, g_NCHW: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
        x, gamma, beta, *saved = ctx.saved_tensors
        g = range_batch_norm.backward(
            x,
            1.0,
            gamma,
            beta,
            range_batch_norm.Saved(*saved),
            g_NCHW.permute(0, 2, 3, 1).contiguous(),
        )
        return g.x.permute(0, 3, 1, 2), g.gamma, g.beta


def _keep(s: Tensor) -> Tensor:
    """No quantization."""
    return s


def _range_evonorm(channels: int, gate: Gate) -> RangeEvoNorm:
    check_groups("range_evonorm", channels, GROUPS, "range_batch")
    return RangeEvoNorm(channels, groups=GROUPS, gate=gate)


def _eight_bit_range_evonorm(
    channels: int, arithmetic: Arithmetic, settings: QuantizationSettings
) -> QuantizedRangeEvoNorm:
    check_groups("range_evonorm", channels, GROUPS, "range_batch")
    return QuantizedRangeEvoNorm(channels, groups=GROUPS, arithmetic=arithmetic, settings=settings)


RANGE_EVONORM = NormKind(
    make=_range_evonorm,
    make_eight_bit=_eight_bit_range_evonorm,
)

RANGE_BATCH = NormKind(
    make=lambda channels, _: RangeBatchNormReLU(channels),
    make_eight_bit=lambda channels, arithmetic, settings: QuantizedRangeBatchNorm(
        channels, arithmetic=arithmetic, settings=settings
    ),
    is_over_batch=True,
    is_rectified=True,
)
