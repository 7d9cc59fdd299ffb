"""Weights' gradients of convolutions in float32 as products of tall matrices.

For a 3 x 3 kernel with stride 1 the sums of g (q - z) are taken by tiles of 4 x 4 outputs with 36
products instead of 144 for each pair of channels (arXiv 1509.09308, transposed), or, in images of 2
x 2, with 16 instead of 36. What remains is a product of matrices, U^T V, for every position of a
transformed tile, with U from the gradient and V from the codes. Kernels of other sizes are summed
directly by the same products, with one position per tap.

Symbols:
    q: codes   z: zero point   g: gradient at the output   tile: m x m outputs, n = m + 2
    U, V, M, panel, block, position: `outer_products.py`
    chunk: rows of tiles that are worked on together; their sums are added to M
Shapes:
    O: output channels   C: input channels, both padded to whole vectors   T: taps
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgesim.compiled import compiled
from edgesim.quant.kernels.arrays import Float32, UInt8
from edgesim.quant.kernels.errors import KernelError
from edgesim.quant.kernels.geometry import ConvolutionShape
from edgesim.quant.kernels.inner import inner
from edgesim.quant.kernels.instructions import HALF
from edgesim.quant.kernels.operands import scratch_float32
from edgesim.quant.kernels.weight_gradient.outer_products import (
    PANEL_SUMS,
    U_PANEL,
    UNROLLED,
    V_PANEL,
    Block,
    Matrix,
    add_block,
    padded_to,
)
from edgesim.quant.kernels.weight_gradient.weight_gradient_tiles import (
    Image,
    clear_rows,
    fill_gradient,
    fill_image,
    gather_gradient,
    gather_image,
    transform_gradient,
    transform_image,
    write_weights,
)

_CHUNK_BYTES = 300 * 1024  # of U and V, beside M in the second-level cache, where it can be
_CHUNK_TILES = 64  # at least; with fewer, reading and writing M takes too long
_BLOCK = 1, 2  # panels of U and of V: M of a block stays in the second-level cache
_LINE = 16  # spare numbers: at steps of whole pages, rows would share cache lines
_WORTH = 0.9  # most of its products, relative to the direct way: transforms take time as well


class _Plan(NamedTuple):
    """Sizes that compiled code reads, for one number of samples.

    Attributes:
        n: of a transformed tile; 0: the direct way.
        kernel: k.
        stride: pixels from an output to the next.
        padding: pixels above and to the left of the image.
        grid: rows and columns of tiles of a sample.
        rows: of tiles in a chunk.
        capacity: rows of U and V of a chunk.
        image: height and width of a sample with padding.
        columns: O and C, padded.
        block: panels of U and of V.
        steps: from a position to the next, in U (0: all have the same) and V.
        gradient_size: numbers of a sample's gradient filled up to whole tiles; 0: it needs none.
        line_size: numbers of the lines that are half transformed.
        sums_size: numbers of M.
    """

    n: int
    kernel: int
    stride: int
    padding: int
    grid: tuple[int, int]
    rows: int
    capacity: int
    image: tuple[int, int]
    columns: tuple[int, int]
    block: tuple[int, int]
    steps: tuple[int, int]
    gradient_size: int
    line_size: int
    sums_size: int


class TiledWeightGradient:
    """The weights' gradient of a convolution with one group.

    Args:
        shape: of the convolution.

    Raises:
        KernelError: several groups.
    """

    def __init__(self, shape: ConvolutionShape) -> None:
        if shape.groups != 1:
            raise KernelError(
                f"this weight gradient has one group, not {shape.groups}; leave it to torch"
            )
        self._shape = shape
        self._n = _tile_size(shape)
        m = self._m = self._n - 2 if self._n else 1
        self._grid = -(-shape.out_height // m), -(-shape.out_width // m)
        if self._n:
            self._image = self._grid[0] * m + 2, self._grid[1] * m + 2
        else:
            self._image = shape.height + 2 * shape.padding, shape.width + 2 * shape.padding
        self._plans: dict[int, _Plan] = {}  # by number of samples
        self._columns = padded_to(shape.out_channels, HALF), padded_to(shape.channels, V_PANEL)

    def run(
        self,
        codes_NHWC: UInt8,
        zero_point: int,
        scale: float,
        g_NHWO: Float32,
        out_OIkk: Float32,
    ) -> None:
        """Write the gradient; other arguments as in `WeightGradient.compute`, one sample at least.

        The sums are taken in an order that depends on the shape and the number of samples alone.
        """
        samples = len(codes_NHWC)
        if samples not in self._plans:
            self._plans[samples] = self._plan(samples)
        _run(codes_NHWC, zero_point, scale, g_NHWO, self._plans[samples], out_OIkk)

    def _plan(self, samples: int) -> _Plan:
        shape, m, n = self._shape, self._m, self._n
        O, C = self._columns  # noqa: E741 (the symbol of the legend)
        positions = n**2 or shape.kernel**2
        rows, chunks = self._chunk(samples, positions)
        height, width = self._grid[0] * m, self._grid[1] * m
        capacity = padded_to(rows * self._grid[1], UNROLLED)
        panels = -(-O // U_PANEL), C // V_PANEL
        block = min(_BLOCK[0], panels[0]), min(_BLOCK[1], panels[1])
        blocks = 1 if chunks == 1 else -(-panels[0] // block[0]) * -(-panels[1] // block[1])
        is_whole = (height, width, O) == (shape.out_height, shape.out_width, shape.out_channels)
        return _Plan(
            n=n,
            kernel=shape.kernel,
            stride=shape.stride,
            padding=shape.padding,
            grid=self._grid,
            rows=rows,
            capacity=capacity,
            image=self._image,
            columns=(O, C),
            block=block,
            steps=(O * capacity + _LINE if n else 0, C * capacity + _LINE),
            gradient_size=0 if is_whole else height * width * O,
            line_size=padded_to(n * max(self._image[1] * C, width * O), _LINE),
            sums_size=blocks * positions * block[0] * block[1] * PANEL_SUMS,
        )

    def _chunk(self, samples: int, positions: int) -> tuple[int, int]:
        """Rows of tiles of a chunk, and the number of chunks."""
        tile_bytes = positions * sum(self._columns) * 4
        tiles = max(_CHUNK_BYTES // tile_bytes, _CHUNK_TILES)
        rows = samples * self._grid[0]
        chunks = -(-rows // max(1, tiles // self._grid[1]))
        return -(-rows // chunks), chunks


def _tile_size(shape: ConvolutionShape) -> int:
    """N of the tiles with the fewest products; 0: the direct way."""
    if shape.kernel != 3 or shape.stride != 1:
        return 0
    height, width = shape.out_height, shape.out_width
    products, n = min((n * n * -(-height // (n - 2)) * -(-width // (n - 2)), n) for n in (4, 6))
    return n if products <= _WORTH * 9 * height * width else 0


@compiled
def _run(
    codes_NHWC: UInt8,
    zero_point: int,
    scale: float,
    g_NHWO: Float32,
    plan: _Plan,
    out_OIkk: Float32,
) -> None:
    (O, C), taps = plan.columns, plan.kernel * plan.kernel  # noqa: E741
    positions = plan.n * plan.n if plan.n else taps
    u_size = plan.steps[0] * positions if plan.n else O * plan.capacity + _LINE
    first_u = plan.line_size
    first_v = first_u + u_size
    first_m = first_v + plan.steps[1] * positions
    memory = scratch_float32(first_m + plan.sums_size)
    line, M = memory[:first_u], memory[first_m:]
    U = Matrix(memory[first_u:first_v], plan.steps[0], O, plan.capacity)
    V = Matrix(memory[first_v:first_m], plan.steps[1], C, plan.capacity)
    height, width = plan.image
    codes = np.full(height * width * C, np.uint8(zero_point), np.uint8)
    image = Image(codes, width, C, zero_point)
    gradient = np.zeros(plan.gradient_size, np.float32)
    out_OCT = out_OIkk.reshape(out_OIkk.shape[0], out_OIkk.shape[1], -1)
    panels, block = ((O + U_PANEL - 1) // U_PANEL, C // V_PANEL), plan.block
    blocks = (panels[1] + block[1] - 1) // block[1]  # along V
    block_size = positions * block[0] * block[1] * PANEL_SUMS
    sums = np.empty(taps * V_PANEL, np.float32)
    total = codes_NHWC.shape[0] * plan.grid[0]
    for start in range(0, total, plan.rows):
        stop = min(start + plan.rows, total)
        _fill_chunk(codes_NHWC, g_NHWO, plan, start, stop, image, gradient, line, U, V)
        tiles = (stop - start) * plan.grid[1]
        full = (tiles + UNROLLED - 1) // UNROLLED * UNROLLED
        clear_rows(U, V, positions, tiles, full)
        for u_panel in range(0, panels[0], block[0]):
            us = u_panel, min(u_panel + block[0], panels[0])
            for v_panel in range(0, panels[1], block[1]):
                vs = v_panel, min(v_panel + block[1], panels[1])
                # M of a single chunk is written out before the next block needs the room.
                before = u_panel // block[0] * blocks + v_panel // block[1]
                at = before * block_size if plan.rows < total else before * 0
                worked_on = Block(us, vs, positions, M, at)
                add_block(U, V, worked_on, full, start)
                if stop == total:
                    write_weights(worked_on, plan.n, sums, out_OCT)
    flat, factor = out_OIkk.reshape(-1), np.float32(scale)
    for i in range(len(flat)):
        flat[i] *= factor


@inner
def _fill_chunk(
    codes_NHWC: UInt8,
    g_NHWO: Float32,
    plan: _Plan,
    start: int,
    stop: int,
    image: Image,
    gradient: Float32,
    line: Float32,
    U: Matrix,
    V: Matrix,
) -> None:
    """Rows of U and V for rows of tiles `start` to `stop` of all samples."""
    grid_height, grid_width = plan.grid
    n, row_size = plan.n, image.width * image.channels
    m = n - 2 if n else 1
    g = gradient if gradient.size else g_NHWO.reshape(-1)
    for row in range(start, stop):
        sample, y = row // grid_height, row % grid_height
        if row == start or y == 0:
            fill_image(codes_NHWC, sample, plan.padding, image)
            if gradient.size:
                fill_gradient(g_NHWO, sample, m * grid_width, U.columns, gradient)
        tile = (row - start) * grid_width
        first = y * m * plan.stride * row_size
        first_g = (y if gradient.size else row) * m * m * grid_width * U.columns
        if n:
            transform_image(image, first, n, line, V, tile, grid_width)
            transform_gradient(g, first_g, m * grid_width, n, line, U, tile, grid_width)
        else:
            gather_image(image, first, plan.kernel, plan.stride, V, tile, grid_width)
            gather_gradient(g, first_g, U, tile, grid_width)
