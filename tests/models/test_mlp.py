"""The perceptron has the layers that are asked for."""

from __future__ import annotations

import pytest
from torch import nn

from edgesim.models.errors import ModelError
from edgesim.models.mlp import mlp


def test_widths_follow_each_other_from_input_to_classes():
    layers = list(mlp((2, 3), 4, hidden=[5, 7]))
    assert isinstance(layers[0], nn.Flatten)
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == [(6, 5), (5, 7), (7, 4)]
    assert [type(layer).__name__ for layer in layers[1:]] == ["Linear", "ReLU"] * 2 + ["Linear"]
    (last,) = mlp((3,), 2, hidden=[])
    assert (last.in_features, last.out_features) == (3, 2)


@pytest.mark.parametrize("hidden", [16, [0], ["16"], [1.5], [True]])
def test_widths_that_are_none_are_refused(hidden):
    with pytest.raises(ModelError, match=r"options\.hidden is .*; must be a list of whole numbers"):
        mlp((3,), 2, hidden=hidden)
