"""The norms that scenarios name, each with its nonlinearity; one follows every convolution."""

from __future__ import annotations

from typing import Literal, assert_never

from torch import Tensor, nn
from torch.nn import functional

from edgesim.models.errors import ModelError
from edgesim.models.evonorm import EvoNormS0
from edgesim.models.range_norms import RangeBatchNormReLU, RangeEvoNorm
from edgesim.quant.arithmetic import Gate

Norm = Literal["batch", "group", "evonorm_s0", "range_evonorm", "range_batch"]

GROUPS = 8  # of channels in both EvoNorms, whatever their number (reference.md, section 2)

# The formulas of each are in docs/reference.md, section 2.
NORMS: dict[Norm, str] = {
    "batch": "batch normalisation, then ReLU; its running statistics stay on the device",
    "group": "group normalisation over 2 groups of channels, then ReLU",
    "evonorm_s0": "EvoNorm-S0 over 8 groups of channels: norm and nonlinearity in one",
    "range_evonorm": "EvoNorm by ranges instead of deviations, the paper's in 8 bits",
    "range_batch": "batch normalisation by ranges, then ReLU; its statistics stay on the device",
}


def make_norm_act(norm: Norm, channels: int, gate: Gate) -> nn.Module:
    """A norm in fp32 with its nonlinearity, for activations of shape (N, channels, H, W).

    Args:
        norm: which one.
        channels: of the activations.
        gate: of Range EvoNorm; other norms ignore it.

    Raises:
        ModelError: the channels can't be divided into the norm's groups.
    """
    match norm:
        case "batch":
            return BatchNormReLU(channels)
        case "group":
            return GroupNormReLU(channels)
        case "evonorm_s0":
            return EvoNormS0(channels, GROUPS)
        case "range_evonorm":
            check_groups(norm, channels)
            return RangeEvoNorm(channels, groups=GROUPS, gate=gate)
        case "range_batch":
            return RangeBatchNormReLU(channels)
        case _:
            assert_never(norm)


def check_groups(norm: Norm, channels: int) -> None:
    """Refuse channels that can't be divided into the groups of an EvoNorm.

    Raises:
        ModelError: they can't.
    """
    if channels % GROUPS:
        raise ModelError(
            f"{norm} has {GROUPS} groups of channels, into which {channels} channels can't be "
            f"divided; choose another model, or norm: range_batch"
        )


class BatchNormReLU(nn.BatchNorm2d):
    """Batch normalisation and ReLU."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Normalised and rectified activations, shape of the input."""
        return functional.relu_(super().forward(x_NCHW))


class GroupNormReLU(nn.GroupNorm):
    """Group normalisation and ReLU.

    Raises:
        ModelError: `channels` can't be divided into `groups`.
    """

    def __init__(self, channels: int, groups: int = 2) -> None:
        if channels % groups:
            raise ModelError(
                f"group norm has {groups} groups of channels, into which {channels} channels can't "
                f"be divided; use a multiple of {groups} channels, or norm: batch"
            )
        super().__init__(groups, channels)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Normalised and rectified activations, shape of the input."""
        return functional.relu_(super().forward(x_NCHW))
