"""Both passes of the EvoNorms in fp32: edgesim's kernels against plain and compiled torch.

The sizes are those of a ResNet-20 on images of CIFAR-10 in batches of 32. "plain" is the formula in
torch operations, "compiled" the same through torch.compile, which needs a C++ compiler. Of Range
EvoNorm, "plain" are the torch operations that edgesim has for other types and devices. One thread;
all take turns, and the least processor time of each counts. GB/s are those of the 28 bytes that
edgesim moves for an entry of EvoNorm-S0.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import thread_time
from typing import get_args

import torch
from torch import Tensor

from edgesim.models.evonorm import EvoNormS0
from edgesim.models.range_norms import RangeEvoNorm, by_torch_operations
from edgesim.quant.arithmetic import Gate, RangeNormShape
from edgesim.quant.range_evonorm_formulas import chunks_of

SIZES = [(32, 16, 32), (32, 32, 16), (32, 64, 8)]  # samples, channels, height and width
GROUPS = 8
BYTES = 28  # an entry


def plain(x: Tensor, gamma: Tensor, beta: Tensor, v: Tensor) -> Tensor:
    """The formula, x sigmoid(v x) / sqrt(var + 1e-5) gamma + beta, var of a sample's group."""
    N, C = x.shape[:2]
    variance = x.reshape(N, GROUPS, -1).var(2, unbiased=False)
    scale = torch.rsqrt(variance + 1e-5).repeat_interleave(C // GROUPS, 1)[:, :, None, None]
    gamma, beta, v = (p[None, :, None, None] for p in (gamma, beta, v))
    return x * torch.sigmoid(v * x) * scale * gamma + beta


def milliseconds(turns: int, size: tuple[int, int, int]) -> dict[str, float]:
    """Least processor time of both passes, by who does them."""
    N, C, H = size
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    x, g = (normal(N, C, H, H).contiguous(memory_format=torch.channels_last) for _ in range(2))
    norm = EvoNormS0(C, GROUPS)
    parameters = [norm.gamma, norm.beta, norm.v]
    inputs = [x.requires_grad_(), *parameters]
    compiled = torch.compile(plain)
    ways: dict[str, Callable[[], Tensor]] = {
        "plain": lambda: plain(x, *parameters),
        "compiled": lambda: compiled(x, *parameters),
        "edgesim": lambda: norm(x),
    }
    expected = torch.autograd.grad(plain(x, *parameters), inputs, g)
    least = dict.fromkeys(ways, float("inf"))
    for turn in range(turns):
        for name, way in ways.items():
            start = thread_time()
            gradients = torch.autograd.grad(way(), inputs, g)
            least[name] = min(least[name], 1000 * (thread_time() - start))
            if turn == 0:
                torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-3)
    return least


def range_milliseconds(turns: int, size: tuple[int, int, int], gate: Gate) -> tuple[float, float]:
    """Least processor time of both passes of Range EvoNorm, in torch operations and edgesim's."""
    N, C, H = size
    generator = torch.Generator().manual_seed(0)
    x, g = (
        torch.randn((N, C, H, H), generator=generator).contiguous(memory_format=torch.channels_last)
        for _ in range(2)
    )
    norm = RangeEvoNorm(C, groups=GROUPS, gate=gate)
    inputs = (x.requires_grad_(), norm.v, norm.gamma, norm.beta)
    shape = RangeNormShape(GROUPS, chunks_of(C // GROUPS * H * H))
    ways: tuple[Callable[[], Tensor], ...] = (
        lambda: by_torch_operations(*inputs, shape, gate),
        lambda: norm(x),
    )
    least = [float("inf")] * 2
    for _ in range(turns):
        for place, way in enumerate(ways):
            start = thread_time()
            torch.autograd.grad(way(), inputs, g)
            least[place] = min(least[place], 1000 * (thread_time() - start))
    return least[0], least[1]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=30, help="of each; the first compiles")
    turns = parser.parse_args().turns
    torch.set_num_threads(1)
    print("milliseconds: N, C, H = W | plain | compiled | edgesim | of plain | of compiled | GB/s")
    for size in SIZES:
        least = milliseconds(turns, size)
        own = least["edgesim"]
        speed = BYTES * size[0] * size[1] * size[2] ** 2 / own / 1e6
        figures = [*least.values(), own / least["plain"], own / least["compiled"], speed]
        print(f"{size} | " + " | ".join(f"{figure:.2f}" for figure in figures))
    print("Range EvoNorm, milliseconds: N, C, H = W | gate | plain | edgesim | of plain")
    for size in SIZES:
        for gate in get_args(Gate):
            plain_ms, own = range_milliseconds(turns, size, gate)
            print(f"{size} | {gate} | {plain_ms:.2f} | {own:.2f} | {own / plain_ms:.2f}")


if __name__ == "__main__":
    main()
