"""The norms that scenarios name, each with its nonlinearity; one follows every convolution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgesim.models.errors import ModelError
from edgesim.quant.arithmetic import Arithmetic, Gate
from edgesim.quant.settings import QuantizationSettings
from edgesim.scenario import catalog

GROUPS = 8  # of channels in both EvoNorms, whatever their number (reference.md, section 2)


class MakeEightBit(Protocol):
    """Makes a norm whose input, parameters and gradients are coded in 8 bits."""

    def __call__(
        self, channels: int, arithmetic: Arithmetic, settings: QuantizationSettings, /
    ) -> nn.Module:
        """For activations of shape (N, channels, H, W)."""
        ...


@runtime_checkable
class Norm(Protocol):
    """What the module of a norm has, unless `edgesim.costs.describe` lists its type.

    Attributes:
        counts_as: which of the kinds of `edgesim.costs.layer` has its work and memory.
    """

    counts_as: str

    def reset_parameters(self) -> None:
        """Set the initial values; draw nothing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NormKind:
    """A norm with its nonlinearity; formulas are in docs/reference.md, section 2.

    Its modules are those of torch, or a `Norm` each.

    Attributes:
        make: makes it in fp32, of the number of channels and the gate of Range EvoNorm.
        make_eight_bit: makes it in 8 bits; None: it stays in fp32 between 8-bit layers.
        is_over_batch: it takes statistics over the batch, of which a single value has none.
        is_rectified: a ReLU follows it, which lets no gradient through where it gives 0.
    """

    make: Callable[[int, Gate], nn.Module]
    make_eight_bit: MakeEightBit | None = None
    is_over_batch: bool = False
    is_rectified: bool = False


NORMS: Mapping[str, NormKind] = catalog.NORMS


def takes_kernels(activations: Tensor) -> bool:
    """Whether compiled kernels can compute with a tensor: float32, on a processor, with values.

    A graph that `torch.export` traces has torch's own operations instead.
    """
    is_there = activations.device.type == "cpu" and not torch.compiler.is_exporting()
    return is_there and activations.dtype == torch.float32


def make_norm_act(norm: str, channels: int, gate: Gate) -> nn.Module:
    """A norm in fp32 with its nonlinearity, for activations of shape (N, channels, H, W).

    Args:
        norm: a key of `NORMS`.
        channels: of the activations.
        gate: of Range EvoNorm; other norms ignore it.

    Raises:
        ModelError: the channels can't be divided into the norm's groups.
    """
    return NORMS[norm].make(channels, gate)


def check_groups(norm: str, channels: int, groups: int, other_norm: str) -> None:
    """Refuse channels that can't be divided into the groups of a norm.

    Args:
        norm: its name, for the message.
        channels: of the activations.
        groups: of the norm.
        other_norm: one without groups, for the message.

    Raises:
        ModelError: they can't.
    """
    if channels % groups:
        raise ModelError(
            f"{norm} has {groups} groups of channels, into which {channels} channels can't be "
            f"divided; use a multiple of {groups} channels, or norm: {other_norm}"
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
        check_groups("group norm", channels, groups, "batch")
        super().__init__(groups, channels)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Normalised and rectified activations, shape of the input."""
        return functional.relu_(super().forward(x_NCHW))


BATCH = NormKind(
    make=lambda channels, _: BatchNormReLU(channels),
    is_over_batch=True,
    is_rectified=True,
)

GROUP = NormKind(
    make=lambda channels, _: GroupNormReLU(channels),
    is_rectified=True,
)
