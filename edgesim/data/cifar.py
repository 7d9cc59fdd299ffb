"""CIFAR-10 and CIFAR-100 in their original form: pickled batches, read through torchvision.

The files are pickles, and unpickling can run any code. torchvision first compares their MD5 sums
with the published ones, so files are read through torchvision.

Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from edgesim.data.decoding import resized_samples
from edgesim.data.errors import DataError
from edgesim.data.images import Samples, Splits
from edgesim.data.parquet.parquet import read_parquet_of
from edgesim.data.published import fetcher
from edgesim.data.shape import DataShape
from edgesim.data.source import NamedSource
from edgesim.data.torchvision_compat import torchvision_datasets

Variant = Literal["CIFAR10", "CIFAR100"]
FOLDERS: dict[Variant, str] = {"CIFAR10": "cifar-10-batches-py", "CIFAR100": "cifar-100-python"}


class _TorchvisionCifar(Protocol):
    """The interface of torchvision's classes, which are not typed."""

    data: NDArray[np.uint8]
    targets: list[int]
    classes: list[str]


def read_cifar(variant: Variant) -> Callable[[Path, int | None], Splits | None]:
    """Reader of a variant's original files, in its folder or in the folder that holds it."""

    def read(folder: Path, image_size: int | None) -> Splits | None:
        root = folder.parent if folder.name == FOLDERS[variant] else folder
        if not (root / FOLDERS[variant]).is_dir():
            return None
        train, test = (_open(variant, root, train=is_train) for is_train in (True, False))
        return Splits(_images(train, image_size), _images(test, image_size), tuple(train.classes))

    return read


def _open(variant: Variant, root: Path, *, train: bool) -> _TorchvisionCifar:
    try:
        dataset = getattr(torchvision_datasets(), variant)(root, train=train)
    except RuntimeError as error:
        raise DataError(
            f"{root / FOLDERS[variant]}: files are missing or differ from the published ones; "
            "unpack the archive again, or remove the folder and set data.download"
        ) from error
    return cast("_TorchvisionCifar", dataset)


def _images(dataset: _TorchvisionCifar, image_size: int | None) -> Samples:
    return resized_samples(dataset.data, np.asarray(dataset.targets, np.int64), image_size)


CIFAR10 = NamedSource(
    description="CIFAR-10: 32x32 colour, 10 classes, 50,000 + 10,000 images",
    expects="cifar-10-batches-py/",
    read_original=read_cifar("CIFAR10"),
    read_parquet=read_parquet_of(num_classes=10),
    fetch=fetcher("cifar10"),
    published="cifar10",
    # reference.md, section 5
    statistics=((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    published_shape=DataShape((3, 32, 32), 10, 50_000, num_test=10_000),
)

CIFAR100 = NamedSource(
    description="CIFAR-100: 32x32 colour, 100 classes, 50,000 + 10,000 images",
    expects="cifar-100-python/",
    read_original=read_cifar("CIFAR100"),
    read_parquet=read_parquet_of(num_classes=100),
    fetch=fetcher("cifar100"),
    published="cifar100",
    published_shape=DataShape((3, 32, 32), 100, 50_000, num_test=10_000),
)
