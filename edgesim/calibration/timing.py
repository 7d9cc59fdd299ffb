"""Times steps of small networks: processor time of one thread.

The networks take turns in several rounds, so that a disturbance of some seconds meets only one
turn of a network.

In a model, a layer finds the caches full of what the other layers use. Before each step of a small
network, the rest of a model is read in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from time import perf_counter, thread_time
from typing import TypeAlias

import torch
from torch import Tensor, nn

from edgesim.calibration.micro_messages import MicroMessage
from edgesim.calibration.micro_networks import MicroNetwork
from edgesim.calibration.micro_updates import MicroUpdate
from edgesim.calibration.turns import Turns
from edgesim.costs.describe import modules_to_hook
from edgesim.costs.layer import Layer
from edgesim.costs.layer_work import StepWork
from edgesim.costs.measured import work_of
from edgesim.costs.work_meter import hook
from edgesim.hardware.work import LayerTally
from edgesim.learning.flat_model import FlatModel
from edgesim.learning.optimizers import Sgd
from edgesim.models.dropout import seed_dropout_
from edgesim.quant.layers import seed_rounding_

_SEED = 1
_TURN_S = 0.03  # wall time that steps of one turn fill
_FEWEST = 2  # steps of a turn
_REST_BYTES = 24 * 2**20  # three quarters of a last cache of 32 MiB, which is common
_OPTIMIZER = Sgd(momentum=0.9, nesterov=True, weight_decay=1e-4)

Step = Callable[[], None]

Timed: TypeAlias = MicroNetwork | MicroMessage | MicroUpdate
"""What is timed as a kind of layer."""


@dataclass(slots=True)
class TimedNetwork:
    """A small network, and the times of its steps so far.

    Attributes:
        network: what is timed.
        layers: sizes of its layers, by kind.
        steps_s: seconds of each step.
    """

    network: Timed
    layers: tuple[LayerTally, ...] = ()
    steps_s: list[float] = field(default_factory=list)

    def take_turn(self, rest: Tensor) -> None:
        """Make the network, do some steps, and drop it, so that one is alive at a time.

        Args:
            rest: is read before each step, as the data of the rest of a model.
        """
        step, self.layers = _made(self.network)
        step()
        end_s = perf_counter() + _TURN_S
        done = 0
        while done < _FEWEST or perf_counter() < end_s:
            rest.sum()
            self.steps_s.append(seconds_of(step))
            done += 1


def seconds_of(step: Callable[[], object]) -> float:
    """Processor time of one call."""
    start_s = thread_time()
    step()
    return thread_time() - start_s


def _made(network: Timed) -> tuple[Step, tuple[LayerTally, ...]]:
    """A step of a network, and the sizes of its layers."""
    if not isinstance(network, MicroNetwork):
        return network.made()
    generator = torch.Generator().manual_seed(_SEED)
    module = network.make().train()
    inputs = _inputs(network, generator)
    modules = nn.ModuleList(m for m in module.modules() if not any(m.children()))

    def seed_() -> None:
        seed_dropout_(modules, _SEED)
        seed_rounding_(modules, _SEED)

    seed_()
    layers = _sizes_of(network, module, inputs)
    if network.is_whole:
        step = _whole_step(module, inputs)
    else:
        step = _bare_step(module, inputs, generator)

    def seeded() -> None:
        seed_()
        step()

    return seeded, layers


def _inputs(network: MicroNetwork, generator: torch.Generator) -> Tensor:
    shape = network.input_shape
    if network.num_tokens:
        return torch.randint(network.num_tokens, shape, generator=generator)
    inputs = torch.randn(shape, generator=generator)
    is_image = len(shape) == 4 and network.kind != "product"
    if is_image and not network.is_whole:  # a whole model copies its images into this layout
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    return inputs.requires_grad_(network.trains_input)


def _bare_step(module: nn.Module, inputs: Tensor, generator: torch.Generator) -> Step:
    """Forward and backward pass with a fixed gradient at the output, as within a model."""
    gradient = torch.randn(module(inputs).shape, generator=generator)
    if gradient.dim() == 4 and inputs.is_contiguous(memory_format=torch.channels_last):
        gradient = gradient.contiguous(memory_format=torch.channels_last)
    flat = FlatModel(module) if any(True for _ in module.parameters()) else None

    def step() -> None:
        inputs.grad = None
        with nullcontext() if flat is None else flat.collected_gradient():
            module(inputs).backward(gradient)

    return step


def _whole_step(module: nn.Module, inputs: Tensor) -> Step:
    """A step of a model, as a device takes it."""
    model = FlatModel(module, keeps_parameters=True)
    labels = torch.zeros(len(inputs), dtype=torch.int64)
    x = model.parameters.clone()
    state = _OPTIMIZER.init(x)

    def step() -> None:
        model.use_(x, model.buffers)
        _, gradient = model.loss_and_gradient(inputs, labels)
        _OPTIMIZER.step_(state, x, gradient, 0.001)

    return step


def _sizes_of(network: MicroNetwork, module: nn.Module, inputs: Tensor) -> tuple[LayerTally, ...]:
    """Sizes of the layers of a step, by kind."""
    if network.kind == "operation":
        return work_of(lambda: module(inputs)).layers
    layers: list[Layer] = []
    handles = [hook(hooked, layers) for hooked in modules_to_hook(module)]
    module(inputs)
    for handle in handles:
        handle.remove()
    if not network.is_whole:  # a stack has no loss
        layers = [layer for layer in layers if layer.kind != "loss"]
    return StepWork.of(layers).total.layers


def timed(
    networks: Iterator[Timed], turns: Turns, note: Callable[[str], None]
) -> list[TimedNetwork]:
    """Time the steps of networks, in turns.

    Args:
        networks: what to time.
        turns: of each.
        note: is called before each turn, with the kind of the network.
    """
    found = [TimedNetwork(network) for network in networks]
    rest = torch.ones(_REST_BYTES // 4)
    for _ in range(turns.count):
        for one in found:
            note(one.network.kind)
            one.take_turn(rest)
    return found
