"""Work and memory of a step without closed form, measured while torch runs it.

A model from outside (`models/own.py`) has layers of known types, which are counted in closed form.
Other modules, and functions and operators in its `forward`, are measured: the module is made again
in fp32, and one counter measures a whole step and each known layer by itself. The difference is the
work of the rest.

Multiply-accumulates: the formulas of torch's own counter of floating-point operations and some that
it lacks (`flop_formulas.py`), two operations each. Element-wise operations: for each other
operation the entries of its largest operand or result. Traffic: each operation reads its operands
and writes its result once. Views and allocations are free.
Memory: the storages that autograd holds at the end of the forward pass, parameters left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from edgesim.costs.flop_formulas import flop_formula
from edgesim.hardware.widths import FLOAT_BYTES
from edgesim.hardware.work import LayerTally, Work
from edgesim.models import global_random
from edgesim.models.dropout import seed_dropout_
from edgesim.models.own import OwnModel
from edgesim.quant.backward_pass import in_backward_pass

_Arguments = TypeVar("_Arguments", tuple[Any, ...], dict[str, Any])
_FREE = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "detach", "detach_"})


@dataclass(frozen=True, slots=True)
class MeasuredWork:
    """Work of the layers without closed form in one step.

    Attributes:
        forward: of the forward pass.
        backward: of both gradients.
        parts: names of the modules whose own operations, outside of the modules in them, are
            counted in the forward pass. Those of known layers are among them.
    """

    forward: Work
    backward: Work
    parts: frozenset[str] = frozenset()

    @property
    def total(self) -> Work:
        """Of both passes."""
        return self.forward + self.backward


def measured_work(
    model: OwnModel, known: frozenset[str], input_shape: tuple[int, ...]
) -> MeasuredWork:
    """Work of one training step outside of the layers that are counted in closed form.

    Args:
        model: from outside.
        known: names of these layers within it.
        input_shape: of the batch.
    """
    module = model.make_plain().train()
    seed_dropout_(module, 0)
    calls: list[Callable[[], Tensor]] = []
    again: list[Callable[[], Tensor]] = []  # in the backward pass, as torch.utils.checkpoint does
    with_gradient: set[nn.Module] = set()

    def note(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with _disable_current_modes():  # the copies are no work of the model
            call = partial(layer, *_copied(args), **_copied(kwargs))
        is_again = in_backward_pass()
        if not torch.is_grad_enabled() or (is_again and layer in with_gradient):
            call = partial(_without_gradient, call)
        else:
            with_gradient.add(layer)
        (again if is_again else calls).append(call)

    handles = [
        layer.register_forward_pre_hook(note, with_kwargs=True)
        for name, layer in module.named_modules()
        if name in known
    ]
    running: list[str] = []
    for name, part in module.named_modules():
        handles.append(part.register_forward_pre_hook(partial(_begin, running, name)))
        handles.append(part.register_forward_hook(partial(_end, running)))
    inputs = torch.zeros(input_shape, dtype=model.input_dtype)
    with global_random.seeded(0):
        whole = _Passes.of(lambda: module(inputs), running)
        for handle in handles:
            handle.remove()
        parts, repeated = ([_Passes.of(call) for call in each] for each in (calls, again))
    in_backward = [*(part.forward for part in repeated), *(part.backward for part in repeated)]
    return MeasuredWork(
        whole.forward.less(part.forward for part in parts),
        whole.backward.less(iter([*(part.backward for part in parts), *in_backward])),
        frozenset(whole.forward.parts),
    )


def _without_gradient(call: Callable[[], Tensor]) -> Tensor:
    with torch.no_grad():
        return call()


def _begin(running: list[str], name: str, *_: object) -> None:
    running.append(name)


def _end(running: list[str], *_: object) -> None:
    running.pop()


def work_of(run: Callable[[], Tensor]) -> Work:
    """Work of a forward pass and its backward pass, all of it measured."""
    passes = _Passes.of(run)
    return passes.forward.less(iter(())) + passes.backward.less(iter(()))


class _Counter(TorchDispatchMode):
    """Context that counts the operations that torch runs in this thread.

    Args:
        running: names of the modules whose forward pass runs, the innermost last.
    """

    def __init__(self, running: Sequence[str] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._running = running
        self.parts: set[str] = set()
        self.calls = self.flops = self.elementwise_ops = self.traffic_bytes = 0

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 (torch's interface)
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        """Run an operation, and count it."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        packet = func.overloadpacket
        if func.is_view or packet.__name__ in _FREE:
            return result
        operands = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.calls += 1
        self.parts.update(self._running[-1:])
        self.traffic_bytes += sum(t.numel() * t.element_size() for t in operands + results)
        if (formula := flop_formula(packet)) is not None:
            self.flops += int(formula(*args, **kwargs, out_val=result))
        else:
            self.elementwise_ops += max((t.numel() for t in operands + results), default=0)
        return result

    def less(self, parts: Iterator[_Counter]) -> Work:
        """These counts less those of parts."""
        others = list(parts)

        def rest(name: str) -> int:
            known = sum(int(getattr(part, name)) for part in others)
            return max(int(getattr(self, name)) - known, 0)

        work = Work(
            macs_fp32=rest("flops") // 2,
            elementwise_ops=rest("elementwise_ops"),
            traffic_bytes=rest("traffic_bytes"),
        )
        operations = LayerTally(
            kind="operation_fp32",
            calls=rest("calls"),
            macs=work.macs,
            entries=work.traffic_bytes // FLOAT_BYTES,
            far_entries=0,
            weights=0,
            work=work,
        )
        return replace(work, layers=(operations,))


@dataclass(frozen=True, slots=True)
class _Passes:
    """Counts of a forward and a backward pass."""

    forward: _Counter
    backward: _Counter

    @classmethod
    def of(cls, run: Callable[[], Tensor], running: Sequence[str] = ()) -> _Passes:
        """Counts of the passes that `run` computes; `_Counter` has the second argument."""
        forward, backward = _Counter(running), _Counter()
        with forward:
            output = run()
        if output.requires_grad:
            gradient = torch.ones_like(output)
            with backward:
                output.backward(gradient)
        return cls(forward, backward)


def _copied(args: _Arguments) -> _Arguments:
    """Arguments of a layer as copies without autograd history; a layer may change them in place."""

    def copy(x: Tensor) -> Tensor:
        return x.detach().clone().requires_grad_(x.requires_grad).clone()

    copies: _Arguments = tree_map_only(Tensor, copy, args)
    return copies


@contextmanager
def held_by_autograd(left_out: nn.Module) -> Iterator[Callable[[], int]]:
    """Context that records the storages that autograd saves; yields a function for their bytes.

    Args:
        left_out: module whose parameters and buffers are not counted here.
    """
    own = {t.untyped_storage().data_ptr() for t in [*left_out.parameters(), *left_out.buffers()]}
    held: dict[int, int] = {}
    kept_alive: list[Tensor] = []  # an address is not given to another tensor meanwhile

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            held[storage.data_ptr()] = storage.nbytes()
            kept_alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        yield lambda: sum(held.values())
