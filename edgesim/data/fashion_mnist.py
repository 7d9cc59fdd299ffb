"""Fashion-MNIST in its original form: IDX files, plain or gzipped.

The files are read from one folder (as installed by Debian's package dataset-fashion-mnist) or from
the folders that torchvision makes.

Sources: H. Xiao, K. Rasul, R. Vollgraf, arXiv 1708.07747; the IDX format: Y. LeCun, C. Cortes,
C. Burges, The MNIST database of handwritten digits.
"""

from __future__ import annotations

import gzip
import zlib
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgesim.data.decoding import resized_samples
from edgesim.data.errors import DataError
from edgesim.data.images import Samples, Splits, first_label_outside
from edgesim.data.parquet.parquet import read_parquet_of
from edgesim.data.published import fetcher
from edgesim.data.shape import DataShape
from edgesim.data.source import NamedSource

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")  # of Debian's dataset-fashion-mnist
CLASS_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
SUBFOLDERS = (".", "raw", "FashionMNIST/raw")
MOST_BYTES = 1 << 30  # the largest dataset in this form, EMNIST, has 0.6 GB
CHUNK = 1 << 20  # read at a time
IDX_UINT8 = b"\x00\x00\x08"  # then one byte: how many dimensions


def read_fashion_mnist(folder: Path, image_size: int | None) -> Splits | None:
    """Read both splits; None if the folder holds no IDX files.

    Raises:
        DataError: a file is missing, broken, or does not fit the others.
    """
    for raw in (folder / subfolder for subfolder in SUBFOLDERS):
        if _find(raw, "train-images-idx3-ubyte") is not None:
            train, test = (_read_split(raw, split, image_size) for split in ("train", "t10k"))
            return Splits(train, test, CLASS_NAMES)
    return None


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Array of bytes in an IDX file, gzipped or not.

    No more is decompressed than the file's header announces, and that is bounded.

    Raises:
        DataError: it is no such file, or not of this many dimensions, or cut short, or larger than
            any of these datasets.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            header = file.read(4 + 4 * dimensions)
            if header[:4] != IDX_UINT8 + bytes([dimensions]):
                raise _broken(path, f"no IDX file of bytes in {dimensions} dimensions")
            shape = [int.from_bytes(header[at : at + 4]) for at in range(4, len(header), 4)]
            announced = prod(shape)
            if announced > MOST_BYTES:
                raise _broken(path, f"{announced:,} bytes announced, above {MOST_BYTES:,}")
            data = bytearray()
            while chunk := file.read(CHUNK):  # stops at the end of the content
                data += chunk
                if len(data) > announced:
                    raise _broken(path, f"{announced} bytes announced, more there")
    except (OSError, EOFError, zlib.error) as error:
        raise _broken(path, str(error)) from error
    if len(shape) < dimensions or len(data) != announced:
        raise _broken(path, f"{announced} bytes announced, {len(data)} there")
    return np.frombuffer(data, np.uint8).reshape(shape)


def _read_split(raw: Path, split: str, image_size: int | None) -> Samples:
    images_path = _required(raw, f"{split}-images-idx3-ubyte")
    labels_path = _required(raw, f"{split}-labels-idx1-ubyte")
    images_NHW, labels = read_idx(images_path, 3), read_idx(labels_path, 1).astype(np.int64)
    if len(images_NHW) != len(labels):
        raise _broken(labels_path, f"{len(labels)} labels for {len(images_NHW)} images")
    if (row := first_label_outside(labels, len(CLASS_NAMES))) is not None:
        raise _broken(labels_path, f"label {labels[row]} of sample {row} is no class")
    return resized_samples(images_NHW[..., None], labels, image_size)


def _find(raw: Path, name: str) -> Path | None:
    return next((path for path in (raw / name, raw / f"{name}.gz") if path.is_file()), None)


def _required(raw: Path, name: str) -> Path:
    if (path := _find(raw, name)) is None:
        raise DataError(f"{raw}: {name}[.gz] is missing; all four IDX files are needed")
    return path


def _broken(path: Path, reason: str) -> DataError:
    return DataError(f"{path}: {reason}; fetch the file again")


FASHION_MNIST = NamedSource(
    description="Fashion-MNIST: 28x28 grey, 10 classes, 60,000 + 10,000 images",
    expects="the four IDX files (Debian's package dataset-fashion-mnist has them)",
    read_original=read_fashion_mnist,
    read_parquet=read_parquet_of(num_classes=10),
    fetch=fetcher("fashion_mnist"),
    published="fashion_mnist",
    default_path=DEBIAN_FOLDER,
    published_shape=DataShape((1, 28, 28), 10, 60_000, num_test=10_000),
)
