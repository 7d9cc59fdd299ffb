"""Counts the work of training steps from the layers that run.

Hooks record the shapes of each layer's input and output during one forward pass. The work of the
backward pass follows from these shapes, and from whether the input needs a gradient (that of the
first layer does not). A device meters its first step of each batch shape and looks later ones up:

    with meter.watch(images.shape):
        loss, gradient = model.loss_and_gradient(images, labels)
    work = meter.work(images.shape).total
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from edgesim.costs.describe import HookedModule, known_layers, modules_to_hook
from edgesim.costs.errors import CostError
from edgesim.costs.layer import Layer
from edgesim.costs.layer_work import StepWork
from edgesim.costs.measured import measured_work
from edgesim.hardware.work import Work
from edgesim.learning.flat_model import FlatModel
from edgesim.models.own import OwnModel
from edgesim.quant.backward_pass import in_backward_pass


class WorkMeter:
    """Work of one model's training steps, by the shape of the batch.

    Args:
        model: is given hooks while its first step of a shape is counted, and none otherwise.

    Raises:
        CostError: the model has a module whose work is unknown.
    """

    def __init__(self, model: FlatModel) -> None:
        self._model = model.model
        self._hooked = modules_to_hook(model.model)
        self._work_by_shape: dict[tuple[int, ...], StepWork] = {}
        self.measured_parts: frozenset[str] = frozenset()
        """Names of modules with operations of their own that were measured; or of known layers."""

    def watch(self, images_shape: Sequence[int]) -> AbstractContextManager[None]:
        """Context in which the caller runs exactly one training step on a batch of that shape.

        Does nothing for a shape that was counted before.

        Raises:
            CostError: at the end of the context, unless exactly one forward pass in training was
                run on that shape. An error of the step is passed on, and the shape stays unknown.
        """
        shape = tuple(images_shape)
        return nullcontext() if shape in self._work_by_shape else self._watch(shape)

    def work(self, images_shape: Sequence[int]) -> StepWork:
        """Work of one step on a batch of a shape that was hooked.

        Raises:
            CostError: it was not.
        """
        shape = tuple(images_shape)
        if shape not in self._work_by_shape:
            raise CostError(f"no step on a batch of {shape} was hooked; wrap one in watch()")
        return self._work_by_shape[shape]

    @contextmanager
    def _watch(self, shape: tuple[int, ...]) -> Iterator[None]:
        layers: list[Layer] = []
        is_own = isinstance(self._model, OwnModel)
        handles = [hook(hooked, layers, may_be_frozen=is_own) for hooked in self._hooked]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
        passes = [layer for layer in layers if layer.kind == "loss"]
        if len(passes) != 1 or passes[0].input_shape[0] != shape[0]:
            raise CostError(
                f"{len(passes)} forward passes were hooked; it must be one, on a batch of {shape}"
            )
        self._work_by_shape[shape] = StepWork.of(layers, self._measured(shape))

    def _measured(self, shape: tuple[int, ...]) -> Work:
        """Work that has no closed form; there is none in the models of the catalog."""
        if not isinstance(self._model, OwnModel):
            return Work()
        known = frozenset(known_layers(self._model))
        measured = measured_work(self._model, known, shape)
        self.measured_parts |= measured.parts
        return measured.total


def hook(
    hooked: HookedModule, layers: list[Layer], *, may_be_frozen: bool = False
) -> RemovableHandle:
    """Append a layer for each call of a module.

    Args:
        hooked: the module.
        layers: are appended to.
        may_be_frozen: whether a step may call it without a gradient or in evaluation mode, as a
            model of one's own does with layers that it does not train.
    """
    has_gradient = False

    def note(x: Tensor, y: Tensor) -> None:
        nonlocal has_gradient
        layer = hooked.describe(x, y)
        is_step = hooked.module.training and torch.is_grad_enabled()
        if not is_step and (layer.kind == "loss" or not may_be_frozen):
            raise CostError("an evaluation was hooked; only training steps can be")
        # Nothing before or in it is trained, or its gradients follow from an earlier call.
        is_again = has_gradient and in_backward_pass()
        has_gradient = has_gradient or y.requires_grad
        if may_be_frozen and layer.kind != "loss" and (is_again or not y.requires_grad):
            layer = replace(layer, needs_input_gradient=False, needs_weight_gradient=False)
        layers.append(layer)

    def before(_: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        x = first_tensor(inputs, named)
        note(x, x)

    def after(
        _: nn.Module,
        inputs: tuple[Any, ...],
        named: dict[str, Any],
        output: Any,  # noqa: ANN401 (of any module)
    ) -> None:
        note(first_tensor(inputs, named), output)

    if hooked.is_before:
        return hooked.module.register_forward_pre_hook(before, with_kwargs=True)
    return hooked.module.register_forward_hook(after, with_kwargs=True)


def first_tensor(inputs: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
    """The input of a layer, whether or not it is given by name."""
    return next(x for x in (*inputs, *named.values()) if isinstance(x, Tensor))
