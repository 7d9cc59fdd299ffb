"""A multilayer perceptron, for tables and other vectors of numbers."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

from torch import nn

from edgesim.models.errors import ModelError


def mlp(
    input_shape: tuple[int, ...],
    num_classes: int,
    *,
    hidden: Any = (32, 32),  # noqa: ANN401 (a scenario may hold anything)
) -> nn.Module:
    """Multilayer perceptron: linear layers with ReLU between them, for tables and vectors.

    Inputs of several dimensions are flattened.

    Args:
        input_shape: of one input.
        num_classes: outputs of the last layer.
        hidden: list of the widths of the layers between, from input to output.

    Raises:
        ModelError: a width is no whole number from 1.
    """
    if not isinstance(hidden, list | tuple) or not all(
        type(width) is int and width > 0 for width in hidden
    ):
        raise ModelError(
            f"options.hidden is {hidden!r}; must be a list of whole numbers from 1, such as [32]"
        )
    layers: list[nn.Module] = [nn.Flatten()] if len(input_shape) > 1 else []
    widths = [prod(input_shape), *hidden]
    for width, following in pairwise(widths):
        layers += [nn.Linear(width, following), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], num_classes))
