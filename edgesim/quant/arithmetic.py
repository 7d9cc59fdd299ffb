"""The seam between 8-bit layers and the processor: the operations that a back end provides.

`autograd.py` composes them into layers with their gradients; a back end knows no layer, no running
range and no autograd. All back ends give equal integers; their floats differ by rounding alone.

Shapes:
    N: samples   H, W: height, width   C: channels   O: output channels   G: groups of a norm
    Activations are NHWC and contiguous, which torch calls channels_last; the input of a fully
    connected layer is NHWC with H = W = 1.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from torch import Tensor

from edgesim.quant.affine import Grid, Quantized, QuantizedRows, QuantizedWeight

Gate = Literal["sigmoid", "hard_sigmoid"]
Range = tuple[float, float]
Form = Literal["plain", "rows", "columns"]
"""Of a product of matrices: a b; a b^T, rows with rows; a^T b, columns with columns."""


Pair = tuple[int, int]
"""Of rows, and of columns."""


class Geometry(NamedTuple):
    """Which entries a convolution multiplies, as in `torch.nn.Conv2d`.

    Attributes:
        kernel: height and width.
        stride: from an output to the next.
        padding: zeros on each side.
        dilation: from an entry that the kernel meets to the next.
        groups: of channels.
    """

    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int

    @classmethod
    def square(cls, kernel: int, *, stride: int = 1, padding: int = 0, groups: int = 1) -> Geometry:
        """That of a square kernel without dilation."""
        return cls((kernel, kernel), (stride, stride), (padding, padding), (1, 1), groups)

    @property
    def is_square(self) -> bool:
        """Whether `square` makes such."""
        pairs = self.kernel, self.stride, self.padding
        return all(rows == columns for rows, columns in pairs) and self.dilation == (1, 1)

    def out_size(self, size: Pair) -> Pair:
        """Height and width of the output for those of the input; not positive if none fits."""
        rows, columns = (
            (side + 2 * p - d * (k - 1) - 1) // s + 1
            for side, k, s, p, d in zip(size, *self[:4], strict=True)
        )
        return rows, columns


class RangeNormShape(NamedTuple):
    """How a Range EvoNorm divides its input.

    Attributes:
        groups: of channels.
        chunks: number of pieces of each sample's group, whose ranges estimate the deviation.
    """

    groups: int
    chunks: int


class RangeEvoNormForward(NamedTuple):
    """What Range EvoNorm gives, and what its backward pass needs beside the codes.

    Attributes:
        y: shape NHWC, float32.
        saved: small values of the back end, opaque to callers.
    """

    y: Tensor
    saved: tuple[Tensor, ...]


class RangeEvoNormBackward(NamedTuple):
    """Gradients at the input and at the parameters as they were used."""

    x: Tensor
    v: Tensor
    gamma: Tensor
    beta: Tensor


class RangeBatchNormForward(NamedTuple):
    """What Range BatchNorm gives on a batch.

    Attributes:
        y: normalised and rectified, shape NHWC, float32.
        mean: of the batch, shape (C,).
        scale: 1 / estimated deviation, before it is quantized, shape (C,).
        saved: values of the back end, opaque to callers.
    """

    y: Tensor
    mean: Tensor
    scale: Tensor
    saved: tuple[Tensor, ...]


class RangeBatchNormBackward(NamedTuple):
    """Gradients at the input and at the parameters as they were used."""

    x: Tensor
    gamma: Tensor
    beta: Tensor


class Arithmetic(Protocol):
    """Operations on 8-bit codes."""

    @property
    def name(self) -> str:
        """As scenarios and logs have it."""
        ...

    @property
    def description(self) -> str:
        """Kernels and library of the back end, for people."""
        ...

    def sample_range(self, x_NHWC: Tensor) -> Range:
        """Mean over samples of their minima, and of their maxima; not finite if x is not."""
        ...

    def full_range(self, x: Tensor) -> Range:
        """Minimum and maximum; not finite if x is not."""
        ...

    def quantize(self, x: Tensor, grid: Grid, seed: int | None) -> Tensor:
        """Codes as `Grid.quantize` gives them."""
        ...

    def quantize_by_samples(self, x_NHWC: Tensor, seed: int | None) -> tuple[Quantized, Range]:
        """Codes of x on the grid of its `sample_range`, and that range.

        If the range is not finite, codes and grid are undefined.
        """
        ...

    def quantize_whole(self, x: Tensor, seed: int | None) -> tuple[Quantized, Range]:
        """As `quantize_by_samples`, on the grid of the `full_range`."""
        ...

    def quantize_by_rows(self, x: Tensor, seed: int | None) -> tuple[QuantizedRows, Range]:
        """Codes as `affine.quantize_rows` gives them, of rows along the last axis; `full_range`.

        If the range is not finite, codes and grids are undefined.
        """
        ...

    def requantize_whole(self, x: Tensor, seed: int | None) -> tuple[Tensor, Range]:
        """`x` rounded by `quantize_whole` and dequantized, and its range."""
        ...

    def requantize_parameters(
        self, parameters: tuple[Tensor, ...]
    ) -> tuple[tuple[Tensor, ...], tuple[Range, ...]]:
        """`requantize_whole` to nearest, for each of several parameters of one shape."""
        ...

    def quantize_weight(self, weight_OIhw: Tensor, *, per_out_channel: bool) -> QuantizedWeight:
        """Codes as `affine.quantize_weight` gives them; scales are finite only if all weights are.

        With `zero_point: float_offset`, the weights must be finite.
        """
        ...

    def residual_sum(
        self, a: Tensor, a_grid: Grid, b: Tensor, b_grid: Grid, seeds: tuple[int, int] | None
    ) -> Tensor:
        """Sum of the numbers of the codes of a and b."""
        ...

    def convolve(
        self,
        codes_NHWC: Tensor,
        grid: Grid,
        weight: QuantizedWeight,
        bias: Tensor | None,
        geometry: Geometry,
    ) -> Tensor:
        """Convolution of the dequantized input and weights, float32 NHWO."""
        ...

    def input_gradient(
        self,
        codes_NHWO: Tensor,
        grid: Grid,
        weight: QuantizedWeight,
        geometry: Geometry,
        input_size: tuple[int, int],
    ) -> Tensor:
        """Gradient at the input for a quantized gradient at the output, float32 NHWC.

        If weights have a scale for each output channel, the scales are not applied here: the caller
        has multiplied the gradient by them before quantizing it.
        """
        ...

    def weight_gradient(
        self, codes_NHWC: Tensor, grid: Grid, g_NHWO: Tensor, weight: Tensor, geometry: Geometry
    ) -> Tensor:
        """Gradient at the weights, float32, shape of `weight`, whose values are not read."""
        ...

    def range_evonorm(
        self,
        codes_NHWC: Tensor,
        grid: Grid,
        v: Tensor,
        gamma: Tensor,
        beta: Tensor,
        shape: RangeNormShape,
    ) -> RangeEvoNormForward:
        """Range EvoNorm with hard sigmoid (reference.md, section 2) and quantized scale."""
        ...

    def range_evonorm_backward(
        self,
        codes_NHWC: Tensor,
        grid: Grid,
        v: Tensor,
        gamma: Tensor,
        shape: RangeNormShape,
        saved: tuple[Tensor, ...],
        g: Quantized,
    ) -> RangeEvoNormBackward:
        """Gradients for g."""
        ...

    def multiply(self, a: Quantized, b: Quantized, form: Form) -> Tensor:
        """Product of matrices of numbers of codes, float32, shape (..., M, N).

        Args:
            a: shape (..., M, K); (..., K, M) for the form `columns`.
            b: shape (..., K, N); (..., N, K) for the form `rows`.
            form: a b, a b^T or a^T b.
        """
        ...

    def layer_norm(
        self, x: Quantized, gamma: Tensor, beta: Tensor, epsilon: float
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Layer norm over the last axis with quantized scale (`layer_norm_formulas.py`).

        Returns:
            the result, float32, shape of x, and values of the back end, opaque to callers.
        """
        ...

    def layer_norm_backward(
        self, x: Quantized, gamma: Tensor, saved: tuple[Tensor, ...], g: QuantizedRows
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients for g, at the input and at the parameters as they were used."""
        ...

    def range_batch_norm(
        self, codes_NHWC: Tensor, grid: Grid, gamma: Tensor, beta: Tensor
    ) -> RangeBatchNormForward:
        """Range BatchNorm of a batch (reference.md, section 2) with quantized scale, then ReLU."""
        ...

    def range_batch_norm_backward(
        self,
        codes_NHWC: Tensor,
        grid: Grid,
        gamma: Tensor,
        beta: Tensor,
        saved: tuple[Tensor, ...],
        g: Quantized,
    ) -> RangeBatchNormBackward:
        """Gradients for g, whose codes may be overwritten."""
        ...
