"""Parameters and statistics of the norms that edgesim has in fp32 and in 8 bits."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgesim.quant.range_batch_norm_formulas import OLD_WEIGHT


class GatedNorm(nn.Module):
    """A norm of groups of channels with a gate; initially gamma = v = 1, beta = 0.

    Args:
        channels: C of the input, shape (N, C, H, W), a multiple of `groups`.
        groups: number of groups of channels.
    """

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.groups = groups
        self.gamma = nn.Parameter(torch.empty(channels))
        self.beta = nn.Parameter(torch.empty(channels))
        self.v = nn.Parameter(torch.empty(channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the initial values, without random numbers."""
        nn.init.ones_(self.gamma)
        nn.init.zeros_(self.beta)
        nn.init.ones_(self.v)

    def extra_repr(self) -> str:
        """For printing the model."""
        return f"{len(self.v)}, groups={self.groups}"


class NormByRange(nn.Module):
    """A norm over the batch that estimates the deviation by ranges.

    Args:
        channels: C of the input, shape (N, C, H, W).

    Attributes:
        running_mean: shape (C,), local to a device.
        running_scale: of 1 / deviation, shape (C,), local to a device.
    """

    running_mean: Tensor
    running_scale: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.empty(channels))
        self.beta = nn.Parameter(torch.empty(channels))
        self.register_buffer("running_mean", torch.empty(channels))
        self.register_buffer("running_scale", torch.empty(channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the initial values and statistics, without random numbers."""
        nn.init.ones_(self.gamma)
        nn.init.zeros_(self.beta)
        self.running_mean.zero_()
        self.running_scale.fill_(1.0)

    def remember_(self, mean: Tensor, scale: Tensor) -> None:
        """Take the statistics of a batch into the running ones."""
        self.running_mean.lerp_(mean, 1 - OLD_WEIGHT)
        self.running_scale.lerp_(scale, 1 - OLD_WEIGHT)

    def extra_repr(self) -> str:
        """For printing the model."""
        return f"{len(self.gamma)}"
