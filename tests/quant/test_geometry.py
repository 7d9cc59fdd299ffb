"""Tables of positions: what tiles read lies in the image."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgesim.quant.kernels.geometry import ConvolutionShape, forward_tables, gradient_tables
from edgesim.quant.kernels.products.tile import PAIRS, QUADS

TILES = {"pairs": PAIRS, "quads": QUADS}


def last_read(tables, count):
    """Behind the last entry that is read of an image of so many samples."""
    ends = []
    plan = tables.plan
    for base, sample_pixels, strip, strips_end, *_ in plan.phases:
        tiles = -(-count * sample_pixels // tables.tile.pixels)
        bases = plan.bases[base : base + tiles * tables.tile.pixels]
        first, last = plan.strips[strip, 0], plan.strips[strips_end - 1, 1]
        runs = [offset + steps * tables.tile.terms for offset, steps in plan.segments[first:last]]
        ends.append(bases.max() + max(runs, default=0))
    return max(ends) + (plan.groups - 1) * tables.channels // plan.groups


@pytest.mark.parametrize("tile", TILES.values(), ids=TILES)
@pytest.mark.parametrize("tables_of", [forward_tables, gradient_tables])
@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_tiles_read_no_more_than_a_step_beyond_the_image(data, tables_of, tile):
    """Also those that are filled up with pixels that nobody asked for."""
    draw = data.draw
    groups, size = draw(st.sampled_from([1, 2])), draw(st.integers(1, 6))
    shape = ConvolutionShape(
        channels=groups * draw(st.integers(1, 9)),
        out_channels=groups * draw(st.integers(1, 9)),
        height=size,
        width=draw(st.integers(size, 6)),
        kernel=draw(st.integers(1, size)),
        stride=draw(st.integers(1, 3)),
        padding=draw(st.integers(0, 2)),
        groups=groups,
    )
    tables = tables_of(shape, tile)
    for samples in (1, 2, draw(st.integers(3, 300))):
        there = tables.samples_in_block(samples)
        for count in {min(samples, there), samples % there}:
            end = there * tables.plan.image_size + tile.terms - 1
            assert last_read(tables, count) <= end
