"""Time of one training step in fp32, in fake 8 bits and in integers, side by side in one process.

One thread; forward, backward and update of momentum SGD, as a device does them; the arms take turns
and the fastest of their repetitions counts. fp32 uses EvoNorm-S0, the norm of the paper's fp32
models, in its best form: edgesim's own function, in either memory layout of the weights, or the
plain formula compiled by torch. The 8-bit arms use Range EvoNorm: `fake_quant` is the back end
`reference`, `int8_cpu` the integer kernels. `bfloat16` is torch's own rival of 8 bits: parameters
and images in bfloat16, batch norms, channels_last. Times are processor time of the thread.

Below the table: where the fastest int8_cpu step went, and the floor of its integer products: what
they would take if all ran at the rate that 64 channels reach in the caches. Winograd,
which processors without byte products take for 3x3 kernels, needs 2.25 times fewer there, and may
come out below it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import thread_time
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

from edgesim.assembly.build import quantization_settings
from edgesim.learning.allocator import keep_freed_memory
from edgesim.learning.flat_model import FlatModel
from edgesim.learning.optimizers import Sgd
from edgesim.models import (
    EightBit,
    EvoNormS0,
    Layers,
    SeededDropout,
    build_model,
    full_precision,
    seed_dropout_,
)
from edgesim.models.dropout import dropout_layers
from edgesim.quant.arithmetic import Arithmetic
from edgesim.quant.backends import BackendName, make_backend
from edgesim.quant.kernels.convolution.convolution import Convolution, Method
from edgesim.quant.kernels.geometry import ConvolutionShape
from edgesim.quant.kernels.products import amx
from edgesim.quant.kernels.products.native import dot_product_is_native
from edgesim.quant.layers import (
    QuantizedConv2d,
    QuantizedLinear,
    rounding_layers,
    seed_rounding_,
)

CASES = {"resnet20": (32, 32), "vgg11": (32, 32), "resnet18": (64, 16)}  # image side, batch
SETTINGS = quantization_settings()
OPTIMIZER = Sgd(momentum=0.9, nesterov=True, weight_decay=1e-4)

_PARTS = {
    "convolve": "integer products",
    "input_gradient": "integer products",
    "weight_gradient": "weight gradients (fp32)",
    "range_evonorm": "norms",
    "range_evonorm_backward": "norms",
    "residual_sum": "quantization and sums",
    "quantize": "quantization and sums",
    "quantize_by_samples": "quantization and sums",
    "quantize_whole": "quantization and sums",
    "requantize_whole": "quantization and sums",
    "requantize_parameters": "weights and parameters",
    "quantize_weight": "weights and parameters",
    "sample_range": "ranges",
    "full_range": "ranges",
}


class TimedArithmetic:
    """A back end that notes how long each of its operations took.

    Attributes:
        seconds: processor time by operation.
    """

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        for name in _PARTS:
            setattr(self, name, self._timed(name, getattr(arithmetic, name)))

    def _timed(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 (what the operation takes)
            start = thread_time()
            result = operation(*arguments, **named)
            self.seconds[name] += thread_time() - start
            return result

        return timed


class PlainEvoNorm(nn.Module):
    """EvoNorm-S0 as its formula says, for torch's compiler to fuse; takes over the parameters."""

    def __init__(self, norm: EvoNormS0) -> None:
        super().__init__()
        self.gamma, self.beta, self.v, self.groups = norm.gamma, norm.beta, norm.v, norm.groups

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Shape of the input."""
        N, C, H, W = x_NCHW.shape
        grouped = x_NCHW.view(N, self.groups, C // self.groups, H, W)
        variance = grouped.var((2, 3, 4), correction=0, keepdim=True)
        deviation = (variance + 1e-5).sqrt().expand_as(grouped).reshape(N, C, H, W)
        gate = torch.sigmoid(x_NCHW * self.v.view(1, -1, 1, 1))
        y = x_NCHW * gate / deviation
        return y * self.gamma.view(1, -1, 1, 1) + self.beta.view(1, -1, 1, 1)


@dataclass(slots=True)
class Arm:
    """One way to do a step.

    Attributes:
        step: does one.
        best_s: of the steps so far, processor time.
    """

    step: Callable[[], None]
    best_s: float = float("inf")

    def take_turn(self) -> None:
        """Do one step and note its time."""
        start = thread_time()
        self.step()
        self.best_s = min(self.best_s, thread_time() - start)


def _model_and_batch(name: str, layers: Layers) -> tuple[nn.Module, Tensor, Tensor]:
    side, batch = CASES[name]
    generator = torch.Generator().manual_seed(1)
    module = build_model(
        name, image_shape=(3, side, side), num_classes=10, layers=layers, generator=generator
    )
    images = torch.randn(batch, 3, side, side, generator=generator)
    return module, images, torch.randint(0, 10, (batch,), generator=generator)


def make_torch_step(
    name: str, layers: Layers, *, compiled: bool = False, dtype: torch.dtype = torch.float32
) -> Callable[[], None]:
    """A step as torch alone does it best: weights in channels_last, its own optimizer.

    A device's flat vectors would undo the weights' layout.
    """
    module, images, labels = _model_and_batch(name, layers)
    if compiled:
        _use_plain_norms_(module)
    images = images.to(dtype)
    module.to(dtype).train()
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in torch's types
    optimizer = torch.optim.SGD(
        module.parameters(), 0.01, OPTIMIZER.momentum, 0.0, OPTIMIZER.weight_decay, nesterov=True
    )
    forward = torch.compile(module) if compiled else module

    def step() -> None:
        seed_dropout_(module, 1)
        optimizer.zero_grad()
        functional.cross_entropy(forward(images), labels).backward()
        optimizer.step()

    return step


def make_step(name: str, layers: Layers) -> Callable[[], None]:
    """A function that does one training step of a model on a fixed random batch, as devices do."""
    module, images, labels = _model_and_batch(name, layers)
    model = FlatModel(module, keeps_parameters=True)
    x = model.parameters.clone()
    state = OPTIMIZER.init(x)

    def step() -> None:
        model.use_(x, model.buffers)
        _, gradient = model.loss_and_gradient(images, labels)
        OPTIMIZER.step_(state, x, gradient, 0.01)

    dropouts, roundings = dropout_layers(model.leaf_modules), rounding_layers(model.leaf_modules)

    def seeded_step() -> None:
        seed_dropout_(dropouts, 1)
        seed_rounding_(roundings, 1)
        step()

    return seeded_step


def _use_plain_norms_(module: nn.Module) -> None:
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, EvoNormS0):
                setattr(parent, name, PlainEvoNorm(child))
            elif isinstance(child, SeededDropout):
                setattr(parent, name, nn.Dropout(child.p))  # the compiler knows no generators


def integer_macs(name: str) -> int:
    """Products of integers in a step: forward, and input gradients but the first layer's."""
    side, batch = CASES[name]
    model = build_model(
        name,
        image_shape=(3, side, side),
        num_classes=10,
        layers=eight_bit("reference")[0],
        generator=torch.Generator().manual_seed(1),
    ).eval()
    counts: list[int] = []

    def count(layer: nn.Module, _: object, y: Tensor) -> None:
        weight = layer.weight
        assert isinstance(weight, Tensor)
        pixels = y[0, 0].numel() if y.dim() == 4 else 1
        counts.append(batch * pixels * weight.numel())

    for module in model.modules():
        if isinstance(module, QuantizedConv2d | QuantizedLinear):
            module.register_forward_hook(count)
    with torch.no_grad():
        model(torch.zeros(1, 3, side, side))
    return 2 * sum(counts) - counts[0]


def eight_bit(backend: BackendName) -> tuple[EightBit, TimedArithmetic]:
    """Layers in 8 bits with Range EvoNorm, and the back end that times them."""
    arithmetic = TimedArithmetic(make_backend(backend, SETTINGS))
    return EightBit("range_evonorm", arithmetic, SETTINGS, conv_bias=True), arithmetic  # type: ignore[arg-type]


def peak_macs_per_s() -> float:
    """Multiply-adds a second with 64 channels, on images that the caches hold."""
    shape = ConvolutionShape(
        channels=64, out_channels=64, height=8, width=8, kernel=3, stride=1, padding=1, groups=1
    )
    method: Method | None = "direct_bytes" if dot_product_is_native() else "direct"
    if amx.is_native():
        method = None  # by tiles
    convolution = Convolution(shape, method)
    rng = np.random.default_rng(1)
    samples = 16
    codes = rng.integers(0, 256, (samples, 8, 8, 64), dtype=np.uint8)
    weights = rng.integers(-127, 128, (64, 3, 3, 64), dtype=np.int8).transpose(0, 3, 1, 2)
    scales, out = np.ones(64, np.float32), np.empty(codes.shape, np.float32)
    best_s, calls = float("inf"), 10
    for _ in range(20):
        start = thread_time()
        for _ in range(calls):
            convolution.convolve(codes, 128, 1.0, weights, scales, None, out)
        best_s = min(best_s, (thread_time() - start) / calls)
    return samples * 64 * 64 * 9 * 64 / best_s


def measure(name: str, repeats: int, *, compile_too: bool) -> dict[str, Any]:
    """Figures of one model."""
    fp32 = full_precision("evonorm_s0")
    fake, _ = eight_bit("reference")
    int8, timed = eight_bit("int8_cpu")
    arms = {
        "fp32_eager": Arm(make_step(name, fp32)),
        "fp32_channels_last": Arm(make_torch_step(name, fp32)),
        "fake_quant": Arm(make_step(name, fake)),
        "int8_cpu": Arm(make_step(name, int8)),
        "bfloat16": Arm(make_torch_step(name, full_precision("batch"), dtype=torch.bfloat16)),
    }
    if compile_too:
        arms["fp32_compiled"] = Arm(make_torch_step(name, fp32, compiled=True))
    for arm in arms.values():
        for _ in range(2):
            arm.step()
    of_best_step: dict[str, float] = {}
    for _ in range(repeats):
        for arm_name, arm in arms.items():
            before = arm.best_s
            timed.seconds.clear()
            arm.take_turn()
            if arm_name == "int8_cpu" and arm.best_s < before:
                of_best_step = dict(timed.seconds)
    parts: dict[str, float] = defaultdict(float)
    for operation, seconds in of_best_step.items():
        parts[_PARTS[operation]] += 1e3 * seconds
    rest = 1e3 * arms["int8_cpu"].best_s - sum(parts.values())
    parts["the rest: torch, Python, loss, update"] = rest
    times = {f"{arm_name}_ms": 1e3 * arm.best_s for arm_name, arm in arms.items()}
    best = min(ms for arm_name, ms in times.items() if arm_name.startswith("fp32"))
    return {"fp32_best_ms": best, **times, "parts_ms": dict(parts), "macs": integer_macs(name)}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10, help="steps of each arm that count")
    parser.add_argument("--models", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as runs do
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    figures = {
        name: measure(name, arguments.repeats, compile_too=not arguments.no_compile)
        for name in arguments.models
    }
    console = Console(width=120)
    table = Table("model", "arm", "ms", "of best fp32", title="one training step, one thread")
    for name, figure in figures.items():
        for arm, ms in figure.items():
            if arm.endswith("_ms") and arm not in ("fp32_best_ms", "parts_ms"):
                table.add_row(name, arm[:-3], f"{ms:.1f}", f"{ms / figure['fp32_best_ms']:.2f}")
        table.add_section()
    console.print(table)
    peak = peak_macs_per_s()
    table = Table("model", "part of the fastest int8_cpu step", "ms")
    for name, figure in figures.items():
        for part, ms in sorted(figure["parts_ms"].items(), key=lambda item: -item[1]):
            table.add_row(name, part, f"{ms:.1f}")
        floor = f"floor: {figure['macs'] / 1e9:.2f} G integer products at {peak / 1e9:.0f} G/s"
        table.add_row(name, floor, f"{1e3 * figure['macs'] / peak:.1f}")
        table.add_section()
    console.print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
