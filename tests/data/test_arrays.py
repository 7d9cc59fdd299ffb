"""Arrays of one's own that are no arrays yet are refused in words that say what to do."""

from types import SimpleNamespace

import numpy as np
import pytest

from edgesim.data.arrays import dataset_of
from edgesim.data.errors import DataError

LENGTHS = (16, 16, 20)


def windows(length):
    return np.zeros((3, length), np.float32)


def in_an_array_of_objects(rows):
    made = np.empty(len(rows), object)
    made[:] = rows
    return made


@pytest.mark.parametrize("form", [list, in_an_array_of_objects])
def test_windows_of_unlike_lengths_are_named_with_their_shapes(form):
    """As sensors at two rates give them; numpy's own words were an internal error."""
    pair = form([windows(length) for length in LENGTHS]), np.array([0, 1, 0])
    said = r"train, inputs: .* unlike shapes, as \(3, 16\) and \(3, 20\); cut, pad or resample"
    with pytest.raises(DataError, match=said):
        dataset_of("mine", SimpleNamespace(train=pair, test=pair))


def test_rows_of_lists_of_unlike_lengths_are_refused_too():
    pair = [[1.0, 2.0], [1.0]], [0, 1]
    with pytest.raises(DataError, match=r"train, inputs: .* unlike shapes; cut, pad or resample"):
        dataset_of("mine", SimpleNamespace(train=pair, test=pair))
