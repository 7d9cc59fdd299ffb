"""Convolutions of any kernel, stride, padding and dilation, as products of patches.

For square kernels without dilation `convolution.py` has ways without patches. Rectangular kernels
are those of signals and of factored convolutions. A patch holds the codes that an output
multiplies; codes of padding are the zero point. The input gradient is the same sum: a patch holds
the gradients that an input was multiplied for.

Symbols:
    tap: entry of the kernel, row by row   T: number of taps
    o: place of an output along an axis   y: of an input   s: stride   p: padding   d: dilation
Shapes:
    N: samples   H, W: height, width   C: input channels   O: output channels   G: groups
    I: C / G, input channels that an output channel sees
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Float32, Int8, UInt8
from edgesim.quant.kernels.checks import require
from edgesim.quant.kernels.convolution.convolution import Convolution
from edgesim.quant.kernels.convolution.packing import weights_in_memory_order
from edgesim.quant.kernels.errors import KernelError
from edgesim.quant.kernels.geometry import ConvolutionShape

Pair = tuple[int, int]

_BLOCK_BYTES = 1 << 20  # of patches


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Sizes of a convolution, as in `torch.nn.Conv2d`; pairs are of rows and columns.

    Attributes:
        channels: C.
        out_channels: O.
        size: H and W of the input.
        out_size: of the output.
        kernel: of the kernel.
        stride: s.
        padding: p, zeros around the input.
        dilation: d.
        groups: G.

    Raises:
        KernelError: the kernel does not fit into the image.
    """

    channels: int
    out_channels: int
    size: Pair
    out_size: Pair
    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int

    def __post_init__(self) -> None:
        if min(self.out_size) < 1:
            raise KernelError(
                f"a kernel of {self.kernel[0]} x {self.kernel[1]} with dilation {self.dilation} "
                f"doesn't fit into an image of {self.size[0]} x {self.size[1]} with padding "
                f"{self.padding}; use a smaller kernel or larger images"
            )

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """(O, I, kernel)."""
        return self.out_channels, self.channels // self.groups, *self.kernel


class UnfoldedConvolution:
    """A convolution and its input gradient; methods as of `Convolution`.

    Args:
        window: of the convolution.

    Raises:
        KernelError: 32 bits can't hold the sums, or channels can't be divided into the groups.
    """

    def __init__(self, window: Window) -> None:
        w, axes = window, range(2)
        # y = s o - p + d tap, so o = (y + p - d tap) / s where whole.
        forward = [_Axis(w.kernel[a], w.stride[a], -w.padding[a], w.dilation[a], 1) for a in axes]
        gradient = [_Axis(w.kernel[a], 1, w.padding[a], -w.dilation[a], w.stride[a]) for a in axes]
        self._window = window
        images, outputs = (*w.size, w.channels), (*w.out_size, w.out_channels)
        self._forward = _Pass(images, outputs, w.groups, *forward)
        self._gradient = _Pass(outputs, images, w.groups, *gradient)

    def convolve(
        self,
        codes_NHWC: UInt8,
        zero_point: int,
        scale: float,
        weights_OIkk: Int8,
        weight_scales: Float32,
        bias_O: Float32 | None,
        out_NHWO: Float32,
    ) -> None:
        """As `Convolution.convolve`."""
        weights_OkkI = weights_in_memory_order(weights_OIkk, self._window.weight_shape)
        self._forward.run(
            codes_NHWC, zero_point, scale, weights_OkkI, weight_scales, bias_O, out_NHWO
        )

    def input_gradient(
        self,
        codes_NHWO: UInt8,
        zero_point: int,
        scale: float,
        weights_OIkk: Int8,
        weight_scales: Float32,
        out_NHWC: Float32,
    ) -> None:
        """As `Convolution.input_gradient`."""
        O, I, *_ = self._window.weight_shape  # noqa: E741 (the legend's)
        groups = self._window.groups
        weights_OkkI = weights_in_memory_order(weights_OIkk, self._window.weight_shape)
        weights_GoTI = weights_OkkI.reshape(groups, O // groups, -1, I)
        weights_GITo = np.ascontiguousarray(weights_GoTI.transpose(0, 3, 2, 1))
        self._gradient.run(
            codes_NHWO, zero_point, scale, weights_GITo, weight_scales, None, out_NHWC
        )


class _Axis(NamedTuple):
    """Where the taps of an output lie along an axis.

    Attributes:
        taps: of the kernel along the axis.
        factor: of the output's place.
        start: added to it.
        tap_step: from a tap to the next.
        divisor: of their sum; where it does not divide the sum, there is no code.
    """

    taps: int
    factor: int
    start: int
    tap_step: int
    divisor: int


class _Pass:
    """A sum over patches: a fully connected layer of them.

    Args:
        codes: height, width and channels of the codes.
        out: likewise of the output.
        groups: G.
        rows: taps of the output's rows.
        columns: likewise.
    """

    def __init__(
        self,
        codes: tuple[int, int, int],
        out: tuple[int, int, int],
        groups: int,
        rows: _Axis,
        columns: _Axis,
    ) -> None:
        self._codes, self._out, self._axes = codes, out, (rows, columns)
        taps, channels, out_channels = rows.taps * columns.taps, codes[2], out[2]
        self._patch = groups, taps, channels // groups
        self._product = Convolution(
            ConvolutionShape(
                channels=channels * taps,
                out_channels=out_channels,
                height=1,
                width=1,
                kernel=1,
                stride=1,
                padding=0,
                groups=groups,
            )
        )

    def run(
        self,
        codes: UInt8,
        zero_point: int,
        scale: float,
        weights: Int8,
        weight_scales: Float32,
        bias: Float32 | None,
        out: Float32,
    ) -> None:
        """Write the sums, of as many places at a time as have patches that fit the cache."""
        samples, shape = len(codes), self._product.shape
        require("codes", codes, np.uint8, (samples, *self._codes))
        require("output", out, np.float32, (samples, *self._out))
        sums = out.reshape(-1, 1, 1, shape.out_channels)
        block = max(1, _BLOCK_BYTES // shape.channels)
        for first in range(0, len(sums), block):
            some = sums[first : first + block]
            patches = np.empty((len(some), *self._patch), np.uint8)
            _write_patches(codes, zero_point, *self._axes, self._out[:2], first, patches)
            self._product.convolve(
                patches.reshape(-1, 1, 1, shape.channels),
                zero_point,
                scale,
                weights.reshape(shape.weight_shape),
                weight_scales,
                bias,
                some,
            )


@compiled
def _write_patches(
    codes_NHWC: UInt8,
    zero_point: int,
    rows: _Axis,
    columns: _Axis,
    out_size: Pair,
    first: int,
    patches_PGTI: UInt8,
) -> None:
    """Copy the codes of each tap, or the zero point where there are none, of places from `first`.

    Places count through samples, rows and columns of the output.
    """
    _, H, W, C = codes_NHWC.shape
    P, G, T, I = patches_PGTI.shape  # noqa: E741 (the legend's)
    codes, patches = codes_NHWC.reshape(-1), patches_PGTI.reshape(-1)
    for p in range(P):
        line, column_out = divmod(first + p, out_size[1])
        n, row_out = divmod(line, out_size[0])
        for r in range(rows.taps):
            row = _place(row_out, r, rows, H)
            for c in range(columns.taps):
                column = _place(column_out, c, columns, W)
                from_ = ((n * H + row) * W + column) * C
                to = (p * G * T + r * columns.taps + c) * I
                if row < 0 or column < 0:
                    for g in range(G):
                        _fill(zero_point, patches[to + g * T * I :][:I])
                elif I == 1:
                    _spread(codes[from_:][:C], patches[to:], T)
                else:
                    for g in range(G):
                        _copy(codes[from_ + g * I :][:I], patches[to + g * T * I :][:I])


@compiled
def _spread(codes: UInt8, copies: UInt8, step: int) -> None:
    for i in range(len(codes)):
        copies[i * step] = codes[i]


@compiled
def _copy(codes: UInt8, copies: UInt8) -> None:
    for i in range(len(copies)):
        copies[i] = codes[i]


@compiled
def _fill(code: int, copies: UInt8) -> None:
    for i in range(len(copies)):
        copies[i] = code


@compiled
def _place(output: int, tap: int, axis: _Axis, size: int) -> int:
    """Where a tap of an output lies; -1 where there is no code."""
    place = output * axis.factor + axis.start + tap * axis.tap_step
    if place < 0 or place % axis.divisor or place // axis.divisor >= size:
        return -1
    return place // axis.divisor
