"""What a model of the catalog says of itself, beside its file of layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from edgesim.models.layers import Layers

ImageShape = tuple[int, int, int]  # channels, height, width


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Of a model that has no fixed one.

    Attributes:
        depth: layers of a ResNet; None: 20.
        width: channels of its first stage; None: 16.
    """

    depth: int | None = None
    width: int | None = None

    @property
    def depth_used(self) -> int:
        """Layers."""
        return 20 if self.depth is None else self.depth

    @property
    def width_used(self) -> int:
        """Channels of the first stage."""
        return 16 if self.width is None else self.width


FIXED_SIZE = ModelSize()


class MakeModel(Protocol):
    """Constructs a model."""

    def __call__(
        self, layers: Layers, image: ImageShape, num_classes: int, size: ModelSize, /
    ) -> nn.Module:
        """From layers, image shape, number of classes and size."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelKind:
    """How a model is made, and which images it takes.

    Attributes:
        make: constructs it.
        min_side: least height and width in pixels.
        last_norm_stride: pixels of the image per pixel of the map that its last norm sees.
        initialize_low_precision_: changes the initialisation to that of the reference code's
            low-precision model; None: it has no other.
    """

    make: MakeModel
    min_side: int
    last_norm_stride: int
    initialize_low_precision_: Callable[[nn.Module, torch.Generator], None] | None = None
