"""Batches that a caller gives a trained model: tensors or arrays of numpy, of the right form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from edgesim.assembly.build import DataSpec

_PAIR = "must be a list of pairs: [(inputs, targets)]"


def checked_batches(
    batches: Iterable[object], data: DataSpec, *, are_classes: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches as tensors.

    Args:
        batches: each a pair of inputs and targets.
        data: what the model was made for.
        are_classes: whether targets are the numbers of classes.

    Raises:
        ValueError: one has another form; the message says which and what it must be.
    """
    for place, batch in enumerate(batches):
        name = f"batches[{place}]"
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise ValueError(f"{name} is {_said(batch)}; batches {_PAIR}")
        inputs, targets = map(_as_tensor, batch)
        if inputs is None or targets is None:
            of = " and ".join(map(_said, batch))
            raise ValueError(f"{name} is {of}; must be two tensors, or arrays of numpy")
        _check_inputs(name, inputs, data)
        if not targets.ndim or len(targets) != len(inputs):
            raise ValueError(
                f"{name} has {len(inputs)} inputs, but its targets are {_said(targets)}; must be "
                "one for each input"
            )
        if are_classes:
            _check_classes(name, targets, data.num_classes)
        yield inputs, targets


def _check_inputs(name: str, inputs: Tensor, data: DataSpec) -> None:
    dtype = getattr(torch, data.input_dtype)
    if inputs.dtype == dtype and tuple(inputs.shape[1:]) == data.image_shape and inputs.ndim:
        return
    sizes = ", ".join(map(str, data.image_shape))
    how = ""
    if data.mean and inputs.dtype == torch.uint8:
        how = ", which are (bytes / 255 - mean) / std"
    raise ValueError(
        f"the inputs of {name} are {_said(inputs)}; must be {data.input_dtype} of shape "
        f"(samples, {sizes}){how}"
    )


def _check_classes(name: str, targets: Tensor, num_classes: int) -> None:
    wanted = f"must be int64 of shape (samples,), classes from 0 to {num_classes - 1}"
    if targets.dtype != torch.int64 or targets.ndim != 1:
        raise ValueError(f"the targets of {name} are {_said(targets)}; {wanted}")
    wrong = targets[(targets < 0) | (targets >= num_classes)]
    if len(wrong):
        raise ValueError(f"a target of {name} is {int(wrong[0])}; {wanted}")


def _as_tensor(value: object) -> Tensor | None:
    """A tensor, or an array of numbers as one; None of anything else."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return torch.tensor(value)
    return value if isinstance(value, Tensor) else None


def _said(value: object) -> str:
    if isinstance(value, Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"a tensor of {dtype} and shape {tuple(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} and shape {value.shape}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"an object of type {type(value).__name__}"
