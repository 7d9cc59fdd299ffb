"""A layer in one step, described by shapes: enough to count its work and memory.

Two sources give the same layers: hooks on a model while it trains (`work_meter.py`), and a model
that passes on shapes alone (`shapes_alone.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from edgesim.quant.arithmetic import Gate
from edgesim.quant.settings import QuantizationSettings

Kind = Literal[
    "convolution",
    "linear",
    "batch_norm",
    "group_norm",
    "evonorm_s0",
    "range_evonorm",
    "range_batch_norm",
    "layer_norm",
    "product",
    "embedding",
    "residual_sum",
    "fork",
    "max_pool",
    "compact_max_pool",
    "average",
    "dropout",
    "relu",
    "copy",
    "view",
    "loss",
]
"""A `fork` is the start of the two branches of a residual block. A `copy` copies the images into
the memory layout of the convolutions. A `view` computes nothing. A `product` is that of two
activations, of which a `Layer` has the first as input.
"""

PRODUCT_KINDS: frozenset[Kind] = frozenset({"convolution", "linear"})
"""The kinds whose work is multiply-accumulates."""

NORM_KINDS: frozenset[Kind] = frozenset(
    {"batch_norm", "group_norm", "evonorm_s0", "range_evonorm", "range_batch_norm", "layer_norm"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer as it runs in a step; a norm includes its nonlinearity if it has one.

    Attributes:
        name: name of its module in the model.
        kind: what it does.
        input_shape: samples first, then channels; of each of its inputs, if there are two.
        output_shape: likewise.
        settings: of its 8-bit arithmetic; None for fp32.
        taps: entries of the window of a convolution or a pooling; otherwise 1.
        is_unfolded: whether it is an 8-bit convolution of patches, whose window is no square.
        groups: of channels, in convolutions and in norms that have groups; otherwise 1.
        gate: of Range EvoNorm.
        num_weights: entries of the weight tensor of a convolution or a linear layer.
        num_affine: entries of its bias, or of all parameters of a norm.
        table_entries: entries of the table of an embedding, of which a step uses a few.
        needs_input_gradient: whether a layer before it has parameters to train.
        needs_weight_gradient: whether it has such parameters itself.
    """

    name: str
    kind: Kind
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    settings: QuantizationSettings | None = None
    taps: int = 1
    is_unfolded: bool = False
    groups: int = 1
    gate: Gate | None = None
    num_weights: int = 0
    num_affine: int = 0
    table_entries: int = 0
    needs_input_gradient: bool = True
    needs_weight_gradient: bool = True

    @property
    def input_entries(self) -> int:
        """Entries of (each) input."""
        return prod(self.input_shape)

    @property
    def output_entries(self) -> int:
        """Entries of the output."""
        return prod(self.output_shape)

    @property
    def starts_shortcut(self) -> bool:
        """Whether the layer is the first on the shortcut of a residual block, by its name."""
        return self.name.endswith(".shortcut.0")
