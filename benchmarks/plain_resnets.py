"""ResNet-20 of several devices as groups of one network, in plain torch, without edgesim.

Formulas: docs/reference.md, sections 2 (norms, initial values) and 5 (the network).

Symbols:
    R: devices   B: samples of a device's batch   P: parameters of a device
    C: channels of a device   H, W: height, width
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby, pairwise
from math import log, pi, prod, sqrt

import torch
from torch import Tensor
from torch.nn import functional

CLASSES = 10
WIDTHS = (16, 16, 16, 16, 32, 32, 32, 64, 64, 64)  # the stem, then nine blocks
NORM_GROUPS, CHUNKS, EPSILON = 8, 16, 1e-5

Norm = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def evonorm_s0(x: Tensor, v: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """For x of shape (B, R, C, H, W); the others have (R, C, 1, 1)."""
    B, R = x.shape[:2]
    variance = x.view(B, R, NORM_GROUPS, -1).var(-1, correction=0, keepdim=True)
    gated = (x * torch.sigmoid(v * x)).view(B, R, NORM_GROUPS, -1)
    return (gated * torch.rsqrt(variance + EPSILON)).view(x.shape) * gamma + beta


def range_evonorm(x: Tensor, v: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """The same with the mean range of chunks in place of the deviation, and the gate in pieces."""
    B, R = x.shape[:2]
    chunks = x.view(B, R, NORM_GROUPS, CHUNKS, -1)
    entries = chunks.shape[-1]
    kappa = 0.5 * 0.35 * (1 + sqrt(pi * log(4))) / sqrt(2 * log(entries))
    ranges = (chunks.amax(-1) - chunks.amin(-1)).mean(-1, keepdim=True)
    gated = (x * torch.clamp(v * x / 6 + 0.5, 0, 1)).view(B, R, NORM_GROUPS, -1)
    return (gated / (kappa * ranges + EPSILON)).view(x.shape) * gamma + beta


NORMS: dict[str, Norm] = {"evonorm": evonorm_s0, "range": range_evonorm}


class Models:
    """ResNet-20 of R devices: groups of one network, whose parameters are one matrix (R, P).

    Attributes:
        shapes: of a device's tensors by name; equal sizes are neighbours, for top-k.
        blocks: first column, number of tensors and entries of each, by size.
    """

    def __init__(self, norm: Norm) -> None:
        self.norm = norm
        by_size = sorted(shapes(), key=lambda item: prod(item[1]))
        self.shapes = dict(by_size)
        self.blocks, self.num_parameters = [], 0
        for entries, group in groupby(map(prod, self.shapes.values())):
            count = len(list(group))
            self.blocks.append((self.num_parameters, count, entries))
            self.num_parameters += count * entries

    def views(self, x: Tensor) -> dict[str, Tensor]:
        """The tensors of matrix (R, P), each (R, ...)."""
        parts = x.split([prod(shape) for shape in self.shapes.values()], 1)
        return {
            name: part.view(-1, *shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def initial(self, generator: torch.Generator) -> Tensor:
        """Of one device, shape (1, P)."""
        x = torch.zeros(1, self.num_parameters)
        is_range = self.norm is range_evonorm
        for name, view in self.views(x).items():
            if name.endswith((".v", ".gamma")):
                view.fill_(0.0 if is_range and name.endswith("second.gamma") else 1.0)
            elif name.endswith(".conv"):
                view.normal_(
                    0, sqrt(2 / (view.shape[1] * view[0, 0, 0].numel())), generator=generator
                )
            elif name.startswith("last") and not is_range:
                view.uniform_(-1 / sqrt(WIDTHS[-1]), 1 / sqrt(WIDTHS[-1]), generator=generator)
            elif name == "last.weight":
                view.normal_(0, 0.01, generator=generator)
        return x

    def logits(self, parameters: dict[str, Tensor], images: Tensor) -> Tensor:
        """Shape (B, R, classes), for images of shape (B, R, 3, H, W)."""
        y = self._layer(parameters, "stem", images, 1)
        for number, (inputs, outputs) in enumerate(pairwise(WIDTHS)):
            stride, block = (1 if inputs == outputs else 2), f"block{number}."
            branch = self._layer(parameters, block + "first", y, stride)
            branch = self._layer(parameters, block + "second", branch, 1)
            y = branch + (
                y if stride == 1 else self._layer(parameters, block + "shortcut", y, stride)
            )
        pooled = y.mean((3, 4)).transpose(0, 1)  # R, B, C
        last = torch.baddbmm(
            parameters["last.bias"][:, None], pooled, parameters["last.weight"].transpose(1, 2)
        )
        return last.transpose(0, 1)

    def _layer(self, parameters: dict[str, Tensor], name: str, x: Tensor, stride: int) -> Tensor:
        """A convolution of each device, and the norm with its gate."""
        weight = parameters[name + ".conv"]
        B, R = x.shape[:2]
        padding = weight.shape[-1] // 2
        y = functional.conv2d(
            x.flatten(1, 2), weight.flatten(0, 1), stride=stride, padding=padding, groups=R
        )
        others = (parameters[f"{name}.{key}"][:, :, None, None] for key in ("v", "gamma", "beta"))
        return self.norm(y.view(B, R, -1, *y.shape[2:]), *others)


def shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tensors of a device by name, from the first layer to the last."""

    def layer(
        name: str, inputs: int, outputs: int, kernel: int
    ) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield f"{name}.conv", (outputs, inputs, kernel, kernel)
        yield from ((f"{name}.{key}", (outputs,)) for key in ("gamma", "beta", "v"))

    yield from layer("stem", 3, WIDTHS[0], 3)
    for number, (inputs, outputs) in enumerate(pairwise(WIDTHS)):
        yield from layer(f"block{number}.first", inputs, outputs, 3)
        yield from layer(f"block{number}.second", outputs, outputs, 3)
        if inputs != outputs:
            yield from layer(f"block{number}.shortcut", inputs, outputs, 1)
    yield "last.weight", (CLASSES, WIDTHS[-1])
    yield "last.bias", (CLASSES,)
