"""What the kernels read along their tables lies in the memory that they have."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_int8_convolution import LAYERS, shape_of

from edgesim.quant.kernels.depthwise_taps import TAP_PIXELS
from edgesim.quant.kernels.geometry import (
    ConvolutionShape,
    Tables,
    forward_tables,
    gradient_tables,
)
from edgesim.quant.kernels.multiply_add import PIXELS


def last_read(tables: Tables, samples: int, tile: int) -> int:
    """The highest position in the image that a full tile reads, in any block of a batch."""
    blocks = {min(tables.block, samples - first) for first in range(0, samples, tables.block)}
    highest = 0
    for first, pixels, *strips, _, _ in tables.phases.tolist():
        segments = [
            tables.segments[start:stop] for start, stop, _ in tables.strips[slice(*strips)].tolist()
        ]
        reach = max(
            (offset + 2 * pairs - 1 for part in segments for offset, pairs in part.tolist()),
            default=0,
        )
        for count in blocks:
            whole = -(-count * pixels // tile) * tile
            bases = tables.bases[first : first + whole]
            highest = max(highest, int(bases.max(initial=0)) + reach)
    channels_of_group = tables.channels // tables.groups
    return highest + (tables.groups - 1) * channels_of_group


def check(shape: ConvolutionShape, samples: int) -> None:
    for tables in (forward_tables(shape), gradient_tables(shape)):
        for tile in (PIXELS, TAP_PIXELS):
            # One entry more: the second factor of the last pair where terms are odd.
            size = tables.held(samples, tile) * tables.image_size + 1
            assert last_read(tables, samples, tile) < size


@pytest.mark.parametrize("shape", LAYERS.values(), ids=LAYERS)
def test_tiles_read_within_the_image(shape):
    for samples in range(1, 40):
        check(shape, samples)


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_tiles_of_every_geometry_read_within_the_image(data):
    draw = data.draw
    kernel, padding = draw(st.integers(1, 5)), draw(st.integers(0, 3))
    smallest = max(1, kernel - 2 * padding)
    sides = st.integers(smallest, smallest + 6)
    groups, stride = draw(st.sampled_from([1, 1, 2, 3])), draw(st.integers(1, 3))
    channels = st.integers(1, 9).map(lambda c: c * groups)
    shape = shape_of(
        draw(channels), draw(channels), draw(sides), draw(sides), kernel, stride, padding, groups
    )
    check(shape, draw(st.integers(1, 300)))
