"""Converts modules to `Layer`s: the table of module types that have counts.

A module that is not in the table may say by itself what it is: a layer by its attribute
`counts_as`, a kind of `Layer`; a block of layers by `forks`, whether its input goes on in two
branches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

from torch import Tensor, nn

from edgesim.costs.errors import CostError
from edgesim.costs.layer import Kind, Layer
from edgesim.models.classifier import ImageClassifier
from edgesim.models.dropout import SeededDropout
from edgesim.models.evonorm import EvoNormS0
from edgesim.models.layers import RepeatableMaxPool2d, ResidualSum
from edgesim.models.matrix_product import MatrixProduct
from edgesim.models.norms import BatchNormReLU, GroupNormReLU
from edgesim.models.own import OwnModel
from edgesim.models.range_norms import RangeBatchNormReLU, RangeEvoNorm
from edgesim.quant.arithmetic import Gate
from edgesim.quant.compact_max_pool import CompactMaxPool2d
from edgesim.quant.encoder_layers import (
    QuantizedEmbedding,
    QuantizedLayerNorm,
    QuantizedMatrixProduct,
)
from edgesim.quant.layers import (
    QuantizedConv1d,
    QuantizedConv2d,
    QuantizedLinear,
    QuantizedPlace,
    QuantizedSum,
)
from edgesim.quant.norm_parameters import GatedNorm
from edgesim.quant.norms import QuantizedRangeBatchNorm, QuantizedRangeEvoNorm

_KINDS: dict[type[nn.Module], Kind] = {
    nn.Conv1d: "convolution",
    nn.Conv2d: "convolution",
    QuantizedConv1d: "convolution",
    QuantizedConv2d: "convolution",
    nn.Linear: "linear",
    QuantizedLinear: "linear",
    BatchNormReLU: "batch_norm",
    GroupNormReLU: "group_norm",
    EvoNormS0: "evonorm_s0",
    RangeEvoNorm: "range_evonorm",
    QuantizedRangeEvoNorm: "range_evonorm",
    RangeBatchNormReLU: "range_batch_norm",
    QuantizedRangeBatchNorm: "range_batch_norm",
    nn.LayerNorm: "layer_norm",
    QuantizedLayerNorm: "layer_norm",
    MatrixProduct: "product",
    QuantizedMatrixProduct: "product",
    nn.Embedding: "embedding",
    QuantizedEmbedding: "embedding",
    ResidualSum: "residual_sum",
    QuantizedSum: "residual_sum",
    RepeatableMaxPool2d: "max_pool",
    CompactMaxPool2d: "compact_max_pool",
    SeededDropout: "dropout",
    nn.ReLU: "relu",
    nn.Flatten: "view",
    nn.Identity: "view",
}


@dataclass(frozen=True, slots=True)
class HookedModule:
    """A module at whose calls a layer is counted.

    Attributes:
        module: to be hooked.
        is_before: whether the layer runs before the modules inside.
        describe: makes the layer from the first input and the output (with `is_before`: the input
            again).
    """

    module: nn.Module
    is_before: bool
    describe: Callable[[Tensor, Tensor], Layer]


def modules_to_hook(model: nn.Module) -> list[HookedModule]:
    """All places of a model that compute something; the loss belongs to the model as a whole.

    Raises:
        CostError: a module of a type that has no counts.
    """
    found: list[HookedModule] = []
    _visit(model, "", found)
    found.append(HookedModule(model, False, partial(_plain_layer, "loss", "loss")))
    return found


def known_layers(model: OwnModel) -> dict[str, nn.Module]:
    """Layers of a model from outside that have closed forms, by their names within it."""
    return dict(_known_within(model.inner, ""))


def _known_within(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """Names of known layers; exact types only. Torch's composed modules are not searched."""
    if type(module) in _KINDS:
        yield name, module
        return
    if _is_composed_by_torch(module):
        return
    within = f"{name}." if name else ""
    for child, below in module.named_children():
        yield from _known_within(below, within + child)


def _is_composed_by_torch(module: nn.Module) -> bool:
    is_container = isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict)
    return type(module).__module__.startswith("torch.nn.") and not is_container


def measured_layers(model: OwnModel, measured: Collection[str]) -> tuple[str, ...]:
    """Modules of a model from outside that have no closed form, by name and type.

    Args:
        model: from outside.
        measured: names of the modules in it that run operations of their own.
    """
    known = known_layers(model)
    found = []
    for name, module in model.inner.named_modules():
        is_part = any(name == other or name.startswith(f"{other}.") for other in known)
        if is_part or name not in measured:
            continue
        found.append(f"{name or 'the model'} ({type(module).__name__})")
    return tuple(found)


def is_layer(module: nn.Module) -> bool:
    """Whether a module is one layer, whether or not it has submodules."""
    return _kind(module) is not None


def _kind(module: nn.Module) -> Kind | None:
    """What a module is as a layer: by the table, or by its own `counts_as`; None if it is none."""
    own: Kind | None = getattr(module, "counts_as", None)
    return _KINDS.get(type(module), own)


def _visit(module: nn.Module, name: str, found: list[HookedModule]) -> None:
    """Visit a module and its submodules.

    Only exact types count: a subclass may compute something else.
    """
    if _kind(module) is not None:
        found.append(HookedModule(module, False, partial(layer_of, name, module)))
        return
    prefix = f"{name}." if name else ""
    match module:
        case OwnModel():
            for within, layer in known_layers(module).items():
                found.append(HookedModule(layer, False, partial(_layer_of_places, within, layer)))
            return
        case ImageClassifier():
            copy = partial(_plain_layer, f"{prefix}images", "copy")
            average = partial(_average, f"{prefix}average")
            found.append(HookedModule(module.features, True, copy))
            found.append(HookedModule(module.features, False, average))
        case _ if hasattr(module, "forks"):
            if module.forks:
                fork = partial(_plain_layer, f"{prefix}fork", "fork")
                found.append(HookedModule(module, True, fork))
        case _ if type(module) is nn.Sequential:
            pass
        case _:
            raise CostError(
                f"{name or 'the model'}: modules of type {type(module).__name__} have no counts; "
                "give a block of layers the attribute forks, a layer counts_as"
            )
    for child, below in module.named_children():
        _visit(below, prefix + child, found)


def layer_of(name: str, module: nn.Module, x: Tensor, y: Tensor) -> Layer:
    """The layer that one call of a module computes."""
    kind, taps, groups, gate, num_weights = _kind(module), 1, 1, _gate(module), 0
    assert kind is not None, "only layers are described"
    match module:
        case nn.Conv1d() | nn.Conv2d():
            if x.dim() == 1 + len(module.kernel_size):  # no axis of samples
                x, y = x[None], y[None]
            taps, groups = prod(module.kernel_size), module.groups
            num_weights = module.weight.numel()
        case nn.Linear():
            num_weights = module.weight.numel()
        case CompactMaxPool2d():
            taps = module.kernel_size**2
        case nn.GroupNorm():
            groups = module.num_groups
        case GatedNorm():
            groups = module.groups
        case SeededDropout(p=0):
            kind = "view"
    quantizer = getattr(module, "input", getattr(module, "rows", None))
    # Of an embedding, rows in use are counted alone.
    own = () if isinstance(module, nn.Embedding) else module.parameters(recurse=False)
    return Layer(
        name=name,
        kind=kind,
        input_shape=tuple(x.shape),
        output_shape=tuple(y.shape),
        settings=quantizer.settings if isinstance(quantizer, QuantizedPlace) else None,
        taps=taps,
        is_unfolded=_is_unfolded(module),
        groups=groups,
        gate=gate,
        num_weights=num_weights,
        num_affine=sum(parameter.numel() for parameter in own) - num_weights,
        table_entries=module.weight.numel() if isinstance(module, nn.Embedding) else 0,
        needs_input_gradient=x.requires_grad,
        needs_weight_gradient=y.requires_grad and _trains(module),
    )


def _trains(module: nn.Module) -> bool:
    """Whether a layer has a parameter with a gradient; one without parameters counts as if."""
    own = list(module.parameters(recurse=False))
    return not own or any(parameter.requires_grad for parameter in own)


def _is_unfolded(module: nn.Module) -> bool:
    match module:
        case QuantizedConv1d() | QuantizedConv2d():
            return not module.geometry.is_square
        case _:
            return False


def _layer_of_places(name: str, module: nn.Module, x: Tensor, y: Tensor) -> Layer:
    """The layer of a call, like `layer_of`.

    A linear layer may have an input per position of a sequence.
    """
    if isinstance(module, nn.Linear):
        x, y = x.flatten(0, -2), y.flatten(0, -2)
    return layer_of(name, module, x, y)


def _gate(module: nn.Module) -> Gate | None:
    match module:
        case RangeEvoNorm():
            return module.gate
        case QuantizedRangeEvoNorm():
            return "hard_sigmoid"
        case _:
            return None


def _plain_layer(name: str, kind: Kind, x: Tensor, y: Tensor) -> Layer:
    """A layer without a module of its own. For the loss, x is the input of the model."""
    entries = y if kind == "loss" else x
    return Layer(
        name=name,
        kind=kind,
        input_shape=tuple(entries.shape),
        output_shape=tuple(entries.shape),
        needs_input_gradient=entries.requires_grad,
    )


def _average(name: str, _: Tensor, y_NFHW: Tensor) -> Layer:
    """The average over the image that follows the features of a classifier."""
    return Layer(
        name=name,
        kind="average",
        input_shape=tuple(y_NFHW.shape),
        output_shape=tuple(y_NFHW.shape[:2]),
        needs_input_gradient=y_NFHW.requires_grad,
    )
