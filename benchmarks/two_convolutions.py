"""Two convolutions, and a plain torch loop that trains a fleet of them without compression.

The loop is what one writes without edgesim: a module and a `torch.optim.SGD` for each device, the
normalised images of each device in memory, one thread, and models that are averaged with those of
their in-neighbours on a directed ring as often as the fleet's devices exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import torch
from time_slices import Reporter
from torch import nn
from torch.nn import functional

from edgesim.data.batches import normalise
from edgesim.data.images import LabelledImages

BATCH = 32


def two_convolutions(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """3x3 convolutions of stride 2 with 16 and 32 channels, ReLU, linear: 25,578 parameters.

    Args:
        input_shape: channels, height and width; the number is for (3, 32, 32) and 10 classes.
        num_classes: of the data.
    """
    channels, height, width = input_shape
    maps = (height // 4) * (width // 4)
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * maps, num_classes),
    )


def torch_loop(shards: Sequence[LabelledImages], every: int, reporter: Reporter) -> None:
    """Train one model for each shard, one after the other, until the process is ended.

    Args:
        shards: CIFAR's shape, of each device.
        every: steps from one exchange to the next.
        reporter: of the steps.
    """
    torch.set_num_threads(1)
    models = [two_convolutions((3, 32, 32), 10) for _ in shards]
    optimizers = [
        torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4)
        for m in models
    ]
    data = [
        (normalise(s.images_NHWC.transpose(0, 3, 1, 2), (0.5,) * 3, (0.25,) * 3), s.labels)
        for s in shards
    ]
    samples = [(images, torch.from_numpy(labels)) for images, labels in data]
    generator, steps = torch.Generator().manual_seed(1), 0
    orders = [torch.empty(0, dtype=torch.int64) for _ in shards]
    for round_index in count():
        for device, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            images, labels = samples[device]
            if len(orders[device]) < BATCH:
                orders[device] = torch.randperm(len(labels), generator=generator)
            chosen, orders[device] = orders[device][:BATCH], orders[device][BATCH:]
            optimizer.zero_grad()
            functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
            optimizer.step()
            steps += 1
            reporter.report_at_times(steps)
        if (round_index + 1) % every == 0:
            _mix_(models)


@torch.no_grad()
def _mix_(models: Sequence[nn.Module]) -> None:
    """Set each model to the mean of itself and the one before, around the ring."""
    flat = [nn.utils.parameters_to_vector(model.parameters()) for model in models]
    for device, model in enumerate(models):
        mixed = flat[device].add(flat[device - 1]).mul_(0.5)
        nn.utils.vector_to_parameters(mixed, model.parameters())
