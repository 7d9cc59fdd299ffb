"""Decoding equals Pillow's, in all its ways, and names what it can't read."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from data_files import encode, random_images
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from edgesim.data import decoding
from edgesim.data.decoding import (
    PIXELS_PER_BLOCK,
    EncodedImage,
    decode_images,
    decode_whole,
    resize_images,
    size_of,
)
from edgesim.data.errors import DataError

COLOUR = random_images(np.random.default_rng(0), 8, 9, 3)
GREY = random_images(np.random.default_rng(1), 8, 9)


def decode(*files: bytes, image_size: int | None = None) -> np.ndarray:
    encoded = [EncodedImage(data, f"row {row}") for row, data in enumerate(files)]
    return decode_images(encoded, len(files), image_size)


def by_pillow(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


@given(
    seed=st.integers(0, 2**32),
    grey=st.booleans(),
    options=st.lists(
        st.fixed_dictionaries(
            {
                "quality": st.sampled_from([30, 75, 95]),
                "progressive": st.booleans(),
                "optimize": st.booleans(),
                "subsampling": st.sampled_from([0, 1, 2]),
            }
        ),
        min_size=2,
        max_size=6,
    ),
)
def test_jpegs_with_a_header_seen_before_decode_as_pillow_does(seed, grey, options):
    rng = np.random.default_rng(seed)
    shape = (11, 13) if grey else (11, 13, 3)
    files = [encode(random_images(rng, *shape), "JPEG", **o) for o in options for _ in range(2)]
    decoded = decode(*files)
    assert decoded.shape == (len(files), 11, 13, 1 if grey else 3)
    for image, data in zip(decoded, files, strict=True):
        assert (image == by_pillow(data)).all()


def test_the_header_of_a_jpeg_reaches_to_the_end_of_its_frame_segment():
    """Behind a comment longer than a byte can tell; a baseline frame segment begins with FF C0."""
    data = encode(COLOUR, "JPEG", comment=b"x" * 300)
    start = data.index(b"\xff\xc0")
    assert start > 300
    end = start + 2 + int.from_bytes(data[start + 2 : start + 4])
    assert decoding._jpeg_header(data) == data[:end]
    assert decoding._jpeg_header(b"\x89PNG" + data) == b""


def test_grey_images_beside_coloured_ones_become_coloured():
    decoded = decode(encode(GREY), encode(COLOUR))
    assert decoded.shape == (2, 8, 9, 3)
    assert (decoded[0] == GREY[..., None]).all()
    assert (decoded[1] == COLOUR).all()


@pytest.mark.parametrize("mode", ["1", "L", "LA"])
def test_grey_modes_have_one_channel(mode):
    buffer = io.BytesIO()
    image = Image.fromarray(GREY).convert(mode)
    image.save(buffer, "PNG")
    assert (decode(buffer.getvalue())[0, ..., 0] == np.asarray(image.convert("L"))).all()


@pytest.mark.parametrize(("mode", "kind"), [("RGBA", "PNG"), ("P", "PNG"), ("CMYK", "JPEG")])
def test_other_modes_become_rgb(mode, kind):
    image = Image.fromarray(COLOUR).convert(mode)
    options = {"transparency": bytes(range(256))} if mode == "P" else {}
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    stored = Image.open(io.BytesIO(buffer.getvalue()))
    stored = stored.convert("RGBA") if mode == "P" else stored
    expected = np.asarray(stored.convert("RGB")).astype(float)
    if mode == "P":
        alpha = np.asarray(stored)[..., 3:] / 255
        expected = alpha * expected + (1 - alpha) * 255
    assert np.abs(decode(buffer.getvalue())[0] - expected).max() <= (1 if mode == "P" else 0)


def test_many_blocks_keep_their_order():
    side = 256
    count = 3 * PIXELS_PER_BLOCK // side**2 + 5
    files = [encode(np.full((side, side), number, np.uint8)) for number in range(count)]
    assert decode(*files)[:, 0, 0, 0].tolist() == list(range(count))


@pytest.mark.parametrize(
    ("large_pixels", "processors", "threads"), [(71, 4, 1), (72, 4, 4), (72, 100, 8)]
)
def test_images_of_more_than_so_many_pixels_are_decoded_on_one_thread(
    monkeypatch, large_pixels, processors, threads
):
    """An image here has 9 x 8 = 72. Several threads would hold several large images at once."""
    pools = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, max_workers, **options):
            pools.append(max_workers)
            super().__init__(max_workers, **options)

    monkeypatch.setattr(decoding, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(decoding, "LARGE_PIXELS", large_pixels)
    monkeypatch.setattr(decoding.os, "cpu_count", lambda: processors)
    assert (decode(encode(COLOUR), encode(COLOUR)) == COLOUR).all()
    assert pools == [threads]


def test_image_size_keeps_the_middle_square():
    """A wide image of three flat squares: the middle one remains."""
    wide = np.zeros((10, 30), np.uint8)
    wide[:, 10:20] = 200
    decoded = decode(encode(wide), encode(np.rot90(wide)), image_size=10)
    assert decoded.shape == (2, 10, 10, 1)
    assert (decoded == 200).all()


def test_scaling_down_averages():
    """Bilinear with antialiasing: a fine checkerboard becomes grey, not a pattern."""
    checkers = np.indices((64, 64)).sum(axis=0) % 2 * 254
    inner = decode(encode(checkers.astype(np.uint8)), image_size=8)[0, 2:-2, 2:-2, 0]
    assert np.abs(inner.astype(int) - 127).max() <= 2  # rounding in each of two passes


def test_decoded_images_are_resized_as_encoded_ones_are():
    for image in (COLOUR, GREY):
        from_file = decode(encode(image), image_size=5)
        from_array = resize_images(image.reshape(1, 8, 9, -1), 5)
        assert (from_file == from_array).all()
    assert resize_images(COLOUR[None], None).shape == (1, 8, 9, 3)


def test_another_size_is_refused_unless_all_are_brought_to_one():
    files = encode(COLOUR), encode(COLOUR[:, :7])
    with pytest.raises(DataError, match=r"row 1 is 7x8 .* first image 9x8; set data\.image_size"):
        decode(*files)
    assert decode(*files, image_size=8).shape == (2, 8, 8, 3)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (b"", "of no known format"),
        (b"US Cautious On Progress", "of no known format"),
        (encode(COLOUR, "JPEG")[:-150], "truncated|not enough image data"),
        (encode(COLOUR)[:-30], "truncated|broken"),
        (encode(GREY.astype(np.uint16)), "mode I;16, not 8 bits"),
    ],
    ids=["empty", "text", "cut JPEG", "cut PNG", "16 bits"],
)
def test_unreadable_image_is_named(broken, reason):
    good = encode(COLOUR, "JPEG")
    with pytest.raises(DataError, match=rf"^row 1 can't be read as an image \(.*({reason})"):
        decode(good, broken)
    with pytest.raises(DataError, match=r"^row 0 "):
        decode(broken, good)


def test_of_several_broken_images_the_first_five_are_named():
    good, cut = encode(COLOUR, "JPEG"), encode(COLOUR)[:-30]
    with pytest.raises(DataError, match=r"^row 1 can't be read .*\n1 more can't be used: row 3$"):
        decode(good, cut, good, b"")
    with pytest.raises(
        DataError, match=r"\n6 more can't be used: row 1, row 2, row 3, row 4, \.\.\.$"
    ):
        decode_images(
            (EncodedImage(data, f"row {row}") for row, data in enumerate([cut] * 7)), 7, 8, (8, 8)
        )
    with pytest.raises(DataError, match=r"^row 1 can't be read .*\n1 more can't be used: row 2$"):
        decode_whole([EncodedImage(x, f"row {i}") for i, x in enumerate((good, cut, b""))], 3, 8, 3)


def oriented(kind, orientation):
    """Bytes of an image with a note on how a viewer turns it."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if kind == "WEBP" else {}
    return encode(COLOUR, kind, exif=exif, **options)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF", "JPEG"])
@pytest.mark.parametrize(
    ("orientation", "turned"),
    [
        (1, lambda x: x),
        (2, lambda x: x[:, ::-1]),
        (3, lambda x: x[::-1, ::-1]),
        (4, lambda x: x[::-1]),
        (5, lambda x: x.swapaxes(0, 1)),
        (6, lambda x: np.rot90(x, -1)),
        (7, lambda x: np.rot90(x, 2).swapaxes(0, 1)),
        (8, np.rot90),
        (9, lambda x: x),  # no orientation
    ],
)
def test_images_are_turned_as_viewers_turn_them(kind, orientation, turned):
    """The table of EXIF 2.32; the same of several files, whose headers are equal bytes."""
    stored = by_pillow(encode(COLOUR, kind)) if kind == "JPEG" else COLOUR
    expected = turned(stored)
    decoded = decode(*[oriented(kind, orientation)] * 3)
    assert (decoded == expected).all()
    assert decoded.shape == (3, *expected.shape)
    one = EncodedImage(oriented(kind, orientation), "it")
    (whole,) = decode_whole([one], 1, 8, 3)
    assert (whole == expected).all()
    assert size_of(one, None) == expected.shape[1::-1]


def with_alpha(mode):
    """A black dot in the middle of nothing, which is black too, and seen through half of it."""
    image = Image.new("RGBA", (3, 1), (0, 0, 0, 0))
    image.putpixel((1, 0), (0, 0, 0, 255))
    image.putpixel((2, 0), (0, 0, 0, 51))
    if mode != "P":
        return image.convert(mode)
    image = Image.new("P", (3, 1), 7)
    image.putpixel((1, 0), 3)
    image.info["transparency"] = 7
    return image


@pytest.mark.parametrize(
    ("mode", "kind", "greys"),
    [
        ("RGBA", "PNG", [255, 0, 204]),
        ("RGBA", "WEBP", [255, 0, 204]),
        ("LA", "PNG", [255, 0, 204]),
        ("P", "PNG", [255, 0, 255]),
    ],
)
def test_what_is_transparent_stands_on_white(mode, kind, greys):
    image, buffer = with_alpha(mode), io.BytesIO()
    if mode == "P":
        image.putpalette([0, 0, 0] * 256)
    image.save(buffer, kind, **({"lossless": True} if kind == "WEBP" else {}))
    decoded = decode(buffer.getvalue())
    assert decoded.shape == (1, 1, 3, 1 if mode == "LA" else 3)
    assert decoded[0, 0, :, 0].tolist() == greys


def test_an_opaque_alpha_channel_changes_nothing():
    opaque = np.concatenate([COLOUR, np.full_like(COLOUR[..., :1], 255)], axis=2)
    assert (decode(encode(opaque)) == COLOUR).all()


def test_cut_jpeg_with_a_known_header_is_named():
    files = [encode(COLOUR, "JPEG")] * 5
    with pytest.raises(DataError, match=r"^row 4 can't be read"):
        decode(*files[:4], files[4][:-150])


def test_file_that_vanished_is_named(tmp_path: Path):
    missing = EncodedImage(tmp_path / "gone.png", "gone.png")
    with pytest.raises(DataError, match=r"^gone\.png can't be read .*No such file"):
        decode_images([missing], 1, None)
