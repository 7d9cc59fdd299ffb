"""Image shape, classes and samples of a scenario's data, known without reading the data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edgesim.assembly.parts.own_data import open_own_dataset
from edgesim.data.arrays import ArrayDataset
from edgesim.data.errors import DataError
from edgesim.data.images import Dataset
from edgesim.data.shape import DataShape
from edgesim.data.sources import SOURCES, open_dataset
from edgesim.data.validation import hold_back, shape_without
from edgesim.scenario.data import DataSection
from edgesim.scenario.own_parts import OwnPart


def open_data(section: DataSection) -> Dataset | ArrayDataset:
    """The dataset of a scenario, from the catalog or an own part.

    Its test samples are those for validation, if the scenario holds some back.

    Raises:
        ScenarioError, DataError: it can't be opened.
    """
    dataset = _open(section)
    held_back = section.validation_samples
    return dataset if held_back is None else hold_back(dataset, held_back)


def _open(section: DataSection) -> Dataset | ArrayDataset:
    """Both splits, as they come."""
    if isinstance(section.source, OwnPart):
        return open_own_dataset(section)
    return open_dataset(
        section.source,
        Path(section.path) if section.path else None,
        image_size=section.image_size,
        download=section.download,
    )


def can_resize_images(section: DataSection) -> bool:
    """Whether `data.image_size` may be set: arrays are taken as they are."""
    return not isinstance(section.source, OwnPart)


def data_to_read(section: DataSection) -> Dataset | ArrayDataset | None:
    """The dataset of a scenario, if it must be read for its sizes; None if they are published.

    Raises:
        ScenarioError, DataError: it can't be opened.
    """
    source = None if isinstance(section.source, OwnPart) else SOURCES[section.source]
    is_published = source is not None and source.published_shape is not None
    return None if is_published else open_data(section)


def data_shape(section: DataSection, dataset: Dataset | ArrayDataset | None = None) -> DataShape:
    """Sizes of a scenario's data: published sizes, or sizes read from a user's own files.

    Args:
        section: of the scenario.
        dataset: by `data_to_read`, if it was opened before.

    Raises:
        DataError: the user's files can't be read, photographs have no size, or more samples are
            wanted than there are.
    """
    side = section.image_size
    source = None if isinstance(section.source, OwnPart) else SOURCES[section.source]
    if source is None or source.published_shape is None:
        known = DataShape.of(open_data(section) if dataset is None else dataset)
    else:
        known = source.published_shape
        if (held_back := section.validation_samples) is not None:
            known = shape_without(known, held_back)
    if source is not None and source.sizes_differ and side is None:
        raise DataError(
            f"data.image_size is missing: images of {section.source} differ in size; give 128"
        )
    shape = known.image_shape if side is None else (known.image_shape[0], side, side)
    num_train, wanted = known.num_train, section.train_samples
    if wanted is not None and wanted > num_train:
        raise DataError(
            f"data.train_samples is {wanted}, but there are only {num_train} training samples; "
            "lower it"
        )
    return replace(known, image_shape=shape, num_train=wanted or num_train)
