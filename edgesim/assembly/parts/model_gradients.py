"""Parameters of a model of one's own that no gradient reaches.

A gradient of zeros alone says little: the last layer may begin with zeros, or the units of a ReLU
may be off for a few samples. So such a parameter is looked for in autograd's graph of the outputs.
No gradient reaches it if it is not in the graph, or only behind functions whose derivative is 0
everywhere, such as `torch.round`.

Nothing is said where a trial can't tell: of a model of whole numbers, whose layers may depend on
the token, and where a function of one's own may compute with parameters that it does not take, as
`torch.utils.checkpoint` does with `use_reentrant=True`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from string import digits

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import Node

from edgesim.learning.flat_model import FlatModel
from edgesim.models.dropout import seed_dropout_
from edgesim.quant.layers import seed_rounding_

_KEY = "model.name"
_FLAT = {
    f"{name}Backward" for name in ("Bernoulli", "Ceil", "Floor", "Round", "Sgn", "Sign", "Trunc")
}
_PASSES = 8  # a model may skip a layer by chance, or for some inputs
_SHOWN = 5  # names in a notice


def notices_of_gradients(
    name: str, flat: FlatModel, inputs: Tensor, gradient: Tensor
) -> tuple[str, ...]:
    """A notice of the parameters that no gradient reaches, if there are any.

    Args:
        name: of the model, for the notice.
        flat: with the model; its buffers may change.
        inputs: a batch.
        gradient: of a step on it, as of `FlatModel.loss_and_gradient`.
    """
    if not inputs.is_floating_point():
        return ()
    parts = zip(flat.layout.names, flat.layout.split(gradient), strict=True)
    zeros = {key for key, part in parts if not part.any()}
    named = flat.model.named_parameters()
    missing = {p: key for key, p in named if p.requires_grad and key in zeros}
    for seed in range(_PASSES):
        if not missing:
            return ()
        try:
            outputs = _outputs(flat, inputs.shape, seed)
        except Exception:  # noqa: BLE001 (it took the batch; other inputs tell nothing)
            return ()
        nodes = _nodes_behind(outputs)
        if any(map(_may_hide_parameters, nodes)):
            return ()
        reached = {getattr(node, "variable", None) for node in nodes}
        missing = {p: key for p, key in missing.items() if p not in reached}
    if not missing:
        return ()
    keys = [key.removeprefix("inner.") for key in missing.values()]
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    values = f"{sum(p.numel() for p in missing):,} of {flat.num_trainable:,} values"
    said = (
        f"{_KEY}: {name}: no gradient reaches {', '.join(keys[:_SHOWN])}{more} ({values}), so they "
        "are gossiped but not trained; mend forward (detach(), no_grad(), round()), freeze them by "
        "requires_grad_(False), or remove them"
    )
    return (said,)


def _outputs(flat: FlatModel, shape: Sequence[int], seed: int) -> Tensor:
    """Outputs of a training step on inputs that are drawn anew."""
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    seed_dropout_(flat.leaf_modules, seed)
    seed_rounding_(flat.leaf_modules, seed)
    with flat.around_step():
        outputs: Tensor = flat.model.train()(inputs)
    return outputs


def _nodes_behind(outputs: Tensor) -> Collection[Node]:
    """Nodes of autograd's graph to which a way leads on which no derivative is always 0."""
    ahead, seen = [outputs.grad_fn], set()
    while ahead:
        node = ahead.pop()
        if node is None or node in seen or _is_flat(node):
            continue
        seen.add(node)
        ahead.extend(function for function, _ in node.next_functions)
    return seen


def _is_flat(node: Node) -> bool:
    """Whether it is of a function of torch's whose derivative is 0; only these have a number."""
    name = node.name()
    return name[-1:] in digits and name.rstrip(digits) in _FLAT


def _may_hide_parameters(node: object) -> bool:
    """Whether it is of a `torch.autograd.Function` from outside that takes no parameter itself."""
    if not isinstance(node, BackwardCFunction):
        return False
    function = getattr(node, "_forward_cls", None)
    is_ours = getattr(function, "__module__", "").startswith("edgesim.")
    taken = (getattr(before, "variable", None) for before, _ in node.next_functions)
    return not is_ours and not any(isinstance(leaf, nn.Parameter) for leaf in taken)
