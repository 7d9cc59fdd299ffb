"""Small networks whose steps are timed: stacks of equal layers, one kind of layer each.

The layers are those of models (models/layers.py), so a stack runs the code that training runs. The
sizes span those of the catalog's models, and most are between them: no model is timed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgesim.models.catalog import full_precision
from edgesim.models.classifier import ImageClassifier
from edgesim.models.dropout import SeededDropout
from edgesim.models.eight_bit import EightBit
from edgesim.models.layers import Layers
from edgesim.models.matrix_product import MatrixProduct
from edgesim.quant.arithmetic import Arithmetic, Geometry
from edgesim.quant.encoder_layers import (
    QuantizedEmbedding,
    QuantizedLayerNorm,
    QuantizedMatrixProduct,
)
from edgesim.quant.layers import QuantizedConv1d
from edgesim.quant.settings import QuantizationSettings

Sizes = Literal["full", "tiny"]
"""`tiny` is for tests: the same networks on tensors of a few hundred numbers."""

T = TypeVar("T")

_VOCABULARY = 5000


@dataclass(frozen=True, slots=True)
class MicroNetwork:
    """A stack of layers of one kind.

    Attributes:
        kind: of its layers, without their precision, for messages.
        make: makes the module.
        input_shape: of its input.
        trains_input: whether a gradient is taken at the input, as behind other layers.
        num_tokens: the input is whole numbers below this one; 0: it is floats.
        is_whole: the module is a model that ends with logits; its step has a loss and an update.
    """

    kind: str
    make: Callable[[], nn.Module]
    input_shape: tuple[int, ...]
    trains_input: bool = True
    num_tokens: int = 0
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Arithmetics:
    """How layers are made, in fp32 or in 8 bits.

    Attributes:
        backend: of 8-bit arithmetic; None for fp32.
        settings: of quantization.
    """

    backend: Arithmetic | None
    settings: QuantizationSettings

    def layers(self, norm: str) -> Layers:
        """Layers with a norm."""
        if self.backend is None:
            return full_precision(norm)
        return EightBit(norm, self.backend, self.settings, conv_bias=True)

    @property
    def norms(self) -> tuple[str, ...]:
        """Norms that have a form in this arithmetic and run the same code at all sizes."""
        if self.backend is not None:
            return ("range_evonorm", "range_batch")
        return ("batch", "group", "range_evonorm", "range_batch")

    def layer_norm(self, width: int) -> nn.Module:
        """Layer norm of the encoders of texts."""
        if self.backend is None:
            return nn.LayerNorm(width)
        return QuantizedLayerNorm(width, 1e-5, arithmetic=self.backend, settings=self.settings)

    def embedding(self, width: int) -> nn.Module:
        """Embedding of tokens."""
        if self.backend is None:
            return nn.Embedding(_VOCABULARY, width)
        return QuantizedEmbedding(
            _VOCABULARY, width, None, arithmetic=self.backend, settings=self.settings
        )

    def product(self) -> nn.Module:
        """Product of two activations, the second one transposed."""
        if self.backend is None:
            return MatrixProduct(transposed=True)
        return QuantizedMatrixProduct(
            transposed=True, arithmetic=self.backend, settings=self.settings
        )

    def signal_conv(self, channels: int, kernel: int, groups: int) -> nn.Module:
        """Convolution of signals in 8 bits that keeps their length."""
        assert self.backend is not None, "in fp32 they run the code of images"
        padding = kernel // 2
        return QuantizedConv1d(
            channels,
            channels,
            Geometry((1, kernel), (1, 1), (0, padding), (1, 1), groups),
            bias=True,
            arithmetic=self.backend,
            settings=self.settings,
        )


class _SumOfItself(nn.Module):
    """A residual block without layers: a fork, and the sum of its branches."""

    forks = True

    def __init__(self, layers: Layers) -> None:
        super().__init__()
        self.sum = layers.residual_sum()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.sum(x, x)
        return y


class _SquareOfItself(nn.Module):
    """The product of a matrix with itself, as attention has one."""

    forks = False

    def __init__(self, product: nn.Module) -> None:
        super().__init__()
        self.product = product

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.product(x, x)
        return y


class Operations(nn.Module):
    """Operations between the layers of an encoder: scale, sum, softmax, gelu, a copy."""

    def forward(self, x_NTC: Tensor) -> Tensor:
        """Shape of the input."""
        y_NTC = torch.softmax(x_NTC * 0.125 + 1.0, dim=-1)
        y_NTC = functional.gelu(y_NTC + x_NTC)
        return y_NTC.transpose(1, 2).contiguous().transpose(1, 2)


def micro_networks(arithmetics: Arithmetics, sizes: Sizes) -> Iterator[MicroNetwork]:
    """The networks of one precision, kinds in the order in which they are to be fitted."""
    plain = arithmetics.layers(arithmetics.norms[0])
    yield from _convolutions(plain, sizes)
    yield from _norms_and_sums(arithmetics, plain, sizes)
    yield from _of_texts(arithmetics, plain, sizes)
    if arithmetics.backend is None:
        yield from _float_alone(sizes)
    else:
        yield from _of_signals(arithmetics, sizes)


# Samples, channels, side of the image.
_SQUARE = (
    *((1, 16, 10), (1, 48, 40), (1, 96, 14), (1, 192, 20), (1, 384, 8)),
    *((8, 16, 20), (8, 48, 28), (8, 96, 14), (8, 192, 10), (8, 384, 6)),
    *((32, 16, 20), (32, 48, 20), (32, 96, 14), (32, 192, 6), (32, 384, 4), (8, 80, 56)),
    *((1, 384, 3), (8, 384, 3)),
)
# Samples, channels before and after, side.
_WIDER = (
    *((1, 24, 96, 28), (1, 48, 288, 14), (1, 384, 384, 8), (8, 24, 144, 24), (8, 48, 288, 14)),
    *((8, 384, 384, 8), (32, 48, 96, 14), (32, 48, 192, 14), (32, 384, 384, 6), (8, 320, 1280, 6)),
)
_DEPTHWISE = (
    *((1, 24, 28), (1, 384, 8), (8, 24, 28), (8, 144, 28), (8, 384, 8)),
    *((32, 48, 28), (32, 144, 14), (32, 384, 8), (8, 96, 56)),
)
_IMAGES = ((1, 28), (1, 112), (8, 28), (8, 112), (32, 28))
_TENSORS = (
    *((1, 24, 28), (1, 96, 40), (1, 384, 8), (8, 96, 14), (8, 24, 56)),
    *((32, 24, 28), (32, 96, 28), (32, 384, 4), (16, 96, 56)),
)
# Of images that are too small for the compiled EvoNorm-S0 (models/evonorm.py).
_SMALL_TENSORS = (
    *((1, 16, 8), (1, 384, 2), (8, 32, 4), (8, 96, 6), (8, 384, 2)),
    *((32, 16, 8), (32, 32, 4), (32, 96, 6), (32, 384, 2)),
)
# Samples, channels, length of a signal.
_SIGNALS = (
    *((1, 16, 128), (1, 64, 512), (1, 192, 128), (8, 16, 256), (8, 64, 128)),
    *((8, 192, 64), (32, 16, 128), (32, 64, 128), (32, 192, 32)),
)
# Rows, width.
_ROWS = (
    *((1, 384), (8, 384), (32, 384), (48, 384), (384, 384)),
    *((1536, 384), (1, 1024), (32, 1024), (384, 1024)),
)
_TEXTS = ((1, 48, 384), (8, 48, 384), (32, 48, 384), (8, 48, 1024))
# Samples, heads, tokens and width of a head.
_HEADS = ((1, 8, 48), (8, 8, 48), (16, 16, 48), (2, 8, 96))


def _convolutions(layers: Layers, sizes: Sizes) -> Iterator[MicroNetwork]:
    for n, c, side in _chosen(_SQUARE, ((1, 16, 4), (2, 16, 6), (2, 32, 4)), sizes):
        yield MicroNetwork("convolution", _stack(3, layers.conv, c, c, 3), (n, c, side, side))
    for n, c, d, side in _chosen(_WIDER, ((1, 8, 16, 4), (2, 16, 16, 4), (2, 8, 8, 6)), sizes):

        def there_and_back(c: int = c, d: int = d) -> nn.Module:
            pairs = [(layers.conv(c, d, 1), layers.conv(d, c, 1)) for _ in range(2)]
            return nn.Sequential(*(conv for pair in pairs for conv in pair))

        yield MicroNetwork("pointwise_convolution", there_and_back, (n, c, side, side))
    for n, c, side in _chosen(_DEPTHWISE, ((1, 8, 4), (2, 8, 6), (2, 16, 4)), sizes):

        def depthwise(c: int = c) -> nn.Module:
            return nn.Sequential(*(layers.conv(c, c, 3, groups=c) for _ in range(4)))

        yield MicroNetwork("depthwise_convolution", depthwise, (n, c, side, side))
    for n, side in _chosen(_IMAGES, ((1, 8), (2, 12)), sizes):
        for shape, stem in (
            ((n, 3, side, side), (3, 24, 3)),
            ((n, 3, 2 * side, 2 * side), (3, 48, 7)),
        ):

            def first(stem: tuple[int, int, int] = stem) -> nn.Module:
                return layers.conv(*stem, stride=1 if stem[2] == 3 else 2)

            yield MicroNetwork("first_convolution", first, shape, trains_input=False)


def _of_signals(arithmetics: Arithmetics, sizes: Sizes) -> Iterator[MicroNetwork]:
    make = arithmetics.signal_conv
    for n, c, length in _chosen(_SIGNALS, ((1, 8, 8), (2, 8, 16), (2, 16, 8)), sizes):
        shape = n, c, length
        yield MicroNetwork("unfolded_convolution", _stack(3, make, c, 5, 1), shape)
        yield MicroNetwork("unfolded_depthwise_convolution", _stack(3, make, c, 7, c), shape)


_NORM_KINDS = {
    "batch": "batch_norm",
    "group": "group_norm",
    "range_evonorm": "range_evonorm",
    "range_batch": "range_batch_norm",
}


def _norms_and_sums(
    arithmetics: Arithmetics, layers: Layers, sizes: Sizes
) -> Iterator[MicroNetwork]:
    for n, c, side in _chosen(_TENSORS, ((1, 8, 4), (2, 8, 8)), sizes):
        shape = n, c, side, side
        for norm in arithmetics.norms:
            own = arithmetics.layers(norm)
            yield MicroNetwork(_NORM_KINDS[norm], _stack(2, own.norm_act, c), shape)
        yield MicroNetwork("residual_sum", _stack(4, _SumOfItself, layers), shape)

        def pool() -> nn.Module:
            return layers.max_pool(2, stride=2)

        def wide_pool() -> nn.Module:
            return layers.max_pool(3, stride=2, padding=1)

        yield MicroNetwork("max_pool", pool, shape)
        yield MicroNetwork("max_pool", wide_pool, shape)


def _of_texts(arithmetics: Arithmetics, layers: Layers, sizes: Sizes) -> Iterator[MicroNetwork]:
    for rows, width in _chosen(_ROWS, ((1, 16), (4, 32)), sizes):
        yield MicroNetwork("linear", _stack(3, layers.linear, width, width), (rows, width))
    for n, t, width in _chosen(_TEXTS, ((1, 4, 16), (2, 4, 32)), sizes):
        yield MicroNetwork("layer_norm", _stack(3, arithmetics.layer_norm, width), (n, t, width))
        yield MicroNetwork(
            "embedding",
            _stack(1, arithmetics.embedding, width),
            (n, t),
            trains_input=False,
            num_tokens=_VOCABULARY,
        )
    for n, heads, t in _chosen(_HEADS, ((1, 2, 4), (2, 2, 8)), sizes):

        def squares() -> nn.Module:
            return nn.Sequential(*(_SquareOfItself(arithmetics.product()) for _ in range(2)))

        yield MicroNetwork("product", squares, (n, heads, t, t))


def _float_alone(sizes: Sizes) -> Iterator[MicroNetwork]:
    evonorm = full_precision("evonorm_s0").norm_act
    large, small = ((1, 16, 16), (2, 16, 16)), ((1, 8, 4), (2, 8, 8))
    for n, c, side in _chosen(_TENSORS, large, sizes):
        yield MicroNetwork("evonorm_s0", _stack(2, evonorm, c), (n, c, side, side))
    for n, c, side in _chosen(_SMALL_TENSORS, small, sizes):
        yield MicroNetwork("small_evonorm_s0", _stack(2, evonorm, c), (n, c, side, side))
    for n, c, side in _chosen(_TENSORS, ((1, 8, 4), (2, 8, 8)), sizes):
        yield MicroNetwork("dropout", _stack(3, SeededDropout, 0.1), (n, c, side, side))
        yield MicroNetwork("relu", _stack(4, nn.ReLU), (n, c, side, side))
    for shape in _chosen(_TEXTS, ((1, 4, 16), (2, 4, 32)), sizes):
        yield MicroNetwork("operation", Operations, shape)
    for n, c, side in _chosen(_TENSORS[:6], ((1, 8, 4), (2, 8, 8)), sizes):

        def classifier(c: int = c) -> nn.Module:
            return ImageClassifier(nn.Identity(), nn.Linear(c, 10))

        yield MicroNetwork(
            "ends", classifier, (n, c, side, side), trains_input=False, is_whole=True
        )


def _stack(
    depth: int, make: Callable[..., nn.Module], *arguments: object
) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(*(make(*arguments) for _ in range(depth)))


def _chosen(full: tuple[T, ...], tiny: tuple[T, ...], sizes: Sizes) -> tuple[T, ...]:
    return full if sizes == "full" else tiny
