"""Lets a ledger see every tensor that passes between the operations of a training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, cast

from storage_ledger import StorageLedger
from torch import Tensor, nn
from torch.autograd.graph import Node, saved_tensors_hooks

from edgesim.costs.memory_table import Component
from edgesim.learning.flat_model import FlatModel
from edgesim.quant.arithmetic import (
    Arithmetic,
    RangeBatchNormBackward,
    RangeEvoNormBackward,
)
from edgesim.quant.layers import InputQuantizer

_OF_WEIGHTS: dict[str, Component] = {  # results of the back end that are no activations
    "quantize_weight": "weights",
    "requantize_parameters": "weights",
    "weight_gradient": "gradients",
}


@contextmanager
def watch_step(model: FlatModel, ledger: StorageLedger) -> Iterator[None]:
    """Within it, training steps of the model show the ledger all their tensors but scratch.

    Seen are inputs and outputs of modules, what autograd saves, gradients that it hands from one
    function to the next, and operands and results of the 8-bit back end.
    """
    step = _Step(ledger)
    with ExitStack() as undo:
        for module in model.model.modules():
            undo.callback(module.register_forward_pre_hook(step.before_module).remove)
            undo.callback(module.register_forward_hook(step.after_module).remove)
            if isinstance(module, InputQuantizer):
                undo.callback(setattr, module, "arithmetic", module.arithmetic)
                module.arithmetic = cast("Arithmetic", _SeenArithmetic(module.arithmetic, step))
        undo.callback(model.model.register_forward_hook(step.after_model).remove)
        undo.enter_context(saved_tensors_hooks(step.save, lambda tensor: tensor))
        yield


class _Step:
    """A step under way; the pass decides what a tensor is taken for."""

    def __init__(self, ledger: StorageLedger) -> None:
        self._ledger = ledger
        self._direction: Component = "activations"

    def see(self, value: object, component: Component | None = None) -> None:
        """Anything that may have tensors in it; by default of the pass under way."""
        self._ledger.see(value, component or self._direction)

    def before_module(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        """Hook of every module: what it is given."""
        del module
        self._direction = "activations"
        self.see(inputs)

    def after_module(self, module: nn.Module, inputs: tuple[Any, ...], output: object) -> None:
        """Hook of every module: what it gives."""
        del module, inputs
        self.see(output)

    def save(self, tensor: Tensor) -> Tensor:
        """Hook of autograd, when it saves a tensor."""
        self.see(tensor)
        return tensor.detach()  # an output that is saved by what made it must not hold itself

    def after_model(self, model: nn.Module, inputs: tuple[Any, ...], logits: Tensor) -> None:
        """Hook of the whole model: from here gradients go back."""
        del model, inputs
        if logits.grad_fn is not None:
            for node in _nodes_below(logits.grad_fn):
                node.register_hook(self._after_node(node))

    def _after_node(self, node: Node) -> Callable[[Sequence[Tensor], Sequence[Tensor]], None]:
        components: list[Component] = [
            "gradients" if _is_of_parameter(below) else "layer_gradients"
            for below, _ in node.next_functions
        ]

        def see_gradients(at_inputs: Sequence[Tensor], at_outputs: Sequence[Tensor]) -> None:
            self._direction = "layer_gradients"
            self.see(tuple(at_outputs))
            for gradient, component in zip(at_inputs, components, strict=False):
                self.see(gradient, component)

        return see_gradients


class _SeenArithmetic:
    """A back end whose operands and results are seen."""

    def __init__(self, arithmetic: Arithmetic, step: _Step) -> None:
        self._arithmetic = arithmetic
        self._step = step

    def __getattr__(self, name: str) -> object:
        found = getattr(self._arithmetic, name)
        if not callable(found):
            return found

        def operation(*operands: object, **options: object) -> object:
            self._step.see(operands)
            result = found(*operands, **options)
            if isinstance(result, RangeEvoNormBackward | RangeBatchNormBackward):
                self._step.see(result.x)
                self._step.see(result, "gradients")
            self._step.see(result, _OF_WEIGHTS.get(name))
            return result

        return operation


def _nodes_below(root: Node) -> set[Node]:
    """The functions of the backward pass."""
    found: set[Node] = set()
    waiting: list[Node | None] = [root]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            waiting += [below for below, _ in node.next_functions]
    return found


def _is_of_parameter(node: Node | None) -> bool:
    """Whether a gradient for this function is one of a parameter, or of a view of it."""
    while node is not None and len(node.next_functions) == 1:
        node = node.next_functions[0][0]
    return node is not None and node.name() == "torch::autograd::AccumulateGrad"
