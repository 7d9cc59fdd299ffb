"""Image shape, classes and samples of a scenario's data, known without reading the data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from edgesim.assembly.own_data import open_own_dataset
from edgesim.data.arrays import ArrayDataset
from edgesim.data.errors import DataError
from edgesim.data.images import Dataset
from edgesim.data.sources import open_dataset
from edgesim.scenario.data import DataSection
from edgesim.scenario.own_parts import OwnPart


@dataclass(frozen=True, slots=True)
class DataShape:
    """Sizes of a dataset.

    Attributes:
        image_shape: channels, height and width; or the shape of an input that is no image.
        num_classes: labels.
        num_train: training samples.
        input_dtype: `float32` or `int64`.
    """

    image_shape: tuple[int, ...]
    num_classes: int
    num_train: int
    input_dtype: str = "float32"

    @classmethod
    def of(cls, dataset: Dataset | ArrayDataset) -> DataShape:
        """Sizes of a dataset that was opened."""
        shape, dtype = dataset.image_shape, dataset.input_dtype
        return cls(shape, dataset.num_classes, len(dataset.train), dtype)


def open_data(section: DataSection) -> Dataset | ArrayDataset:
    """The dataset of a scenario, from the catalog or an own part.

    Raises:
        ScenarioError, DataError: it can't be opened.
    """
    if isinstance(section.source, OwnPart):
        return open_own_dataset(section)
    return open_dataset(
        section.source,
        Path(section.path) if section.path else None,
        image_size=section.image_size,
        download=section.download,
    )


# As published; see the modules of edgesim.data that read them, which cite the datasets.
_PUBLISHED: dict[str, DataShape] = {
    "digits": DataShape((1, 8, 8), 10, 1442),  # 1,797 less every fifth of each class
    "cifar10": DataShape((3, 32, 32), 10, 50_000),
    "cifar100": DataShape((3, 32, 32), 100, 50_000),
    "fashion_mnist": DataShape((1, 28, 28), 10, 60_000),
    "imagenette": DataShape((3, 160, 160), 10, 9_469),
}


def data_shape(section: DataSection) -> DataShape:
    """Sizes of a scenario's data: published sizes, or sizes read from a user's own files.

    Raises:
        DataError: the user's files can't be read, photographs have no size, or more samples are
            wanted than there are.
    """
    side = section.image_size
    known = None if isinstance(section.source, OwnPart) else _PUBLISHED.get(section.source)
    if known is None:
        known = DataShape.of(open_data(section))
    elif section.source == "imagenette" and side is None:
        raise DataError("data.image_size is missing: Imagenette's images differ in size; give 128")
    shape = known.image_shape if side is None else (known.image_shape[0], side, side)
    num_train, wanted = known.num_train, section.train_samples
    if wanted is not None and wanted > num_train:
        raise DataError(
            f"data.train_samples is {wanted}, but there are only {num_train} training samples; "
            "lower it"
        )
    return replace(known, image_shape=shape, num_train=wanted or num_train)
