"""Parameters of a model of one's own that no gradient reaches.

A gradient of zeros alone says little: the last layer may begin with zeros, or the units of a ReLU
may be off for a few samples. So such a parameter is looked for in autograd's graph of the outputs.
No gradient reaches it if it is not in the graph, or only behind functions whose derivative is 0
everywhere, such as `torch.round`.
"""

from __future__ import annotations

from collections.abc import Collection
from string import digits

import torch
from torch import Tensor, nn

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
    parts = zip(flat.layout.names, flat.layout.split(gradient), strict=True)
    zeros = {key for key, part in parts if not part.any()}
    named = flat.model.named_parameters()
    missing = {p: key for key, p in named if p.requires_grad and key in zeros}
    for seed in range(_PASSES):
        if missing:
            reached = _reached(_outputs(flat, inputs, seed))
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


def _outputs(flat: FlatModel, inputs: Tensor, seed: int) -> Tensor:
    """Outputs of a training step; inputs of numbers are drawn anew."""
    if inputs.is_floating_point():
        inputs = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(seed))
    seed_dropout_(flat.leaf_modules, seed)
    seed_rounding_(flat.leaf_modules, seed)
    with flat.around_step():
        outputs: Tensor = flat.model.train()(inputs)
    return outputs


def _reached(outputs: Tensor) -> Collection[nn.Parameter]:
    """Leaves of autograd's graph to which a way leads on which no derivative is always 0."""
    ahead = [outputs.grad_fn]
    seen, leaves = set(), set()
    while ahead:
        node = ahead.pop()
        if node is None or node in seen or node.name().rstrip(digits) in _FLAT:
            continue
        seen.add(node)
        if (leaf := getattr(node, "variable", None)) is not None:
            leaves.add(leaf)
        ahead.extend(function for function, _ in node.next_functions)
    return leaves
