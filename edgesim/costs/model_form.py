"""Identification of the model whose costs are counted."""

from __future__ import annotations

from dataclasses import dataclass

from edgesim.quant.arithmetic import Gate
from edgesim.quant.settings import QuantizationSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelForm:
    """A model and its arithmetic.

    Attributes:
        name: as in the catalog.
        image_shape: channels, height and width; or the shape of an input that is no image.
        num_classes: logits.
        norm: after each convolution; None in a model of one's own.
        settings: of 8-bit arithmetic; None for fp32.
        gate: of Range EvoNorm in fp32; the 8-bit one's is the hard sigmoid.
        conv_bias: whether convolutions have biases where the architecture has them.
        depth: layers of a ResNet of free size.
        width: channels of its first stage.
    """

    name: str
    image_shape: tuple[int, ...]
    num_classes: int
    norm: str | None
    settings: QuantizationSettings | None
    gate: Gate = "sigmoid"
    conv_bias: bool = True
    depth: int = 20
    width: int = 16
