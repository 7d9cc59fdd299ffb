"""Images in folders named after their classes, below a folder for each split.

    train/<class>/<any depth>/*.jpg         val/<class>/... or test/<class>/...

Files without the suffix of an image are ignored.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np

from edgesim.data.decoding import EncodedImage
from edgesim.data.encoded import EncodedSplit, make_splits
from edgesim.data.errors import DataError
from edgesim.data.images import Splits
from edgesim.data.source import FolderSource

EXPECTS = "train/<class>/ and val/<class>/ (or test/<class>/) folders of images"
TEST_FOLDERS = ("test", "val", "validation")
SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
)


def read_image_folder(folder: Path, image_size: int | None) -> Splits | None:
    """Read both splits; classes are numbered in the order of their folders' names.

    None if there are no folders for both splits.

    Raises:
        DataError: a class is empty or unknown in training, or an image can't be read.
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
    train, test = (
        _read_split(split, class_names, image_size) for split in (train_folder, test_folder)
    )
    return make_splits(train, test, class_names)


def _class_names(split: Path) -> tuple[str, ...]:
    return tuple(sorted(f.name for f in split.iterdir() if f.is_dir() and f.name[0] != "."))


def _read_split(split: Path, class_names: tuple[str, ...], image_size: int | None) -> EncodedSplit:
    paths_by_class = [_image_paths(split / name) for name in class_names]
    labels = np.repeat(np.arange(len(class_names)), [len(paths) for paths in paths_by_class])
    paths = list(chain.from_iterable(paths_by_class))
    return EncodedSplit(
        labels, lambda chosen: (EncodedImage(paths[i], str(paths[i])) for i in chosen), image_size
    )


def _image_paths(class_folder: Path) -> list[Path]:
    paths = sorted(
        path
        for path in class_folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and path.name[0] != "." and path.is_file()
    )
    if not paths:
        raise DataError(f"{class_folder}: no images; add some or remove the class everywhere")
    return paths


IMAGE_FOLDER = FolderSource(
    description="your images, in a folder for each class below train/ and val/ (or test/)",
    expects=EXPECTS,
    read=read_image_folder,
)
