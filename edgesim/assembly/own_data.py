"""Datasets of one's own: made from a scenario, and what devices need of them."""

from __future__ import annotations

from inspect import getattr_static
from typing import Any

from edgesim.assembly.own_parts import load_part, make_part
from edgesim.data.arrays import ArrayDataset, Transform, dataset_of
from edgesim.data.images import Dataset
from edgesim.errors import ScenarioError
from edgesim.scenario.data import DataSection
from edgesim.scenario.own_parts import OwnPart

_KEY = "data.source"


def open_own_dataset(section: DataSection) -> Dataset | ArrayDataset:
    """The dataset of a scenario that names an own part.

    Raises:
        ScenarioError, DataError: the object can't be made or is no dataset.
    """
    part = section.source
    assert isinstance(part, OwnPart), "sources of the catalog are opened elsewhere"
    given: dict[str, Any] = {} if section.path is None else {"path": section.path}
    made = make_part(part, _KEY, section.options or {}, ("train", "test"), **given)
    return dataset_of(f"{_KEY}: {part}", made)


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
