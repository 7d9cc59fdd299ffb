"""The datasets that a scenario can name, and how to load one."""

from __future__ import annotations

from pathlib import Path

from edgesim.data import image_folder, parquet
from edgesim.data.cifar import fetch_cifar, read_cifar
from edgesim.data.digits import Digits
from edgesim.data.errors import DataError
from edgesim.data.fashion_mnist import DEBIAN_FOLDER, fetch_fashion_mnist, read_fashion_mnist
from edgesim.data.imagenette import fetch_imagenette, read_imagenette
from edgesim.data.images import Dataset, LabelledImages
from edgesim.data.source import FolderSource, NamedSource, Source

__all__ = ["SOURCES", "Dataset", "LabelledImages", "load_dataset", "open_dataset"]

CIFAR10_STATISTICS = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))  # reference.md, section 5
# reference.md, section 5; those of torchvision.models.
IMAGENET_STATISTICS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

SOURCES: dict[str, Source] = {
    "digits": Digits(),
    "cifar10": NamedSource(
        description="CIFAR-10: 32x32 colour, 10 classes, 50,000 + 10,000 images",
        expects="cifar-10-batches-py/",
        read_original=read_cifar("CIFAR10"),
        read_parquet=parquet.read_parquet_of(num_classes=10),
        fetch=fetch_cifar("CIFAR10"),
        statistics=CIFAR10_STATISTICS,
    ),
    "cifar100": NamedSource(
        description="CIFAR-100: 32x32 colour, 100 classes, 50,000 + 10,000 images",
        expects="cifar-100-python/",
        read_original=read_cifar("CIFAR100"),
        read_parquet=parquet.read_parquet_of(num_classes=100),
        fetch=fetch_cifar("CIFAR100"),
    ),
    "fashion_mnist": NamedSource(
        description="Fashion-MNIST: 28x28 grey, 10 classes, 60,000 + 10,000 images",
        expects="the four IDX files (Debian's package dataset-fashion-mnist has them)",
        read_original=read_fashion_mnist,
        read_parquet=parquet.read_parquet_of(num_classes=10),
        fetch=fetch_fashion_mnist,
        default_path=DEBIAN_FOLDER,
    ),
    "imagenette": NamedSource(
        description="Imagenette: photographs, 10 classes of ImageNet, 9,469 + 3,925 images",
        expects="imagenette2-160/ (or imagenette2-320/ or imagenette2/)",
        read_original=read_imagenette,
        read_parquet=parquet.read_parquet_of(num_classes=10),
        fetch=fetch_imagenette,
        statistics=IMAGENET_STATISTICS,
    ),
    "image_folder": FolderSource(
        description="your images, in a folder for each class below train/ and val/ (or test/)",
        expects=image_folder.EXPECTS,
        read=image_folder.read_image_folder,
    ),
    "parquet": FolderSource(
        description="your images, in Parquet files as on the Hugging Face hub",
        expects=parquet.EXPECTS,
        read=parquet.read_parquet,
    ),
}


def open_dataset(
    source: str, path: Path | None, *, image_size: int | None = None, download: bool = False
) -> Dataset:
    """Open both splits of a dataset: labels are read at once, images when they are needed.

    Images are normalised with the published statistics of CIFAR-10 and ImageNet where the paper
    does so (reference.md, section 5). Statistics of other datasets are taken from their training
    images.

    Args:
        source: a name in `SOURCES`.
        path: folder with the dataset's original files, or with Parquet files in the layout of the
            Hugging Face hub. None for digits, which need no files, and for Fashion-MNIST if
            Debian's package has installed it.
        image_size: side in pixels of the square that images are scaled and cut to; None: as they
            are.
        download: fetch the original files of a named dataset into `path` if nothing is there.

    Raises:
        DataError: there is no such source, or its files are missing, broken or of another kind.
    """
    if source not in SOURCES:
        raise DataError(f"data.source is {source!r}; it must be one of {', '.join(SOURCES)}")
    try:
        splits = SOURCES[source].load(path, image_size=image_size, download=download)
    except OSError as error:
        reason = error.strerror or error
        raise DataError(
            f"data.path: {path} can't be read ({reason}); check it and its permissions"
        ) from error
    published = SOURCES[source].statistics
    if published and len(published[0]) != splits.train.image_shape_HWC[2]:
        raise DataError(
            f"data.path: {path} holds grey images, those of {source} are coloured; "
            "give its own files, or use data.source: parquet"
        )
    return Dataset(splits.train, splits.test, splits.class_names, source, published)


def load_dataset(
    source: str, path: Path | None, *, image_size: int | None = None, download: bool = False
) -> Dataset:
    """Open both splits like `open_dataset`, and read all images into memory.

    Raises:
        DataError: as `open_dataset`, or an image can't be read.
    """
    dataset = open_dataset(source, path, image_size=image_size, download=download)
    train, test = (LabelledImages(s.images_NHWC, s.labels) for s in (dataset.train, dataset.test))
    return Dataset(train, test, dataset.class_names, dataset.name, dataset.published)
