"""Floating-point operations of torch's operations: its own formulas, and those that it lacks.

A multiply-accumulate is two operations. Without a formula an operation would count as element-wise,
by its largest operand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

_aten = torch.ops.aten


def flop_formula(operation: object) -> Callable[..., int] | None:
    """The formula of an operation; None if it multiplies no matrices.

    It takes the arguments of the operation, and its result as `out_val`.
    """
    return _FORMULAS.get(operation) or flop_registry.get(operation)


def _matrix_vector(matrix: Tensor, *_: object, **__: object) -> int:
    return 2 * matrix.numel()


def _added_matrix_vector(_: Tensor, matrix: Tensor, *__: object, **___: object) -> int:
    return 2 * matrix.numel()


def _trilinear(
    first: Tensor,
    second: Tensor,
    third: Tensor,
    expand1: list[int],
    expand2: list[int],
    expand3: list[int],
    *_: object,
    **__: object,
) -> int:
    """Of `nn.Bilinear`: a product for each entry of all three, broadcast."""
    expanded = []
    for tensor, axes in ((first, expand1), (second, expand2), (third, expand3)):
        for axis in sorted(axes):
            tensor = tensor.unsqueeze(axis)
        expanded.append(tensor.shape)
    entries: int = prod(torch.broadcast_shapes(*expanded))
    return 2 * entries


def _recurrent(inputs: Tensor, of_input: Tensor, of_state: Tensor, *_: object, **__: object) -> int:
    """Of one layer and direction of a recurrent network, for all places and samples."""
    places = inputs.numel() // inputs.shape[-1]
    return 2 * places * (of_input.numel() + of_state.numel())


def _recurrent_backward(*args: Any, **kwargs: Any) -> int:  # noqa: ANN401 (torch's arguments)
    return 2 * _recurrent(*args, **kwargs)  # gradients at inputs and states, and of weights


def _attention(query: Tensor, key: Tensor, value: Tensor, *_: object, **__: object) -> int:
    """Scores and the mean of values; shapes (N, heads, places, entries)."""
    scores = prod(query.shape[:-1]) * key.shape[-2]
    return 2 * scores * (query.shape[-1] + value.shape[-1])


def _attention_backward(
    _: Tensor, query: Tensor, key: Tensor, value: Tensor, *__: object, **___: object
) -> int:
    """Scores again, then gradients at scores, values, queries and keys."""
    scores = prod(query.shape[:-1]) * key.shape[-2]
    return 2 * scores * (3 * query.shape[-1] + 2 * value.shape[-1])


_FORMULAS: Mapping[object, Callable[..., int]] = {
    _aten.mv: _matrix_vector,
    _aten.dot: _matrix_vector,
    _aten.vdot: _matrix_vector,
    _aten.addmv: _added_matrix_vector,
    _aten._trilinear: _trilinear,  # noqa: SLF001 (its name)
    _aten.mkldnn_rnn_layer: _recurrent,
    _aten.mkldnn_rnn_layer_backward: _recurrent_backward,
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention,  # noqa: SLF001
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,  # noqa: SLF001
}
