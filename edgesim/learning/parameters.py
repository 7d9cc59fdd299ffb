"""Parameters as one flat vector, and the layout that finds each tensor in it.

Gossip state, messages and optimizers work on flat vectors of shape (D,); only the forward and
backward pass sees named tensors. Both ends of an edge must have the same layout.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn


def trainable_first(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Parameters of a model in the order of its flat vector, each with its name.

    Those that have a gradient come first; the others are statistics that devices mix, too. Those
    that nothing changes, the model's `frozen_names`, are left out.
    """
    frozen = getattr(model, "frozen_names", ())
    named = [
        (name, parameter) for name, parameter in model.named_parameters() if name not in frozen
    ]
    return sorted(named, key=lambda pair: not pair[1].requires_grad)


@dataclass(frozen=True)
class ParameterLayout:
    """Names and shapes of the parameter tensors of a model, in their order in the flat vector.

    Raises:
        ValueError: a tensor without entries, or names and shapes of different number.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.shapes):
            raise ValueError(f"{len(self.names)} names for {len(self.shapes)} shapes")
        if not self.shapes or min(self.sizes) < 1:
            raise ValueError("a layout needs at least one tensor, each with at least one entry")

    @classmethod
    def of(cls, named_tensors: Iterable[tuple[str, Tensor]]) -> ParameterLayout:
        """Layout of tensors such as `model.named_parameters()`, in the given order."""
        pairs = [(name, tuple(tensor.shape)) for name, tensor in named_tensors]
        return cls(tuple(name for name, _ in pairs), tuple(shape for _, shape in pairs))

    @classmethod
    def from_shapes(cls, shapes: Sequence[Sequence[int]]) -> ParameterLayout:
        """Layout of unnamed tensors, for tests and synthetic problems."""
        return cls(tuple(f"t{i}" for i in range(len(shapes))), tuple(map(tuple, shapes)))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Entries of each tensor."""
        return tuple(prod(shape) for shape in self.shapes)

    @cached_property
    def size_array(self) -> NDArray[np.int64]:
        """`sizes` as an array, shape (T,); shared, so do not change it."""
        sizes = np.array(self.sizes, np.int64)
        sizes.flags.writeable = False
        return sizes

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Start of each tensor in the flat vector, then its end: shape (num_tensors + 1,)."""
        return np.concatenate(([0], np.cumsum(self.sizes))).astype(np.int64)

    @property
    def num_tensors(self) -> int:
        """How many tensors there are."""
        return len(self.shapes)

    @cached_property
    def numel(self) -> int:
        """D, the length of the flat vector."""
        return sum(self.sizes)

    @cached_property
    def digest(self) -> int:
        """CRC-32 of the shapes, by which the ends of an edge check that their models agree."""
        return zlib.crc32(repr(self.shapes).encode("ascii"))

    def split(self, flat: Tensor) -> list[Tensor]:
        """Views of a vector of shape (D,), one per tensor, each flat."""
        return list(flat.split(self.sizes))

    def unflatten(self, flat: Tensor) -> list[Tensor]:
        """Views of a vector of shape (D,), one per tensor, in the tensors' shapes."""
        return [part.view(shape) for part, shape in zip(self.split(flat), self.shapes, strict=True)]
