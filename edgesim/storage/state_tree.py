"""Converts the state of a device to plain data, a JSON value and arrays, and back.

A tree is built of dataclasses, dicts, tuples, lists, tensors, numbers, text and None. Each
tensor goes into the arrays, under its path in the tree; everything else keeps its structure.
Dataclasses are filled in place, so a state that is read back has the types of its owner. No two
tensors of a tree may share memory: read back, they would be two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgesim.errors import EdgesimError

Arrays = dict[str, NDArray[Any]]


KEPT = "tensors, numbers, text, and dicts, tuples and lists of these"
"""Types that a tree may have beside dataclasses."""


class StateTreeError(EdgesimError, TypeError):
    """A tree can't be packed so that it is the same when it is read back."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A tree that was packed: a JSON value, and its tensors by path."""

    content: Any
    arrays: Arrays

    @classmethod
    def of(cls, tree: object, path: str) -> Packed:
        """Pack a tree; `path` begins the paths of its tensors."""
        arrays: Arrays = {}
        return cls(pack(tree, arrays, path), arrays)


def pack(tree: object, arrays: Arrays, path: str) -> Any:  # noqa: ANN401 (a JSON value)
    """Convert a tree to a value that JSON can hold.

    Args:
        tree: the tree.
        arrays: receives copies of the tensors, by path.
        path: path of the tree, unique among all trees that are packed into `arrays`.

    Raises:
        StateTreeError: the tree holds a value of another type than those named above, or two
            tensors that share memory.
    """
    tensors: dict[str, Tensor] = {}
    packed = _packed(tree, tensors, path)
    _check_apart(tensors)
    arrays.update({at: tensor.detach().cpu().numpy().copy() for at, tensor in tensors.items()})
    return packed


def _packed(tree: object, tensors: dict[str, Tensor], path: str) -> Any:  # noqa: ANN401 (as `pack`)
    match tree:
        case Tensor():
            _check_form(tree, path)
            tensors[path] = tree
            return {"tensor": path}
        case bool() | int() | float() | str() | None:
            return tree
        case dict():
            return {
                "dict": [
                    [_packed(key, tensors, path), _packed(value, tensors, f"{path}/{key}")]
                    for key, value in tree.items()
                ]
            }
        case tuple() | list():
            kind = "tuple" if isinstance(tree, tuple) else "list"
            return {kind: [_packed(v, tensors, f"{path}/{place}") for place, v in enumerate(tree)]}
        case _ if is_dataclass(tree) and not isinstance(tree, type):
            return {
                "fields": {
                    field.name: _packed(getattr(tree, field.name), tensors, f"{path}/{field.name}")
                    for field in fields(tree)
                }
            }
        case _:
            raise StateTreeError(f"{path} is of type {type(tree).__name__}; must be of {KEPT}")


def _check_form(tensor: Tensor, path: str) -> None:
    """Refuse a tensor that no array of numpy can hold."""
    if tensor.layout != torch.strided:
        raise StateTreeError(f"{path} is {tensor.layout}; must be a dense tensor")
    try:
        torch.empty(0, dtype=tensor.dtype).numpy()
    except TypeError as error:
        raise StateTreeError(
            f"{path} is {tensor.dtype}, which checkpoints can't hold; use torch.float32"
        ) from error


def _check_apart(tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors whose memory overlaps.

    Raises:
        StateTreeError: two do.
    """
    spans = []
    for path, tensor in tensors.items():
        if tensor.numel():
            last = sum(
                (n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)
            )
            start = tensor.data_ptr()
            spans.append((str(tensor.device), start, start + tensor.itemsize * (last + 1), path))
    spans.sort()
    for (device, _, end, path), (other_device, start, _, other) in pairwise(spans):
        if device == other_device and start < end:
            raise StateTreeError(f"{path} and {other} overlap in memory; clone one of them")


def unpack(packed: object, arrays: Mapping[str, NDArray[Any]]) -> Any:  # noqa: ANN401 (as packed)
    """What was packed, in new tensors; of a dataclass, its fields by name."""
    match packed:
        case {"tensor": path}:
            return torch.from_numpy(np.array(arrays[path]))
        case {"dict": items}:
            return {unpack(key, arrays): unpack(value, arrays) for key, value in items}
        case {"tuple": values}:
            return tuple(unpack(value, arrays) for value in values)
        case {"list": values}:
            return [unpack(value, arrays) for value in values]
        case {"fields": by_name}:
            return {name: unpack(value, arrays) for name, value in by_name.items()}
        case _:
            return packed


def restore_(target: object, packed: object, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Fill a dataclass with what was packed of one of its type."""
    for name, value in unpack(packed, arrays).items():
        setattr(target, name, value)
