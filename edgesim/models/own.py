"""Models from outside of edgesim: any `torch.nn.Module`, made to train repeatably.

A device copies its vectors into such a model, and reads them back after each step
(`learning/flat_model.py`). So a step must depend only on parameters, floating-point buffers, batch
and seed. Modules with other state are refused, and random numbers of modules are seeded for each
device and round.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from edgesim.errors import EdgesimError
from edgesim.models import global_random
from edgesim.models.children import named_places
from edgesim.models.dropout import SeededDropout, seed_dropout_
from edgesim.models.eight_bit import EightBit
from edgesim.models.errors import ModelError
from edgesim.models.in_eight_bits import replace_layers_
from edgesim.models.layers import Layers
from edgesim.quant.layers import InputQuantizer, name_layers_

_DRAWS_LATE = (
    "a step drew from torch's global generator, but the step at the start did not; "
    "let every step of training draw, or none"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnModelKind:
    """A model that was found by name.

    Attributes:
        name: as the scenario has it, for messages.
        make: called with the shape of one input and the number of outputs; gives an `nn.Module`.
    """

    name: str
    make: Callable[[tuple[int, ...], int], object]

    def construct(self, input_shape: tuple[int, ...], num_classes: int, seed: int) -> nn.Module:
        """Make the module and replace its dropout by one with masks from the step's seed.

        Raises:
            ModelError: it can't be made, or it holds tensors that devices can't take over.
        """
        with global_random.seeded(seed):
            try:
                module = self.make(input_shape, num_classes)
            except EdgesimError:
                raise
            except Exception as error:
                raise ModelError(
                    f"{self.name} can't be made with input_shape={input_shape} and "
                    f"num_classes={num_classes}: {type(error).__name__}: {error}"
                ) from error
        if not isinstance(module, nn.Module):
            raise ModelError(
                f"{self.name} gives an object of type {type(module).__name__}; it must give a "
                "torch.nn.Module"
            )
        _check_tensors(self.name, module)
        return _with_seeded_dropout(module).cpu()


class OwnModel(nn.Module):
    """A module from outside, whose random numbers follow from the seed of the step.

    Args:
        kind: the constructor by which it was made.
        inner: the module; with precision int8, after the replacement of its layers.
        make_plain: makes the module again in fp32, for the measurement of its costs.
        stays_fp32: descriptions of parts that stay in fp32 with precision int8.
        example: a batch of inputs, used to find out whether a step draws random numbers.

    Raises:
        ModelError: its forward or backward pass fails on the example.
    """

    def __init__(
        self,
        kind: OwnModelKind,
        inner: nn.Module,
        make_plain: Callable[[], nn.Module],
        stays_fp32: tuple[str, ...],
        example: Tensor,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.inner = inner
        self.make_plain = make_plain
        self.stays_fp32 = stays_fp32
        self.input_dtype = example.dtype
        tried = _tried(kind.name, make_plain(), example)
        self.step_seed = global_random.StepSeed() if tried.draws else None
        self.frozen_names = frozenset(f"inner.{key}" for key in _frozen(inner, tried.mixed))
        parameters = dict(self.named_parameters())
        self._frozen = [(key, parameters[key]) for key in sorted(self.frozen_names)]

    def forward(self, inputs: Tensor) -> Tensor:
        """Output of the module for a batch."""
        if self.step_seed is not None and not self.training:  # training is seeded by whole steps
            with global_random.seeded(self.step_seed.seed):
                return self._called(inputs)
        return self._called(inputs)

    @contextmanager
    def around_step(self) -> Iterator[None]:
        """Context of one training step, including its backward pass.

        Raises:
            ModelError: the step draws random numbers, or changes a parameter without a gradient,
                which the example did not.
        """
        frozen = [_state(p) for _, p in self._frozen]
        if self.step_seed is not None:
            with global_random.seeded(self.step_seed.seed):
                yield
        else:
            before = global_random.state()
            yield
            if before != global_random.state():
                raise ModelError(f"{self.kind.name}: {_DRAWS_LATE}")
        for (key, p), state in zip(self._frozen, frozen, strict=True):
            if _state(p) != state:
                raise ModelError(
                    f"{self.kind.name}: a step changed {key.removeprefix('inner.')}, a parameter "
                    "without a gradient, but the step at the start did not; let every step of "
                    "training change it, or none"
                )

    def _called(self, inputs: Tensor) -> Tensor:
        output = self.inner(inputs)
        if not isinstance(output, Tensor):
            raise ModelError(
                f"{self.kind.name} gives an object of type {type(output).__name__} for a batch; "
                "it must give one tensor"
            )
        return output


@dataclass(frozen=True, slots=True)
class _Tried:
    """What a step did.

    Attributes:
        draws: whether it drew from torch's global generator.
        mixed: names of parameters without a gradient that it changed: statistics.
    """

    draws: bool
    mixed: frozenset[str]


def _tried(name: str, module: nn.Module, example: Tensor) -> _Tried:
    """Take a step; do not use the module afterwards."""
    seed_dropout_(module, 0)
    frozen = {key: p for key, p in module.named_parameters() if not p.requires_grad}
    with torch.no_grad():  # as after some steps: an average of parameters moves only then
        for p in module.parameters():
            if p.requires_grad:
                p.add_(0.01)
    before = {key: (p.clone(), *_state(p)) for key, p in frozen.items()}
    with global_random.seeded(0):
        generator = global_random.state()
        try:
            output = module.train()(example)
            if isinstance(output, Tensor) and output.requires_grad:
                output.sum().backward()
            module.eval()(example)
        except EdgesimError:
            raise
        except Exception as error:
            raise ModelError(
                f"{name} fails on a batch of shape {tuple(example.shape)}, {example.dtype}: "
                f"{type(error).__name__}: {error}{_remedy_of_type(example, error)}"
            ) from error
        draws = generator != global_random.state()
    mixed = (
        key
        for key, p in frozen.items()
        if _state(p) != before[key][1:] or not torch.equal(p, before[key][0])
    )
    return _Tried(draws, frozenset(mixed))


def _state(parameter: Tensor) -> tuple[int, int]:
    """Place and number of changes of a tensor, of which its `data` hides some."""
    return parameter.data_ptr(), parameter._version  # noqa: SLF001 (no public name)


def _frozen(module: nn.Module, mixed: Container[str]) -> Iterator[str]:
    """Names of parameters that nothing changes, as of frozen layers.

    Gossip would send them, and lossy compression would change them.

    Args:
        module: the whole.
        mixed: names of parameters without a gradient that a step changes: devices mix these.
    """
    for key, parameter in module.named_parameters():
        owner = module.get_submodule(key.rpartition(".")[0])
        is_range = isinstance(owner, InputQuantizer)  # ranges may be gossiped
        if not parameter.requires_grad and key not in mixed and not is_range:
            yield key


def _remedy_of_type(example: Tensor, error: Exception) -> str:
    """What to do where torch complains of whole numbers; empty for other errors."""
    if example.dtype != torch.int64 or not re.search(r"\blong\b|int64", str(error), re.IGNORECASE):
        return ""
    return (
        "\nwhole numbers reach the model as int64, as tokens do; give x.astype('float32'), or "
        "images as bytes of shape (N, H, W, C)"
    )


def build_own_model(
    kind: OwnModelKind,
    *,
    input_shape: tuple[int, ...],
    num_classes: int,
    layers: Layers,
    seed: int,
    example: Tensor,
) -> OwnModel:
    """An initialised model with fp32 parameters, on the CPU, in training mode.

    Args:
        kind: constructor of the module.
        input_shape: of one sample: channels, height and width of images.
        num_classes: entries of an output.
        layers: the arithmetic.
        seed: of the initial parameters, in [0, 2**63).
        example: a batch of inputs.

    Raises:
        ModelError: the module can't be made or can't be trained repeatably.
    """

    def make_plain() -> nn.Module:
        return kind.construct(input_shape, num_classes, seed)

    inner = make_plain()
    stays_fp32: tuple[str, ...] = ()
    if isinstance(layers, EightBit):
        with global_random.seeded(seed):  # constructors of layers draw values that are not used
            inner, stays_fp32 = replace_layers_(inner, layers)
    name_layers_(inner)
    return OwnModel(kind, inner, make_plain, stays_fp32, example)


def check_construction(model: OwnModel) -> None:
    """Refuse a module whose initial values do not follow from torch's global generator alone.

    Raises:
        ModelError: two constructions from one seed differ.
    """
    first, second = (model.make_plain().state_dict() for _ in range(2))
    for name, value in first.items():
        if name not in second or not _equal_bits(value, second[name]):
            raise ModelError(
                f"{model.kind.name}: {name} differs between two constructions from one seed; draw "
                "initial values from torch's global generator alone"
            )


def _equal_bits(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()


def _check_tensors(name: str, module: nn.Module) -> None:
    """Refuse tensors that cannot be part of one flat float32 vector."""
    parameters = list(module.named_parameters())
    if not any(parameter.requires_grad for _, parameter in parameters):
        raise ModelError(f"{name} has no parameter to train; register them in its constructor")
    for key, tensor in parameters:
        if isinstance(tensor, UninitializedParameter):
            raise ModelError(
                f"{name}: the shape of {key} is not known before a batch; give lazy layers sizes"
            )
        if tensor.dtype != torch.float32 or not tensor.numel():
            raise ModelError(
                f"{name}: the parameter {key} is {tensor.dtype} of shape {tuple(tensor.shape)}; "
                "it must be float32, with at least one entry"
            )
    seen: set[int] = set()
    for owner_name, owner in module.named_modules():
        for key, buffer in owner.named_buffers(recurse=False):
            where = f"{owner_name}.{key}".removeprefix(".")
            if buffer.is_floating_point() and buffer.dtype != torch.float32:
                raise ModelError(
                    f"{name}: the buffer {where} is {buffer.dtype}; it must be float32"
                )
            if id(buffer) in seen:
                raise ModelError(f"{name}: the buffer {where} is that of another module too")
            seen.add(id(buffer))
        if getattr(owner, "momentum", 0.1) is None and hasattr(owner, "num_batches_tracked"):
            raise ModelError(
                f"{name}: {owner_name} averages over a number of batches, which devices do not "
                "keep; give it a momentum"
            )


def _with_seeded_dropout(module: nn.Module) -> nn.Module:
    """The module, each `nn.Dropout` replaced by one whose masks come from the step's seed."""
    if type(module) is nn.Dropout and module.p < 1:
        return SeededDropout(module.p, inplace=module.inplace)
    made: dict[nn.Module, SeededDropout] = {}
    for owner in list(module.modules()):
        if type(owner).__module__.startswith("torch.nn.modules.") and not isinstance(
            owner, nn.Sequential | nn.ModuleList | nn.ModuleDict
        ):
            continue  # torch's composed modules may read their parts
        for name, child in named_places(owner):
            if type(child) is nn.Dropout and child.p < 1:
                if child not in made:
                    made[child] = SeededDropout(child.p, inplace=child.inplace)
                setattr(owner, name, made[child])
    return module
