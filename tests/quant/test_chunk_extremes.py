"""Extremes of chunks and their places, against plain numpy on all geometries cut differently."""

import numpy as np
import pytest

from edgesim.quant.kernels.norms.chunk_extremes import (
    CHANNEL_SHIFT,
    CODE_SHIFT,
    PIXEL_MASK,
    PLACE_MASK,
    chunk_extremes,
    pixels_of_a_row,
)

# samples, pixels, channels, groups, chunks
GEOMETRIES = {
    "chunks within a channel, several pixels to a row": (2, 1024, 16, 8, 16),
    "chunks of many channels": (2, 4, 512, 8, 16),
    "chunks that cross channels": (2, 256, 24, 8, 16),
    "blocks of more pixels than 8 bits tell apart": (1, 1024, 64, 64, 2),
    "rows of a prime number of pixels": (2, 7, 10, 2, 5),
    "blocks of one pixel": (3, 3, 8, 2, 4),
    "one chunk": (2, 9, 4, 1, 1),
    "one entry to a chunk": (1, 2, 4, 2, 4),
    "one channel to a group, as in batch norm": (1, 16 * 98, 24, 24, 16),
}


def places(keys):
    return (keys >> CHANNEL_SHIFT), keys & PIXEL_MASK


@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES)
@pytest.mark.parametrize("num_codes", [1, 3, 256])
def test_extremes_are_the_first_of_their_chunk(geometry, num_codes):
    """Few codes make many ties; the first in (channel, pixel) order counts."""
    N, P, C, G, J = geometry
    codes_NPC = np.random.default_rng(P).integers(0, num_codes, (N, P, C)).astype(np.uint8)
    if num_codes == 1:
        codes_NPC += np.uint8(255 * (P % 2))  # all 255, or all 0
    chunks_NGJM = codes_NPC.reshape(N, P, G, C // G).transpose(0, 2, 3, 1).reshape(N, G, J, -1)
    starts_J = np.arange(J) * chunks_NGJM.shape[3]

    extremes = chunk_extremes(codes_NPC, G, J)

    np.testing.assert_array_equal(extremes.lowest >> CODE_SHIFT, chunks_NGJM.min(3))
    np.testing.assert_array_equal(extremes.highest >> CODE_SHIFT, chunks_NGJM.max(3))
    channel, pixel = places(extremes.lowest & PLACE_MASK)
    np.testing.assert_array_equal(channel * P + pixel, chunks_NGJM.argmin(3) + starts_J)
    channel, pixel = places((extremes.highest & PLACE_MASK) ^ PLACE_MASK)
    np.testing.assert_array_equal(channel * P + pixel, chunks_NGJM.argmax(3) + starts_J)


def test_rows_are_as_long_as_pixels_and_lanes_allow():
    assert pixels_of_a_row(pixels=1024, channels=16, most_lanes=128) == 8
    assert pixels_of_a_row(pixels=49, channels=8, most_lanes=128) == 7
    assert pixels_of_a_row(pixels=13, channels=16, most_lanes=128) == 1
    assert pixels_of_a_row(pixels=4, channels=512, most_lanes=128) == 1
    assert pixels_of_a_row(pixels=4, channels=1, most_lanes=128) == 4
