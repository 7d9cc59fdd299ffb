"""Batches that a caller gives a trained model: tensors or arrays of numpy, of the right form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from edgesim.assembly.build import DataSpec

_PAIR = "must be a list of pairs: [(inputs, targets)]"


class GivenBatches:
    """The batches as tensors, with inputs of the type that the model takes.

    Sizes may differ from those of the run: many models take texts of any length and images of any
    size. Batches without samples are left out.

    Args:
        batches: each a pair of inputs and targets.
        data: what the model was made for.
        are_classes: whether targets are the numbers of classes.

    Attributes:
        unlike: says of the batch that is in use which sizes it has, and which it should have; empty
            if they are those of the run, or no batch is in use.
    """

    def __init__(self, batches: Iterable[object], data: DataSpec, *, are_classes: bool) -> None:
        self.batches, self.data, self.are_classes = batches, data, are_classes
        self.unlike = ""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Raises ValueError: a batch has another form; the message says which is due."""
        try:
            batches = iter(self.batches)
        except TypeError as error:
            raise ValueError(f"batches is {_said(self.batches)}; {_PAIR}") from error
        for place, batch in enumerate(batches):
            name = f"batches[{place}]"
            inputs, targets = self._checked(name, batch)
            if not len(inputs):
                continue
            if tuple(inputs.shape[1:]) != self.data.image_shape:
                self.unlike = _other_form(name, inputs, self.data)
            yield inputs, targets
            self.unlike = ""

    def _checked(self, name: str, batch: object) -> tuple[Tensor, Tensor]:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise ValueError(f"{name} is {_said(batch)}; batches {_PAIR}")
        inputs, targets = map(_as_tensor, batch)
        if inputs is None or targets is None:
            of = " and ".join(map(_said, batch))
            raise ValueError(f"{name} is {of}; must be two tensors, or arrays of numpy")
        dtype = getattr(torch, self.data.input_dtype)
        is_alike = _kind(inputs.dtype) == _kind(dtype)
        if not is_alike or inputs.ndim != 1 + len(self.data.image_shape):
            raise ValueError(_other_form(name, inputs, self.data))
        if not targets.ndim or len(targets) != len(inputs):
            raise ValueError(
                f"{name} has {len(inputs)} inputs, but its targets are {_said(targets)}; must be "
                "one for each input"
            )
        if self.are_classes:
            _check_classes(name, targets, self.data.num_classes)
        return inputs.to(dtype), targets


def _kind(dtype: torch.dtype) -> str:
    if dtype.is_floating_point:
        return "float"
    return "other" if dtype.is_complex or dtype == torch.bool else "integer"


def _other_form(name: str, inputs: Tensor, data: DataSpec) -> str:
    sizes = ", ".join(map(str, data.image_shape))
    how = ""
    if data.mean and inputs.dtype == torch.uint8:
        how = ", which are (bytes / 255 - mean) / std"
    return (
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
    """A tensor on the CPU, where the model is; None of what is neither tensor nor numbers."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return torch.tensor(value)
    return value.cpu() if isinstance(value, Tensor) and not value.is_meta else None


def _said(value: object) -> str:
    if isinstance(value, Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        where = " without values" if value.is_meta else ""
        return f"a tensor of {dtype} and shape {tuple(value.shape)}{where}"
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} and shape {value.shape}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"an object of type {type(value).__name__}"
