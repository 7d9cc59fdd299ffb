"""Which choice of 8-bit training costs an encoder how much: one device, AG News, from scratch.

    python benchmarks/text_ablation.py --data ag_news [--seeds 1 2] [--only fp32 int8 ...]

The model and the optimizer are those of scenarios/sweeps/ag_news_scratch.yaml, on one device with
all data in batches of 64, which is what four devices see that mix completely. Beside fp32 and int8
it trains int8 with one choice undone at a time, and with all undone, on the plain back end. Prints
the mean training loss of the last 20 steps, the loss of the whole test set, and its accuracy.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from edgesim.data.text.ag_news import AgNews
from edgesim.learning.adam import Adam
from edgesim.learning.flat_model import FlatModel
from edgesim.models.eight_bit import EightBit
from edgesim.models.in_eight_bits import replace_layers_
from edgesim.models.text.encoder import distilbert
from edgesim.quant import affine
from edgesim.quant.affine import QuantizedRows
from edgesim.quant.backends import make_backend
from edgesim.quant.layer_step import LayerStep
from edgesim.quant.layers import InputQuantizer, name_layers_, seed_rounding_
from edgesim.quant.settings import QuantizationSettings

TOKENS, VOCABULARY, BATCH, RATE = 32, 2048, 64, 2e-3
LAST = 20  # steps whose loss is averaged
SETTINGS = QuantizationSettings(
    zero_point="integer",
    weight_range="per_tensor",
    weight_gradient="fp32",
    activation_rounding="nearest",
    evaluation_rounding="nearest",
    gradient_rounding="stochastic",
    ranges="local",
    range_momentum=0.1,
)


def one_grid_for_all_tokens(step: LayerStep, g: Tensor) -> QuantizedRows:
    """A layer norm's gradient as `quantize_gradient` gives it."""
    whole = step.quantize_gradient(g)
    codes = whole.codes.flatten(0, -2)
    grid = torch.tensor([[whole.grid.scale, whole.grid.zero_point, whole.grid.offset]])
    return QuantizedRows(codes, grid.expand(len(codes), 3))


def undo(choice: str, model: nn.Module, stack: ExitStack) -> None:
    """Replace a choice by that of the reference code, until the stack is closed."""
    if choice in ("ranges of batches", "all"):
        for module in model.modules():
            if isinstance(module, InputQuantizer):
                module.unclipped = False
    if choice in ("grids of tokens", "all"):
        stack.enter_context(
            patch.object(LayerStep, "quantize_gradient_by_rows", one_grid_for_all_tokens)
        )
    if choice in ("small steps", "all"):
        floor = affine.SMALLEST_SCALE
        stack.enter_context(patch.object(affine, "SMALLEST_INTEGER_SCALE", floor))
        stack.enter_context(patch.object(affine, "_SMALLEST_INTEGER_SCALE", np.float32(floor)))


CHOICES = ("grids of tokens", "ranges of batches", "small steps", "all")
VARIANTS = ("fp32", "int8", *(f"int8 without {choice}" for choice in CHOICES))


def model_of(variant: str, seed: int) -> nn.Module:
    """An initialised model, the same in all variants."""
    torch.manual_seed(seed)
    model: nn.Module = distilbert(
        (2, TOKENS),
        AgNews.num_classes,
        vocabulary=VOCABULARY,
        layers=2,
        width=64,
        heads=4,
        hidden=128,
        positions=TOKENS,
        dropout=0,
    )
    if variant != "fp32":
        layers = EightBit("range_evonorm", make_backend("reference", SETTINGS), SETTINGS, True)
        model, _ = replace_layers_(model, layers)
        name_layers_(model)
    return model


def trained(model: FlatModel, seed: int, data: AgNews, steps: int) -> tuple[float, float, float]:
    """Loss of the last steps, loss and accuracy on the test set."""
    inputs, labels = (torch.from_numpy(np.asarray(x)).long() for x in data.train)
    test = [torch.from_numpy(np.asarray(x)).long().split(250) for x in data.test]
    optimizer = Adam(beta1=0.9, beta2=0.9, weight_decay=1e-4)
    state = optimizer.init(model.parameters)
    generator, order, losses = torch.Generator().manual_seed(seed), torch.empty(0), []
    for step in range(steps):
        if len(order) < BATCH:
            order = torch.randperm(len(labels), generator=generator)
        batch, order = order[:BATCH], order[BATCH:]
        seed_rounding_(model.model, seed * 1_000_003 + step)
        loss, gradient = model.loss_and_gradient(inputs[batch], labels[batch])
        losses.append(loss)
        optimizer.step_(state, model.parameters, gradient, RATE)
    found = model.evaluate(zip(*test, strict=True))
    assert found.accuracy is not None, "a classification has one"
    return float(np.mean(losses[-LAST:])), found.loss, found.accuracy


def main() -> None:
    """Print a line for each variant and seed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True, help="folder of AG News")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=104)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=VARIANTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = AgNews(options.data, max_length=TOKENS, vocabulary=VOCABULARY)
    print(f"{'':32}seed  training loss  test loss  accuracy")
    for variant in options.only:
        for seed in options.seeds:
            model = model_of(variant, seed)
            with ExitStack() as stack:
                undo(variant.partition(" without ")[2], model, stack)
                training, loss, accuracy = trained(FlatModel(model), seed, data, options.steps)
            figures = f"{training:13.3f}  {loss:9.3f}  {accuracy:8.3f}"
            print(f"{variant:32}{seed:4}  {figures}", flush=True)


if __name__ == "__main__":
    main()
