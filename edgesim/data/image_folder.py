"""Images in folders named after their classes, below a folder for each split.

    train/<class>/<any depth>/*.jpg         val/<class>/... or test/<class>/...

Files without the suffix of an image are ignored, and files and folders whose names begin with a
dot. Each class needs training images; it may lack test images. The first folder below that of the
class may be that of the image's owner: it is the column `folder`, by which a partition can deal the
images.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgesim.data.decoding import EncodedImage
from edgesim.data.encoded import EncodedSplit, make_splits
from edgesim.data.errors import DataError
from edgesim.data.folders import files_below
from edgesim.data.images import Splits
from edgesim.data.source import FolderSource

EXPECTS = "train/<class>/ and val/<class>/ (or test/<class>/) folders of images"
FOLDER = "folder"  # name of the column
TEST_FOLDERS = ("test", "val", "validation")
SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
)


def read_image_folder(folder: Path, image_size: int | None) -> Splits | None:
    """Read both splits; classes are numbered in the order of their folders' names.

    None if there are no folders for both splits.

    Raises:
        DataError: a class is empty or unknown in training, no class has test images, or an image
            can't be read.
    """
    train_folder = folder / "train"
    test_folder = next((folder / name for name in TEST_FOLDERS if (folder / name).is_dir()), None)
    if not train_folder.is_dir() or test_folder is None:
        return None
    class_names = _class_names(train_folder)
    if not class_names:
        raise DataError(f"{train_folder}: no class folders; {EXPECTS} are needed")
    if unknown := sorted(set(_class_names(test_folder)) - set(class_names)):
        raise DataError(f"{test_folder / unknown[0]}: no such class in {train_folder}; rename it")
    train, test = (_Files.below(split, class_names) for split in (train_folder, test_folder))
    train.check_has_all()
    if not test.paths:
        raise DataError(f"{test_folder}: no images in the folders of the classes; add some")
    splits = make_splits(train.encoded(image_size), test.encoded(image_size), class_names)
    return replace(splits, columns=train.columns(), test_columns=test.columns())


def _class_names(split: Path) -> tuple[str, ...]:
    return tuple(sorted(f.name for f in split.iterdir() if f.is_dir() and f.name[0] != "."))


@dataclass(frozen=True, slots=True, eq=False)
class _Files:
    """Images of a split, class by class.

    Attributes:
        folders: of the classes, by number.
        labels: number of the class of each image.
        paths: of the images.
    """

    folders: tuple[Path, ...]
    labels: NDArray[np.int64]
    paths: list[Path]

    @classmethod
    def below(cls, split: Path, class_names: tuple[str, ...]) -> _Files:
        """The images in the folders of these classes."""
        folders = tuple(split / name for name in class_names)
        by_class = [_image_paths(folder) for folder in folders]
        labels = np.repeat(np.arange(len(folders)), [len(paths) for paths in by_class])
        return cls(folders, labels, list(chain.from_iterable(by_class)))

    def check_has_all(self) -> None:
        """Refuse a class without images."""
        counts = np.bincount(self.labels, minlength=len(self.folders))
        if not counts.all():
            folder = self.folders[counts.argmin()]
            raise DataError(f"{folder}: no images; add some or remove the class everywhere")

    def encoded(self, image_size: int | None) -> EncodedSplit:
        """The images, read when they are needed."""
        paths = self.paths
        return EncodedSplit(
            self.labels,
            lambda chosen: (EncodedImage(paths[i], str(paths[i])) for i in chosen),
            image_size,
        )

    def columns(self) -> dict[str, NDArray[np.object_]]:
        """The folder below that of the class, None for images without; {} where all are without."""
        depth = len(self.folders[0].parts)
        below = [path.parts[depth:-1] for path in self.paths]
        if not any(below):
            return {}
        return {FOLDER: np.array([folders[0] if folders else None for folders in below], object)}


def _image_paths(class_folder: Path) -> list[Path]:
    return [path for path in files_below(class_folder) if path.suffix.lower() in SUFFIXES]


IMAGE_FOLDER = FolderSource(
    description="your images, in a folder for each class below train/ and val/ (or test/)",
    expects=EXPECTS,
    read=read_image_folder,
    owners=f"the column {FOLDER}, the folder below the class's: of train/cat/attic/1.jpg attic",
)
