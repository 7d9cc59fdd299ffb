"""The datasets that a scenario can name, and how to load one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgesim.data.errors import DataError
from edgesim.data.images import Dataset
from edgesim.data.source import Source
from edgesim.scenario import catalog

SOURCES: Mapping[str, Source] = catalog.SOURCES


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
            f"data.path: {error.filename or path} can't be read ({reason}); check it and its "
            "permissions"
        ) from error
    published = SOURCES[source].statistics
    if published and len(published[0]) != splits.train.image_shape_HWC[2]:
        raise DataError(
            f"data.path: {path} holds grey images, those of {source} are coloured; "
            "give its own files, or use data.source: parquet"
        )
    return Dataset(
        splits.train,
        splits.test,
        splits.class_names,
        source,
        published,
        columns=splits.columns,
        test_columns=splits.test_columns,
    )
