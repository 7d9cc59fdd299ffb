"""Own parts that a run could not repeat or evaluate are refused before it."""

from __future__ import annotations

import re

import pytest
from small_fleets import prepared

from edgesim.data.errors import DataError
from edgesim.errors import ScenarioError

PARTS = """
import numpy as np
from torch import nn


def chance(labels, num_devices):
    return np.array_split(np.random.default_rng().permutation(len(labels)), num_devices)


def drawn(labels, num_devices, rng):
    return np.array_split(rng.permutation(len(labels)), num_devices)


class Data:
    def __init__(self, seed=None, scale=1, has_column=False):
        rng = np.random.default_rng(seed)
        self.train, self.test = (
            (rng.normal(size=(n, 5)).astype("float32"), scale * rng.integers(0, 3, n))
            for n in (80, 33)
        )
        if has_column:
            self.columns = {"owner": np.random.default_rng().integers(0, 9, 80)}


class Squeezed(nn.Module):
    def __init__(self, input_shape, num_classes):
        super().__init__()
        self.layer = nn.Linear(int(np.prod(input_shape)), num_classes)

    def forward(self, x):
        return self.layer(x.flatten(1)).squeeze()
"""


@pytest.fixture
def parts(tmp_path):
    (tmp_path / "parts.py").write_text(PARTS)
    return tmp_path / "parts.py"


def test_a_partition_by_chance_alone_is_refused(tmp_path, parts):
    with pytest.raises(ScenarioError, match="deals other samples when it is called again"):
        prepared(tmp_path, f"data.partition={{kind: {parts}:chance}}")


def test_a_partition_by_the_generator_that_it_is_given_is_not(tmp_path, parts):
    first, second = (
        prepared(tmp_path, f"data.partition={{kind: {parts}:drawn}}").indices for _ in range(2)
    )
    assert [own.tolist() for own in first] == [own.tolist() for own in second]


def own_data(parts, **options):
    data = f"{{source: {parts}:Data, options: {options}, batch_size: 16, partition: {{kind: iid}}}}"
    return f"data={data}", f"model={{name: {parts}:Squeezed}}", "evaluation.samples=null"


@pytest.mark.parametrize("options", [{}, {"seed": 1, "has_column": True}])
def test_a_dataset_by_chance_alone_is_refused(tmp_path, parts, options):
    with pytest.raises(ScenarioError, match="gives other samples or columns when it is made aga"):
        prepared(tmp_path, *own_data(parts, **options))


def test_numbers_that_are_no_classes_are_told_before_a_model_is_made(tmp_path, parts):
    wrong = "targets go to 1,000,000,000, and a model has an output for each class"
    with pytest.raises(DataError, match=re.escape(wrong)):
        prepared(tmp_path, *own_data(parts, seed=1, scale=500_000_000))


@pytest.mark.parametrize(("size", "is_told"), [(16, True), (17, False)])
def test_outputs_that_lose_an_axis_in_the_last_batch_of_an_evaluation(
    tmp_path, parts, size, is_told
):
    """33 test samples in batches of 16 leave one, in batches of 17 sixteen."""
    overrides = (*own_data(parts, seed=1), f"evaluation.batch_size={size}")
    if not is_told:
        prepared(tmp_path, *overrides)
        return
    with pytest.raises(ScenarioError, match=r"of shape \(3,\) for a batch of 1 sample.* \(1, 3\)"):
        prepared(tmp_path, *overrides)


DISORDERLY = """
import numpy as np

def deal(labels, test_labels, test_column_of, num_devices):
    test_labels.sort()
    labels.sort()
    return np.array_split(np.arange(len(labels)), num_devices)
"""


def test_a_partition_changes_copies_of_labels_alone(tmp_path):
    """Sorted test labels would give another accuracy, without a word."""
    (tmp_path / "mine.py").write_text(DISORDERLY)
    labels = prepared(tmp_path).test_labels.copy()
    dealt = prepared(tmp_path, f"data.partition={{kind: {tmp_path}/mine.py:deal}}")
    assert dealt.test_labels.tolist() == labels.tolist()
