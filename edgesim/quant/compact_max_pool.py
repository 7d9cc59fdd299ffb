"""Maximum pooling that saves one byte for each output: the position of the maximum in its window.

torch's pooling saves the whole input and 8 bytes per output, as much as 8-bit layers save
elsewhere. On the CPU a kernel finds the places; on a GPU they are computed from torch's indices.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable
from torch.nn import functional

from edgesim.quant.backward_pass import Context


class CompactMaxPool2d(nn.MaxPool2d):
    """The maximum of each window; its results and gradients are those of `nn.MaxPool2d`.

    Args:
        kernel_size: side of the window, at most 16.
        stride: distance of two windows.
        padding: on each side; padded entries are never the largest.
        ceil_mode: whether windows that are cut off at the far sides count.
    """

    kernel_size: int
    stride: int
    padding: int

    def __init__(
        self, kernel_size: int, *, stride: int, padding: int = 0, ceil_mode: bool = False
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode=ceil_mode)
        assert kernel_size <= 16, "a place in the window must fit a byte"

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Shape (N, C, H', W')."""
        y: Tensor = _CompactMaxPool.apply(x_NCHW, self)  # type: ignore[no-untyped-call]
        return y

    def output_size(self, shape_NCHW: torch.Size) -> tuple[int, int]:
        """Height and width of the output; windows that begin in the far padding do not count."""
        sizes = []
        for size in shape_NCHW[2:]:
            steps = size + 2 * self.padding - self.kernel_size
            windows = (-(-steps // self.stride) if self.ceil_mode else steps // self.stride) + 1
            begins_behind = self.ceil_mode and (windows - 1) * self.stride >= size + self.padding
            sizes.append(windows - begins_behind)
        return sizes[0], sizes[1]

    def window_places(self, flat_NCHW: Tensor, width: int) -> Tensor:
        """Places in the windows, uint8, of torch's indices into height x width."""
        tops, lefts = self._corners(flat_NCHW)
        rows = flat_NCHW.div(width, rounding_mode="floor")
        columns = flat_NCHW - rows * width
        return ((rows - tops) * self.kernel_size + (columns - lefts)).to(torch.uint8)

    def flat_places(self, places_NCHW: Tensor, width: int) -> Tensor:
        """Inverse of `window_places`: torch's indices from places in the windows."""
        tops, lefts = self._corners(places_NCHW)
        places = places_NCHW.to(torch.int64)
        rows = places.div(self.kernel_size, rounding_mode="floor")
        return (rows + tops) * width + (places - rows * self.kernel_size + lefts)

    def _corners(self, like_NCHW: Tensor) -> tuple[Tensor, Tensor]:
        """First row of each row of windows, (H', 1), and first column, (W',); may be negative."""
        height, width = like_NCHW.shape[2:]
        rows = torch.arange(height, device=like_NCHW.device) * self.stride - self.padding
        columns = torch.arange(width, device=like_NCHW.device) * self.stride - self.padding
        return rows.unsqueeze(1), columns

    def extra_repr(self) -> str:
        """For printing the model."""
        return f"{self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _Context(Context, Protocol):
    pool: CompactMaxPool2d
    input_shape: torch.Size


class _CompactMaxPool(Function):
    @staticmethod
    def forward(ctx: _Context, x_NCHW: Tensor, pool: CompactMaxPool2d) -> Tensor:
        ctx.pool, ctx.input_shape = pool, x_NCHW.shape
        if x_NCHW.device.type == "cpu":
            y, places = _pool(x_NCHW, pool)
            ctx.save_for_backward(places)
            return y
        y, flat = functional.max_pool2d(
            x_NCHW,
            pool.kernel_size,
            pool.stride,
            pool.padding,
            ceil_mode=pool.ceil_mode,
            return_indices=True,
        )
        ctx.save_for_backward(pool.window_places(flat, x_NCHW.shape[3]))
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, g_NCHW: Tensor) -> tuple[Tensor, None]:
        pool, (places,) = ctx.pool, ctx.saved_tensors
        if g_NCHW.device.type == "cpu":
            return _pool_gradient(g_NCHW, places, pool, ctx.input_shape), None
        # On a GPU torch's kernel adds in any order; with deterministic algorithms it raises an
        # error.
        flat = pool.flat_places(places, ctx.input_shape[3])
        g_flat = g_NCHW.new_zeros(*ctx.input_shape[:2], ctx.input_shape[2:].numel())
        g_flat.scatter_add_(2, flat.flatten(2), g_NCHW.flatten(2))
        return g_flat.view(ctx.input_shape), None


def _pool(x_NCHW: Tensor, pool: CompactMaxPool2d) -> tuple[Tensor, Tensor]:
    """Maxima, NCHW in the memory layout channels_last, and their places, NHWC."""
    from edgesim.quant.kernels import max_pool  # loads numba: half a second

    x_NHWC = x_NCHW.permute(0, 2, 3, 1).contiguous().numpy()
    height, width = pool.output_size(x_NCHW.shape)
    y = np.empty((len(x_NHWC), height, width, x_NHWC.shape[3]), x_NHWC.dtype)
    places = np.empty(y.shape, np.uint8)
    max_pool.max_pool(x_NHWC, (pool.kernel_size, pool.stride, pool.padding), y, places)
    return torch.from_numpy(y).permute(0, 3, 1, 2).detach(), torch.from_numpy(places)


def _pool_gradient(
    g_NCHW: Tensor, places_NHWC: Tensor, pool: CompactMaxPool2d, shape: torch.Size
) -> Tensor:
    """NCHW in the memory layout channels_last."""
    from edgesim.quant.kernels import max_pool

    N, C, H, W = shape
    g_NHWC = g_NCHW.permute(0, 2, 3, 1).contiguous().numpy()
    g_x = np.empty((N, H, W, C), g_NHWC.dtype)
    window = pool.kernel_size, pool.stride, pool.padding
    max_pool.max_pool_gradient(g_NHWC, places_NHWC.numpy(), window, g_x)
    return torch.from_numpy(g_x).permute(0, 3, 1, 2).detach()
