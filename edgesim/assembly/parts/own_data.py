"""Datasets of one's own: made from a scenario, and what devices need of them."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from inspect import getattr_static
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgesim.assembly.parts.options import options_of
from edgesim.assembly.parts.own_parts import load_part, make_part
from edgesim.data.arrays import ArrayDataset, Transform, dataset_of
from edgesim.data.images import Dataset
from edgesim.data.published import PUBLISHED, fetch_hint
from edgesim.errors import ScenarioError
from edgesim.scenario.data import DataSection
from edgesim.scenario.own_parts import OwnPart

_KEY = "data.source"
_MOST_LISTED = 5  # classes in a notice


def open_own_dataset(section: DataSection) -> Dataset | ArrayDataset:
    """The dataset of a scenario that names an own part.

    Raises:
        ScenarioError, DataError: the object can't be made or is no dataset.
    """
    part = section.source
    assert isinstance(part, OwnPart), "sources of the catalog are opened elsewhere"
    given: dict[str, Any] = {} if section.path is None else {"path": section.path}
    if section.path is None:
        _check_needs_no_path(part, section.options or {})
    made = make_part(part, _KEY, section.options or {}, ("train", "test"), **given)
    return dataset_of(f"{_KEY}: {part}", made)


def contents_digest(dataset: Dataset | ArrayDataset) -> bytes:
    """Digest of all samples, targets and columns of a dataset of arrays."""
    digest = blake2b(str(dataset.num_classes).encode(), digest_size=16)
    splits: tuple[tuple[Any, Mapping[str, NDArray[Any]]], ...] = (
        (dataset.train, dataset.columns),
        (dataset.test, dataset.test_columns),
    )
    for split, columns in splits:
        named = [*enumerate(split.contents), *sorted(columns.items())]
        for name, array in named:
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            whole = np.ascontiguousarray(array)
            is_number = whole.dtype.kind in "biuf"
            digest.update(whole.data if is_number else repr(whole.tolist()).encode())
    return digest.digest()


def _check_needs_no_path(part: OwnPart, options: Mapping[str, Any]) -> None:
    """Refuse a dataset that is called without the path that it needs.

    Raises:
        ScenarioError: it needs one.
    """
    option = (options_of(load_part(part, _KEY), ()) or {}).get("path")
    if option is None or not option.is_required or "path" in options:
        return
    remedy = "give the file or folder that it reads"
    if part.shipped_as in PUBLISHED:
        remedy = fetch_hint(part.shipped_as, "a folder")
    raise ScenarioError(f"data.path is missing; data.source: {part} needs it: {remedy}")


def as_classes(labels: NDArray[Any]) -> str:
    """How to write targets `y` as classes; empty if they can't be meant as such."""
    column = labels.ndim == 2 and labels.shape[1] == 1
    if labels.ndim == 2 and not column:
        is_one_hot = ((labels == 0) | (labels == 1)).all() and (labels.sum(1) == 1).all()
        return "y.argmax(1)" if is_one_hot else ""
    if not (column or labels.ndim == 1) or (labels != np.floor(labels)).any():
        return ""
    whole = "" if labels.dtype == np.int64 else '.astype("int64")'
    return f"y{'.ravel()' if column else ''}{whole}"


def notices_of_classes(
    dataset: Dataset | ArrayDataset, evaluated: str = "test samples"
) -> tuple[str, ...]:
    """What classes of a dataset are easily overlooked: such as have no sample, or in one split.

    Args:
        dataset: of the scenario.
        evaluated: what its test samples are called.
    """
    train, test = (np.unique(split.labels) for split in (dataset.train, dataset.test))
    least = int(min(train[0], test[0]))
    later = np.arange(least, dataset.num_classes)
    unused = np.setdiff1d(later, np.union1d(train, test))
    found = []
    if least:
        found.append(
            f"no sample has class 0: targets begin at {least}, and the model has "
            f"{dataset.num_classes} outputs; subtract {least} from all targets if classes are "
            f"counted from {least}"
        )
    if len(train) == 1:
        found.append(
            f"all training samples have {_listed(dataset, train)}: a model learns to name nothing "
            "else"
        )
    if len(unused):
        found.append(
            f"no sample has {_listed(dataset, unused)}, so outputs of the model stay unused; "
            "number classes without gaps, unless more are to come"
        )
    if len(unseen := np.setdiff1d(test, train)):
        found.append(
            f"{evaluated} have {_listed(dataset, unseen)}, which no training sample has; the "
            "model can't learn it"
        )
    if len(untested := np.setdiff1d(train, test)):
        one = evaluated.removesuffix("s")
        found.append(f"no {one} has {_listed(dataset, untested)}; accuracies say nothing about it")
    return tuple(f"{_KEY}: {said}" for said in found)


def _listed(dataset: Dataset | ArrayDataset, classes: NDArray[np.int64]) -> str:
    """The first of some classes, by name where they have names."""
    names = getattr(dataset, "class_names", None)
    first = [names[number] if names else str(number) for number in classes[:_MOST_LISTED].tolist()]
    more = len(classes) - len(first)
    return f"class {', '.join(first)}{f' and {more} more' if more else ''}"


def batch_transform(section: DataSection) -> Transform | None:
    """The function that changes the inputs of training batches; None without one.

    It must be a static method, since devices call it without a dataset.

    Raises:
        ScenarioError: it is no static method.
    """
    if not isinstance(section.source, OwnPart):
        return None
    owner = load_part(section.source, _KEY)
    transform: Transform | None = getattr(owner, "transform", None)
    if transform is None:
        return None
    if not isinstance(getattr_static(owner, "transform"), staticmethod):
        raise ScenarioError(
            f"{_KEY}: transform of {section.source} is no static method; devices call "
            "transform(inputs, rng) without a dataset"
        )
    return transform
