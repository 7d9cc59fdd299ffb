"""Imagenette: ten classes of ImageNet, in the folders of its original archives.

Each image is scaled once, and its middle square is taken. With `data.augment: resized_crop_flip`
it is cropped at random in each epoch, as in reference.md, section 5 (photographs.py).

Source: J. Howard, https://github.com/fastai/imagenette
"""

from __future__ import annotations

from pathlib import Path

from edgesim.data.errors import DataError
from edgesim.data.image_folder import read_image_folder
from edgesim.data.images import Splits
from edgesim.data.parquet.parquet import read_parquet_of
from edgesim.data.published import fetch_published
from edgesim.data.shape import DataShape
from edgesim.data.source import NamedSource

FOLDERS = {"160px": "imagenette2-160", "320px": "imagenette2-320", "full": "imagenette2"}
SHORTER_SIDE = {"160px": 160, "320px": 320}  # pixels; "full" is as photographed
CLASS_NAME_BY_WORDNET_ID = {
    "n01440764": "tench",
    "n02102040": "English springer",
    "n02979186": "cassette player",
    "n03000684": "chain saw",
    "n03028079": "church",
    "n03394916": "French horn",
    "n03417042": "garbage truck",
    "n03425413": "gas pump",
    "n03445777": "golf ball",
    "n03888257": "parachute",
}
CLASS_NAMES = tuple(CLASS_NAME_BY_WORDNET_ID.values())


def read_imagenette(folder: Path, image_size: int | None) -> Splits | None:
    """Read both splits from an unpacked archive, or from a folder that holds some.

    If there are several archives, it reads the smallest one whose images are at least `image_size`
    large. None if there is no archive.

    Raises:
        DataError: no image size is given, or files are missing or broken.
    """
    sizes = [size for size, name in FOLDERS.items() if (folder / name).is_dir()]
    if sizes:
        wanted = _smallest_sufficient(image_size)
        order = list(FOLDERS)
        larger = [size for size in sizes if order.index(size) >= order.index(wanted)]
        folder = folder / FOLDERS[larger[0] if larger else sizes[-1]]
    elif folder.name not in FOLDERS.values():
        return None
    if image_size is None:
        raise DataError("data.image_size is missing: Imagenette's images differ in size; give 128")
    splits = read_image_folder(folder, image_size)
    if splits is None:
        raise DataError(f"{folder}: train/ or val/ is missing; unpack the archive again")
    if splits.class_names != tuple(CLASS_NAME_BY_WORDNET_ID):
        raise DataError(
            f"{folder / 'train'}: folders are not Imagenette's ten classes; unpack the archive "
            "again, or use data.source: image_folder"
        )
    return Splits(splits.train, splits.test, CLASS_NAMES)


def fetch_imagenette(folder: Path, image_size: int | None) -> None:
    """Download the smallest archive that is as large as `image_size`, and unpack it.

    Raises:
        DataError: no image size is given.
    """
    fetch_published("imagenette", folder, _smallest_sufficient(image_size))


def _smallest_sufficient(image_size: int | None) -> str:
    if image_size is None:
        raise DataError("data.image_size is missing: Imagenette's images differ in size; give 128")
    return next((size for size, side in SHORTER_SIDE.items() if side >= image_size), "full")


IMAGENETTE = NamedSource(
    description="Imagenette: photographs, 10 classes of ImageNet, 9,469 + 3,925 images",
    expects="imagenette2-160/ (or imagenette2-320/ or imagenette2/)",
    read_original=read_imagenette,
    read_parquet=read_parquet_of(num_classes=10),
    fetch=fetch_imagenette,
    published="imagenette",
    # reference.md, section 5; those of torchvision.models.
    statistics=((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    published_shape=DataShape((3, 160, 160), 10, 9_469, num_test=3_925),
    sizes_differ=True,
)
