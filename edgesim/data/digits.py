"""Handwritten digits: 1,797 real images of 8x8 pixels that come with scikit-learn.

Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning
Repository, 1998 (its test set).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgesim.data.decoding import resized_samples
from edgesim.data.errors import DataError
from edgesim.data.images import Splits
from edgesim.data.shape import DataShape

FILE = Path("data", "digits.csv.gz")  # in the folder `datasets` of scikit-learn
CLASS_NAMES = tuple("0123456789")
SIDE = 8  # of an image
BRIGHTEST = 16  # pixels are 0 to 16: number of black dots in a 4x4 field
TEST_EVERY = 5  # of each class, every fifth sample is for testing


@dataclass(frozen=True, slots=True)
class Digits:
    """The dataset that needs no files: embedded, and the default."""

    description: str = "scikit-learn's handwritten digits, 8x8 grey, 10 classes; needs no files"
    statistics: None = None
    sizes_differ: bool = False

    @property
    def published_shape(self) -> DataShape:
        """1,797 images less every fifth of each class."""
        return DataShape((1, 8, 8), 10, 1442, num_test=355)

    def load(self, path: Path | None, *, image_size: int | None, download: bool) -> Splits:
        """Read both splits; the split is fixed and has the classes' proportions.

        Raises:
            DataError: a path or a download is asked for, or scikit-learn is not whole.
        """
        if path is not None:
            raise DataError("data.path: digits come with scikit-learn; remove it")
        if download:
            raise DataError("data.download: digits come with scikit-learn; remove it")
        table = _table()
        pixels_NHW = np.rint(table[:, :-1].reshape(-1, SIDE, SIDE) * (255 / BRIGHTEST))
        pixels_NHW, labels = pixels_NHW.astype(np.uint8), table[:, -1].astype(np.int64)
        is_test = _rank_within_class(labels) % TEST_EVERY == TEST_EVERY - 1
        train, test = (
            resized_samples(pixels_NHW[mask][..., None], labels[mask], image_size)
            for mask in (~is_test, is_test)
        )
        return Splits(train, test, CLASS_NAMES)


@cache
def _table() -> NDArray[np.float64]:
    """One row for each image: its 64 pixels, line by line, and its label.

    Read from scikit-learn's file without importing scikit-learn: that takes longer than a short
    run, and each process of a fleet reads the data.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:  # as on a node of a cluster
        raise DataError("data.source: digits come with scikit-learn; install it here")
    file = Path(package.origin).with_name("datasets") / FILE
    if not file.is_file():
        raise DataError(
            "data.source: digits come with scikit-learn, which has none here; reinstall it"
        )
    table = np.loadtxt(file, delimiter=",")
    table.flags.writeable = False  # all callers share it
    return table


def _rank_within_class(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many earlier samples have the same label, for each sample."""
    order = np.argsort(labels, kind="stable")
    class_starts = np.searchsorted(labels[order], labels[order])
    ranks = np.empty_like(labels)
    ranks[order] = np.arange(len(labels)) - class_starts
    return ranks


DIGITS = Digits()
