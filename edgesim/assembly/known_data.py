"""What is known of a scenario's data without reading it: image shape, classes, samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgesim.data.errors import DataError
from edgesim.data.sources import open_dataset
from edgesim.scenario.data import DataSection


@dataclass(frozen=True, slots=True)
class DataShape:
    """Sizes of a dataset.

    Attributes:
        image_shape: channels, height and width.
        num_classes: labels.
        num_train: training samples.
    """

    image_shape: tuple[int, int, int]
    num_classes: int
    num_train: int


# As published; see the modules of edgesim.data that read them, which cite the datasets.
_PUBLISHED: dict[str, DataShape] = {
    "digits": DataShape((1, 8, 8), 10, 1442),  # 1,797 less every fifth of each class
    "cifar10": DataShape((3, 32, 32), 10, 50_000),
    "cifar100": DataShape((3, 32, 32), 100, 50_000),
    "fashion_mnist": DataShape((1, 28, 28), 10, 60_000),
    "imagenette": DataShape((3, 160, 160), 10, 9_469),
}


def data_shape(section: DataSection) -> DataShape:
    """Sizes of a scenario's data: published ones, but those of a user's own files are read.

    Raises:
        DataError: the user's files can't be read, photographs have no size, or more samples are
            wanted than there are.
    """
    side = section.image_size
    known = _PUBLISHED.get(section.source)
    if known is None:
        dataset = open_dataset(
            section.source, Path(section.path) if section.path else None, image_size=side
        )
        known = DataShape(dataset.image_shape, dataset.num_classes, len(dataset.train))
    elif section.source == "imagenette" and side is None:
        raise DataError("data.image_size is missing: Imagenette's images differ in size; give 128")
    shape = known.image_shape if side is None else (known.image_shape[0], side, side)
    num_train, wanted = known.num_train, section.train_samples
    if wanted is not None and wanted > num_train:
        raise DataError(
            f"data.train_samples is {wanted}, but there are only {num_train} training samples; "
            "lower it"
        )
    return DataShape(shape, known.num_classes, wanted or num_train)
