"""Sizes of a dataset, which are published, or read from its files."""

from __future__ import annotations

from dataclasses import dataclass

from edgesim.data.arrays import ArrayDataset
from edgesim.data.images import Dataset


@dataclass(frozen=True, slots=True)
class DataShape:
    """Sizes of a dataset.

    Attributes:
        image_shape: channels, height and width; or the shape of an input that is no image.
        num_classes: labels.
        num_train: training samples.
        input_dtype: `float32` or `int64`.
        num_test: test samples; None where nothing says it.
    """

    image_shape: tuple[int, ...]
    num_classes: int
    num_train: int
    input_dtype: str = "float32"
    num_test: int | None = None

    @classmethod
    def of(cls, dataset: Dataset | ArrayDataset) -> DataShape:
        """Sizes of a dataset that was opened."""
        shape, dtype = dataset.image_shape, dataset.input_dtype
        return cls(shape, dataset.num_classes, len(dataset.train), dtype, len(dataset.test))
