"""Affine 8-bit quantization in plain torch operations.

Source: reference.md, section 1.1; arXiv 1712.05877 for integer zeros.

Symbols:
    x: number   q: its code   s: scale, the distance of two neighbours   z: zero point, a code
    o: offset, the number of code 0
    x ~ (q - z) s + o, with o = 0 where the zero point is an integer, and z = 0 where it is not.

All quantizers are straight-through: the backward pass ignores them, also where a number was clipped
(`autograd.py`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from edgesim.quant.rounding_noise import rounding_noise

CODES = 255  # the largest code of 8 bits
LARGEST_WEIGHT_CODE = 127  # symmetric codes: -128 is not used
SMALLEST_SCALE = 1e-8  # of weights; of grids with offset: reference.md, section 1.1
SMALLEST_INTEGER_SCALE = 1e-30  # of grids with a zero point: keeps 1 / s finite where all is zero
LARGEST_RANGE = 3.4e38  # about the largest float32 number

# Operations on float32 scalars round to float32, as those of all back ends do.
_ZERO, _ONE, _STEPS = np.float32(0), np.float32(1), np.float32(CODES)
_SMALLEST_SCALE = np.float32(SMALLEST_SCALE)
_SMALLEST_INTEGER_SCALE = np.float32(SMALLEST_INTEGER_SCALE)


class Grid(NamedTuple):
    """The 256 numbers that codes stand for: (code - zero_point) * scale + offset.

    Attributes:
        scale: above 0; a float32 number, as are the others.
        zero_point: a whole number in [0, 255].
        offset: number of code 0, for grids without a zero point.
    """

    scale: float
    zero_point: float
    offset: float

    @property
    def factor(self) -> float:
        """Factor that turns `centered` codes into numbers."""
        return 1.0 if self.offset else self.scale

    @property
    def code_step(self) -> float:
        """Distance of neighbouring `centered` codes."""
        return self.scale if self.offset else 1.0

    def centered(self, codes: Tensor) -> Tensor:
        """Numbers that, times `factor`, are the numbers of the codes; whole if zero is a code.

        Sums of products of integers are exact in float32 up to 2^24, in any order.
        """
        if self.offset:
            return self.dequantize(codes)
        return codes.to(torch.float32).sub_(self.zero_point)

    def dequantize(self, codes: Tensor) -> Tensor:
        """The numbers that codes stand for, float32."""
        values = codes.to(torch.float32)
        if self.offset:
            return values.mul_(self.scale).add_(self.offset)
        return values.sub_(self.zero_point).mul_(self.scale)

    def quantize(self, x: Tensor, seed: int | None) -> Tensor:
        """Codes, uint8, shape of x; numbers outside the range get its nearest code.

        Args:
            x: contiguous, float32.
            seed: of stochastic rounding, unbiased within the grid; None rounds to nearest, half to
                even, with an error of at most scale / 2.
        """
        inverse = float(_ONE / np.float32(self.scale))
        if self.offset:
            steps = (x - self.offset).mul_(inverse)
        else:
            steps = (x * inverse).add_(self.zero_point)
        if seed is None:
            steps.round_()
        else:
            noise = rounding_noise(x.numel(), seed, x.device)
            steps.add_(noise.view(x.shape)).floor_()
        return steps.clamp_(0, CODES).to(torch.uint8)


def grid_of(low: float, high: float, *, has_integer_zero: bool) -> Grid:
    """The grid of a range of numbers.

    With an integer zero the scale follows the range however small it is: gradients of single tokens
    are below 1e-6. The reference code's grid has steps of 1e-8 or more.

    Args:
        low: smallest number of the range, finite, float32.
        high: largest number.
        has_integer_zero: widen the range to hold zero, and move it so that zero is a code.
    """
    lowest, highest = np.float32(low), np.float32(high)
    if has_integer_zero:
        lowest, highest = min(lowest, _ZERO), max(highest, _ZERO)
    smallest = _SMALLEST_INTEGER_SCALE if has_integer_zero else _SMALLEST_SCALE
    scale = max((highest - lowest) / _STEPS, smallest)
    if not has_integer_zero and lowest:
        return Grid(float(scale), 0.0, float(lowest))
    zero_point = round(float(-lowest * (_ONE / scale)))
    return Grid(float(scale), float(min(max(zero_point, 0), CODES)), 0.0)


class Quantized(NamedTuple):
    """An 8-bit tensor.

    Attributes:
        codes: uint8, contiguous.
        grid: what they stand for.
    """

    codes: Tensor
    grid: Grid


class QuantizedRows(NamedTuple):
    """An 8-bit tensor whose rows, along the last axis, have grids of their own.

    Attributes:
        codes: uint8, shape (R, C), contiguous.
        grids: of the R rows: scale, zero point and offset, as in `Grid`; float32, shape (R, 3).
    """

    codes: Tensor
    grids: Tensor

    def dequantize(self) -> Tensor:
        """The numbers that the codes stand for, float32, shape (R, C)."""
        scale, zero_point, offset = self.grids.split(1, dim=1)
        numbers: Tensor = (self.codes - zero_point).mul_(scale).add_(offset)
        return numbers


def quantize_rows(x_RC: Tensor, seed: int | None, *, has_integer_zero: bool) -> QuantizedRows:
    """Codes of each row on the grid of its extremes, as `Grid.quantize` gives them.

    Args:
        x_RC: contiguous, float32, finite.
        seed: of stochastic rounding; noise is that of an entry's place in the whole tensor.
        has_integer_zero: as of `grid_of`.
    """
    lowest, highest = torch.aminmax(x_RC, dim=1, keepdim=True)
    if has_integer_zero:
        lowest, highest = lowest.clamp(max=0), highest.clamp(min=0)
    smallest = SMALLEST_INTEGER_SCALE if has_integer_zero else SMALLEST_SCALE
    scale = ((highest - lowest) / CODES).clamp_(min=smallest)
    inverse, zero = scale.reciprocal(), torch.zeros_like(scale)
    zero_point = (-lowest * inverse).round_().clamp_(0, CODES) if has_integer_zero else zero
    offset = zero if has_integer_zero else lowest
    steps = (x_RC - offset).mul_(inverse).add_(zero_point)
    if seed is None:
        steps.round_()
    else:
        steps.add_(rounding_noise(x_RC.numel(), seed, x_RC.device).view(x_RC.shape)).floor_()
    codes = steps.clamp_(0, CODES).to(torch.uint8)
    return QuantizedRows(codes, torch.cat([scale, zero_point, offset], dim=1))


class QuantizedWeight(NamedTuple):
    """An 8-bit weight tensor.

    Attributes:
        codes: int8 in [-127, 127] with scales; uint8 with a grid. Shape (O, I / groups, h, w).
        scales: float32, shape (1,) or (O,); symmetric codes stand for code * scale.
        grid: of uint8 codes with `zero_point: float_offset`; else None.
    """

    codes: Tensor
    scales: Tensor
    grid: Grid | None

    def centered(self) -> Tensor:
        """Numbers that, times `scales`, are the weights of the codes; float32."""
        return self.codes.to(torch.float32) if self.grid is None else self.grid.centered(self.codes)

    def dequantize(self) -> Tensor:
        """The weights that the codes stand for."""
        return self.centered() * self.scales.view(-1, 1, 1, 1)


def quantize_weight(
    weight_OIhw: Tensor, *, per_out_channel: bool, has_integer_zero: bool
) -> QuantizedWeight:
    """Codes of a weight tensor, rounded to nearest; the weights must be finite.

    Args:
        weight_OIhw: float32.
        per_out_channel: one scale for each output channel instead of one in all.
        has_integer_zero: symmetric codes; otherwise the grid from minimum to maximum
            (reference.md, section 1.1).
    """
    if not has_integer_zero:
        low, high = (float(extreme) for extreme in torch.aminmax(weight_OIhw))
        grid = grid_of(low, high, has_integer_zero=False)
        codes = grid.quantize(weight_OIhw.contiguous(), None)
        return QuantizedWeight(codes, weight_OIhw.new_tensor([grid.factor]), grid)
    largest = weight_OIhw.abs().amax((1, 2, 3) if per_out_channel else (0, 1, 2, 3)).view(-1)
    scales = (largest / LARGEST_WEIGHT_CODE).clamp_(min=SMALLEST_SCALE)
    steps = (weight_OIhw * scales.reciprocal().view(-1, 1, 1, 1)).round_()
    codes = steps.clamp_(-LARGEST_WEIGHT_CODE, LARGEST_WEIGHT_CODE).to(torch.int8)
    return QuantizedWeight(codes, scales, None)
