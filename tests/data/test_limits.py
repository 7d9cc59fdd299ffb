"""Files that announce more than memory holds are refused before it is taken, by name and row."""

from __future__ import annotations

import gzip
import io
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import IMAGE_STRUCT, encode, load_dataset, random_images, write_idx, write_parquet
from PIL import Image, ImageFile

from edgesim.data import fashion_mnist, limits
from edgesim.data.decoding import BYTES_PER_BLOCK, EncodedImage, decode_images, resize_images
from edgesim.data.errors import DataError
from edgesim.data.parquet import parquet
from edgesim.data.parquet.parquet_pages import largest_page_bytes, num_rows

SMALL = encode(random_images(np.random.default_rng(0), 8, 8, 3))


def announcing(width: int, height: int) -> bytes:
    """A PNG whose header announces a size; of its pixels there are none."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.fixture
def no_pixels(monkeypatch):
    """Decoding any pixel is an error of the test."""

    def load(self):
        raise AssertionError("pixels were decoded")

    monkeypatch.setattr(ImageFile.ImageFile, "load", load)


@pytest.fixture
def memory(monkeypatch):
    """A machine of 16 GiB."""
    monkeypatch.setattr(limits, "memory_bytes", lambda: 16 << 30)


def in_parquet(folder: Path, images: list[bytes], test: bytes = SMALL) -> None:
    write_parquet(folder / "train.parquet", images, [0] * len(images))
    write_parquet(folder / "test.parquet", [test], [0])


def in_folders(folder: Path, images: list[bytes], test: bytes = SMALL) -> None:
    for split, files in (("train", images), ("val", [test])):
        (folder / split / "ant").mkdir(parents=True)
        for number, data in enumerate(files):
            (folder / split / "ant" / f"{number}.png").write_bytes(data)


FORMATS = [
    ("parquet", in_parquet, r"train\.parquet: image, row {}"),
    ("image_folder", in_folders, r"train/ant/{}\.png"),
]
EVERY_FORMAT = pytest.mark.parametrize(
    ("source", "write", "where"), FORMATS, ids=["parquet", "folder"]
)


@EVERY_FORMAT
@pytest.mark.parametrize("image_size", [None, 8])
def test_an_image_of_too_many_pixels_is_refused(
    tmp_path, source, write, where, image_size, memory, no_pixels, recwarn
):
    """A file of 9 kB asked for 30 GiB; Pillow alone warns of it and decodes it."""
    write(tmp_path, [announcing(13_000, 13_000)])
    with pytest.raises(DataError, match=where.format(0) + r" is 13000x13000 pixels; at most 67"):
        load_dataset(source, tmp_path, image_size=image_size)
    assert not recwarn.list


@EVERY_FORMAT
def test_images_of_too_many_pixels_together_are_refused(
    tmp_path, source, write, where, memory, no_pixels
):
    """64 of 8,000 x 8,000: each of them might do."""
    write(tmp_path, [announcing(8_000, 8_000)] * 64, announcing(8_000, 8_000))
    message = (
        where.format(0) + r": 64 images of 8000x8000 pixels take 11\.4 GiB, more than a quarter"
    )
    with pytest.raises(DataError, match=message):
        load_dataset(source, tmp_path)


@EVERY_FORMAT
@pytest.mark.parametrize("image_size", [None, 8])
def test_a_later_image_is_refused_by_its_own_row(tmp_path, source, write, where, image_size):
    write(tmp_path, [SMALL] * 5 + [announcing(60_000, 2_000)])
    with pytest.raises(DataError, match=where.format(5) + r" is 60000x2000 pixels"):
        load_dataset(source, tmp_path, image_size=image_size)


def test_a_size_to_which_too_many_are_brought_is_refused(monkeypatch):
    monkeypatch.setattr(limits, "memory_bytes", lambda: 2**21)
    few = [EncodedImage(SMALL, "row 0")]
    assert decode_images(few, 1, 400).shape == (1, 400, 400, 3)
    with pytest.raises(DataError, match=r"^row 0: 2 images of 400x400 pixels take"):
        decode_images(few * 2, 2, 400)
    with pytest.raises(DataError, match=r"^data\.image_size: 4 images of 400x400 pixels take"):
        resize_images(np.zeros((4, 8, 8, 1), np.uint8), 400)
    with pytest.raises(DataError, match=r"^data\.image_size: 1,442 images of 1024x1024"):
        load_dataset("digits", None, image_size=1024)


def test_only_image_formats_are_opened():
    """Pillow would have PostScript run by another program."""
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "EPS")
    with pytest.raises(DataError, match="of no known format"):
        decode_images([EncodedImage(buffer.getvalue(), "row 0")], 1, None)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "PPM", "TIFF", "WEBP"])
def test_every_kind_of_file_that_folders_may_hold_is_opened(kind):
    data = encode(np.full((8, 8, 3), 77, np.uint8), kind)
    assert np.abs(decode_images([EncodedImage(data, "row 0")], 1, None).astype(int) - 77).max() < 4


def test_a_file_too_long_for_an_image_is_refused(tmp_path):
    path = tmp_path / "long.png"
    with path.open("wb") as file:
        file.truncate(limits.MOST_FILE_BYTES + 1)  # takes no space
    with pytest.raises(DataError, match=r"^long\.png is 536,870,913 bytes long; at most"):
        decode_images([EncodedImage(path, "long.png")], 1, None)


def test_large_files_of_small_images_are_not_collected():
    """A block would be a million images of one pixel; it ends at so many bytes, too."""
    padded = encode(np.zeros((1, 1), np.uint8)) + bytes(BYTES_PER_BLOCK // 4)
    images = (EncodedImage(padded + bytes(row), f"row {row}") for row in range(400))
    tracemalloc.start()
    try:
        assert decode_images(images, 400, None).shape == (400, 1, 1, 1)
        assert tracemalloc.get_traced_memory()[1] < 25 * BYTES_PER_BLOCK, "1600 MiB in all"
    finally:
        tracemalloc.stop()


class TestParquetPages:
    def write(self, path: Path, images, **options) -> Path:
        cells = pa.array([{"bytes": data, "path": "x"} for data in images], IMAGE_STRUCT)
        table = pa.table({"image": cells, "label": pa.array([0] * len(images), pa.int64())})
        pq.write_table(table, path, **options)
        return path

    @pytest.mark.parametrize("version", ["1.0", "2.0"])
    @pytest.mark.parametrize("compression", ["none", "zstd", "gzip", "snappy"])
    def test_sizes_by_hand(self, tmp_path, version, compression):
        """Plain values that must be there: 8 bytes a number, 4 and the bytes themselves a string.

        A dictionary of two numbers has 16 bytes, and an index takes less than a byte.
        """
        numbers = pa.array([1, 2] * 500, pa.int64())
        texts = pa.array([b"x" * 37] * 1000)
        fields = [
            pa.field("number", pa.int64(), nullable=False),
            pa.field("text", pa.binary(), nullable=False),
            pa.field("few", pa.int64(), nullable=False),
        ]
        table = pa.table([numbers, texts, numbers], schema=pa.schema(fields))
        path = tmp_path / "t.parquet"
        pq.write_table(
            table, path, compression=compression, use_dictionary=["few"], data_page_version=version,
            row_group_size=700,
        )  # fmt: skip
        assert largest_page_bytes(path, ("number",)) == 8 * 700
        assert largest_page_bytes(path, ("text",)) == (4 + 37) * 700
        assert 16 <= largest_page_bytes(path, ("few",)) < 700
        assert largest_page_bytes(path, ("none",)) == 0
        assert num_rows(path) == 1000

    def test_all_pages_are_seen(self, tmp_path):
        """Many small ones, and a large one in the middle."""
        images = [bytes([i % 256]) * 3_000 for i in range(400)]
        images[250] = b"z" * 100_000
        path = self.write(
            tmp_path / "t.parquet",
            images,
            use_dictionary=False,
            data_page_size=5_000,
            write_batch_size=1,
        )
        assert 100_000 <= largest_page_bytes(path, ("image", "bytes")) < 100_000 + 10_000

    @pytest.mark.parametrize("use_dictionary", [False, True])
    def test_a_page_that_would_fill_memory_is_refused(self, tmp_path, monkeypatch, use_dictionary):
        """1 MB here, in a file of less than two kB."""
        monkeypatch.setattr(parquet, "BYTES_PER_READ", 1 << 19)
        options = {"use_dictionary": use_dictionary, "compression": "zstd"}
        self.write(tmp_path / "train.parquet", [bytes(1 << 20)], **options)
        in_parquet(tmp_path / "sound", [SMALL])
        (tmp_path / "sound" / "test.parquet").rename(tmp_path / "test.parquet")
        assert (tmp_path / "train.parquet").stat().st_size < 2_000
        message = (
            r"train\.parquet: image\.bytes has a page of 1,0\d\d,\d\d\d bytes; at most 524,288"
        )
        with pytest.raises(DataError, match=message):
            load_dataset("parquet", tmp_path)

    def test_rows_that_repeat_a_large_value_are_read_a_few_at_a_time(self, tmp_path, monkeypatch):
        """A dictionary holds it once, a batch as often as it has rows."""
        padded = SMALL + bytes(100_000)
        for split in ("train", "test"):
            path = tmp_path / f"{split}.parquet"
            self.write(path, [padded] * 600, dictionary_pagesize_limit=1 << 20, compression="zstd")
        monkeypatch.setattr(parquet, "BYTES_PER_READ", 1 << 20)
        read = []
        iter_batches = pq.ParquetFile.iter_batches

        def watched(self, batch_size, **options):
            for batch in iter_batches(self, batch_size, **options):
                read.append(batch.nbytes)
                yield batch

        monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
        assert len(load_dataset("parquet", tmp_path).train) == 600
        assert max(read) < 1 << 20
        assert sum(read) > 1200 * 100_000

    def test_more_rows_than_labels_fit_into_memory_are_refused(self, tmp_path, monkeypatch):
        in_parquet(tmp_path, [SMALL] * 300)
        monkeypatch.setattr(parquet, "memory_bytes", lambda: 4_000)
        with pytest.raises(DataError, match=r"train\.parquet: 300 rows; their labels alone"):
            load_dataset("parquet", tmp_path)


class TestIdx:
    def test_no_more_is_decompressed_than_announced(self, tmp_path):
        """A gigabyte of zeros in a file of one."""
        path = tmp_path / "train-images-idx3-ubyte.gz"
        with gzip.open(path, "wb", compresslevel=1) as file:
            file.write(b"\0\0\x08\x03" + struct.pack(">3I", 6, 28, 28))
            for _ in range(256):
                file.write(bytes(1 << 20))
        tracemalloc.start()
        try:
            with pytest.raises(
                DataError, match=r"idx3-ubyte\.gz: 4704 bytes announced, more there"
            ):
                fashion_mnist.read_idx(path, 3)
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize("suffix", ["", ".gz"])
    @pytest.mark.parametrize(
        ("shape", "message"),
        [
            ((2**32 - 1,) * 3, r"79,\S* bytes announced, above 1,073,741,824; fetch"),
            ((1000, 1000, 1000), r"1000000000 bytes announced, 100 there; fetch"),
        ],
    )
    def test_a_header_that_announces_too_much_takes_no_memory(
        self, tmp_path, suffix, shape, message
    ):
        path = tmp_path / f"train-images-idx3-ubyte{suffix}"
        write = gzip.open if suffix else open
        with write(path, "wb") as file:
            file.write(b"\0\0\x08\x03" + struct.pack(">3I", *shape) + bytes(100))
        tracemalloc.start()
        try:
            with pytest.raises(DataError, match=message):
                fashion_mnist.read_idx(path, 3)
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()

    def test_what_is_announced_is_read(self, tmp_path):
        array = random_images(np.random.default_rng(0), 5, 4, 3)
        for name in ("plain", "packed.gz"):
            write_idx(tmp_path / name, array)
            assert (fashion_mnist.read_idx(tmp_path / name, 3) == array).all()


def test_memory_is_that_of_the_machine_or_less(tmp_path, monkeypatch):
    real = limits.memory_bytes()
    assert 2**28 < real < 2**50
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(limits, "CGROUP_LIMITS", (limit,))
    for text, expected in [("max\n", None), ("1000000\n", 1_000_000)]:
        limit.write_text(text)
        assert limits.memory_bytes() == (expected or real)
    monkeypatch.delattr(limits.os, "sysconf")  # as on Windows
    assert limits.memory_bytes() == 1_000_000
    limit.write_text("max\n")
    assert limits.memory_bytes() > 2**50
