"""Replaces the layers of any module by their 8-bit counterparts, where there is one.

Everything else stays in fp32 and is named: modules of other types, and functions and operators in a
`forward`, such as a plain `+`. Only exact types are replaced, as a subclass may compute something
else. Torch's composed modules (attention, recurrent layers) stay in fp32, since they read the
tensors of their parts instead of calling them. A layer with hooks stays in fp32, since its
counterpart would not call them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from torch import nn

from edgesim.models.children import named_places
from edgesim.models.eight_bit import EightBit
from edgesim.models.errors import ModelError
from edgesim.models.evonorm import EvoNormS0
from edgesim.models.layers import RepeatableMaxPool2d, ResidualSum
from edgesim.models.matrix_product import MatrixProduct
from edgesim.models.norms import BatchNormReLU
from edgesim.models.range_norms import RangeBatchNormReLU, RangeEvoNorm
from edgesim.quant.arithmetic import Geometry
from edgesim.quant.compact_max_pool import CompactMaxPool2d
from edgesim.quant.encoder_layers import (
    QuantizedEmbedding,
    QuantizedLayerNorm,
    QuantizedMatrixProduct,
)
from edgesim.quant.layers import QuantizedConv1d, QuantizedConv2d, QuantizedLinear, QuantizedSum
from edgesim.quant.norm_parameters import GatedNorm
from edgesim.quant.norms import QuantizedRangeBatchNorm, QuantizedRangeEvoNorm

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_WITHOUT_NUMBERS = (nn.Identity, nn.Flatten)
_WIDEST_WINDOW = 16  # of a pooling whose places fit a byte


def replace_layers_(module: nn.Module, layers: EightBit) -> tuple[nn.Module, tuple[str, ...]]:
    """Replace layers in place, by layers with the same parameters.

    Args:
        module: in fp32.
        layers: 8-bit arithmetic.

    Returns:
        The module or its replacement; and descriptions of its parts that stay in fp32.
    """
    places = Counter(id(found) for _, found in module.named_modules(remove_duplicate=False))
    replacing = _Replacing(layers, places)
    whole = replacing.visit(module, "")
    return whole, tuple(replacing.stays)


@dataclass(slots=True)
class _Replacing:
    """State of a replacement.

    Attributes:
        layers: 8-bit arithmetic.
        places: number of places of each module, by its identity.
        made: replacement of each module, by the identity of the module.
        stays: descriptions of parts that stay in fp32, in order.
    """

    layers: EightBit
    places: Mapping[int, int]
    made: dict[int, nn.Module] = field(default_factory=dict)
    stays: dict[str, None] = field(default_factory=dict)

    def visit(self, module: nn.Module, name: str) -> nn.Module:
        """Replace the layers of a module; return the module or its replacement."""
        if id(module) in self.made:
            return self.made[id(module)]
        new = _counterpart(module, self.layers)
        self.made[id(module)] = module if new is None else new
        if new is not None:
            _refuse_calls_(module, name)
            return new
        if type(module) in _CONTAINERS:
            if isinstance(module, nn.Sequential):
                self._replace_norms_before_relu_(module)
        else:
            own = type(module).__name__
            is_torchs = type(module).__module__.startswith("torch.nn.")
            if is_torchs or not any(module.children()):
                if not isinstance(module, _WITHOUT_NUMBERS):
                    self.stays[f"{name or 'the model'} ({own})"] = None
                return module
            self.stays[f"operators in the forward pass of {name or 'the model'} ({own})"] = None
        within = f"{name}." if name else ""
        for child_name, child in named_places(module):
            setattr(module, child_name, self.visit(child, within + child_name))
        return module

    def _replace_norms_before_relu_(self, sequence: nn.Sequential) -> None:
        """Replace each batch norm and the ReLU after it by Range BatchNorm, which has a ReLU.

        A batch norm that is used in several places stays in fp32: in some place a ReLU may be
        missing.
        """
        for place in range(len(sequence) - 1):
            norm, gate = sequence[place], sequence[place + 1]
            if (
                isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d)
                and type(norm) in (nn.BatchNorm1d, nn.BatchNorm2d)
                and _is_usual(norm)
                and type(gate) is nn.ReLU
                and self.places[id(norm)] == 1
                and not (_has_hooks(norm) or _has_hooks(gate))
            ):
                self.made[id(norm)] = _range_batch_norm(norm.weight, norm.bias, self.layers)
                _refuse_calls_(norm, f"place {place} of an nn.Sequential")
                sequence[place + 1] = nn.Identity()


def _is_usual(norm: nn.BatchNorm1d | nn.BatchNorm2d) -> bool:
    """Whether a batch norm has parameters, and its other options and statistics are the default.

    Range BatchNorm has none of these options, and its statistics are ranges, which begin anew.
    """
    if not (norm.affine and norm.track_running_stats and norm.running_mean is not None):
        return False
    assert norm.running_var is not None, "it has both"
    begins = not norm.running_mean.any() and bool((norm.running_var == 1).all())
    return begins and norm.eps == 1e-5 and norm.momentum == 0.1


def _counterpart(module: nn.Module, layers: EightBit) -> nn.Module | None:
    """The 8-bit layer with a layer's parameters; None if there is none."""
    if _has_hooks(module):
        return None
    if isinstance(module, nn.Conv1d | nn.Conv2d) and type(module) in (nn.Conv1d, nn.Conv2d):
        return _convolution(module, layers)
    if type(module) is nn.Linear:
        linear = QuantizedLinear(
            module.in_features,
            module.out_features,
            bias=module.bias is not None,
            arithmetic=layers.arithmetic,
            settings=layers.settings,
        )
        linear.weight, linear.bias = module.weight, module.bias
        return linear
    if type(module) is MatrixProduct:
        return QuantizedMatrixProduct(
            transposed=module.transposed, arithmetic=layers.arithmetic, settings=layers.settings
        )
    if type(module) is nn.LayerNorm:
        return _layer_norm(module, layers)
    if type(module) is nn.Embedding:
        return _embedding(module, layers)
    if type(module) is BatchNormReLU:
        return _range_batch_norm(module.weight, module.bias, layers)
    if type(module) is RangeBatchNormReLU:
        return _range_batch_norm(module.gamma, module.beta, layers)
    if type(module) in (EvoNormS0, RangeEvoNorm):
        return _range_evonorm(module, layers)
    if type(module) is ResidualSum:
        return QuantizedSum(layers.arithmetic, layers.settings)
    if type(module) in (nn.MaxPool2d, RepeatableMaxPool2d):
        return _max_pool(module)
    return None


def _has_hooks(module: nn.Module) -> bool:
    """Whether calling a module calls other code too, or instead."""
    kinds = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
    return "forward" in vars(module) or any(getattr(module, kind) for kind in kinds)


def _refuse_calls_(module: nn.Module, name: str) -> None:
    """Let a module that has been replaced refuse to be called by a reference that was not."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise ModelError(
            f"{name or 'the model'} ({type(module).__name__}) is also called by a reference that "
            "is no attribute of a module, such as in a list or tuple, and would stay in fp32 "
            "there: put such layers into an nn.ModuleList"
        )

    module.forward = refuse


def _convolution(conv: nn.Conv1d | nn.Conv2d, layers: EightBit) -> nn.Module | None:
    """The 8-bit convolution; None unless padded by zeros, alike on opposite sides."""
    padding = _padding(conv)
    if conv.padding_mode != "zeros" or padding is None:
        return None
    is_of_signals = isinstance(conv, nn.Conv1d)  # images of one row
    kernel, stride, paddings, dilation = (
        (row, sizes[0]) if is_of_signals else (sizes[0], sizes[1])
        for row, sizes in zip(
            (1, 1, 0, 1), (conv.kernel_size, conv.stride, padding, conv.dilation), strict=True
        )
    )
    new = (QuantizedConv1d if is_of_signals else QuantizedConv2d)(
        conv.in_channels,
        conv.out_channels,
        Geometry(kernel, stride, paddings, dilation, conv.groups),
        bias=conv.bias is not None,
        arithmetic=layers.arithmetic,
        settings=layers.settings,
    )
    new.weight, new.bias = conv.weight, conv.bias
    return new


def _padding(conv: nn.Conv1d | nn.Conv2d) -> tuple[int, ...] | None:
    """Zeros on each side, by axis; None if there are more on one side than on the other."""
    if not isinstance(conv.padding, str):
        return conv.padding
    if conv.padding == "valid":
        return (0,) * len(conv.kernel_size)
    in_all = [d * (k - 1) for k, d in zip(conv.kernel_size, conv.dilation, strict=True)]
    return None if any(size % 2 for size in in_all) else tuple(size // 2 for size in in_all)


def _layer_norm(norm: nn.LayerNorm, layers: EightBit) -> nn.Module | None:
    """The 8-bit layer norm; None unless over the last axis, with both parameters."""
    if len(norm.normalized_shape) != 1 or not norm.elementwise_affine or norm.bias is None:
        return None
    new = QuantizedLayerNorm(
        norm.normalized_shape[0],
        norm.eps,
        arithmetic=layers.arithmetic,
        settings=layers.settings,
    )
    new.weight, new.bias = norm.weight, norm.bias
    return new


def _embedding(table: nn.Embedding, layers: EightBit) -> nn.Module | None:
    """The 8-bit embedding; None if it renormalises or has sparse or scaled gradients."""
    if table.max_norm is not None or table.sparse or table.scale_grad_by_freq:
        return None
    new = QuantizedEmbedding(
        table.num_embeddings,
        table.embedding_dim,
        table.padding_idx,
        arithmetic=layers.arithmetic,
        settings=layers.settings,
    )
    new.weight = table.weight
    return new


def _range_batch_norm(
    gamma: nn.Parameter, beta: nn.Parameter, layers: EightBit
) -> QuantizedRangeBatchNorm:
    norm = QuantizedRangeBatchNorm(
        len(gamma), arithmetic=layers.arithmetic, settings=layers.settings
    )
    norm.gamma, norm.beta = gamma, beta
    return norm


def _range_evonorm(module: nn.Module, layers: EightBit) -> QuantizedRangeEvoNorm:
    assert isinstance(module, GatedNorm)
    norm = QuantizedRangeEvoNorm(
        len(module.gamma),
        groups=module.groups,
        arithmetic=layers.arithmetic,
        settings=layers.settings,
    )
    norm.gamma, norm.beta, norm.v = module.gamma, module.beta, module.v
    return norm


def _max_pool(pool: nn.Module) -> nn.Module | None:
    """The 8-bit pooling; None unless its windows are square and without gaps."""
    if isinstance(pool, nn.MaxPool2d):
        sizes = (pool.kernel_size, pool.stride, pool.padding)
        is_plain = pool.dilation == 1 and not pool.return_indices
        if not is_plain or not all(isinstance(size, int) for size in sizes):
            return None
    else:
        assert isinstance(pool, RepeatableMaxPool2d)
    kernel, stride, padding = pool.kernel_size, pool.stride, pool.padding
    assert isinstance(kernel, int)
    assert isinstance(stride, int)
    assert isinstance(padding, int)
    if kernel > _WIDEST_WINDOW:
        return None
    return CompactMaxPool2d(kernel, stride=stride, padding=padding, ceil_mode=pool.ceil_mode)
