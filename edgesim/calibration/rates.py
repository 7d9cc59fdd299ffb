"""Rates of the machine without layers: products, memory, element-wise operations; free memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional

from edgesim.calibration.errors import CalibrationError
from edgesim.calibration.micro_networks import Sizes
from edgesim.calibration.timing import seconds_of
from edgesim.calibration.turns import Turns
from edgesim.hardware.widths import FLOAT_BYTES
from edgesim.quant.affine import Grid
from edgesim.quant.arithmetic import Arithmetic, Geometry

_REPEATS = 5  # of each measurement, in each turn
_CHANNELS = 64


def macs_per_s(dtype: torch.dtype, turns: Turns, sizes: Sizes) -> float:
    """Multiply-accumulates per second of a 3x3 convolution's forward pass in a float format.

    Where the machine has no such arithmetic, torch emulates it, which is what training would do.
    """
    samples, side = (16, 16) if sizes == "full" else (1, 4)
    images = torch.ones((samples, _CHANNELS, side, side), dtype=dtype)
    images = images.contiguous(memory_format=torch.channels_last)
    weights = torch.ones((_CHANNELS, _CHANNELS, 3, 3), dtype=dtype)

    def convolve() -> None:
        functional.conv2d(images, weights, padding=1)

    return samples * side**2 * _CHANNELS**2 * 9 / _call_s(convolve, turns)


def int8_macs_per_s(backend: Arithmetic, turns: Turns, sizes: Sizes) -> float:
    """Multiply-accumulates per second of the same convolution on 8-bit codes.

    Args:
        backend: of 8-bit arithmetic, as in runs.
        turns: of the measurement.
        sizes: of the convolution.
    """
    samples, side = (16, 16) if sizes == "full" else (1, 4)
    codes = torch.ones((samples, side, side, _CHANNELS), dtype=torch.uint8)
    kernels = torch.ones((_CHANNELS, _CHANNELS, 3, 3))
    weight = backend.quantize_weight(kernels, per_out_channel=True)
    grid, geometry = Grid(1.0, 128.0, 0.0), Geometry.square(3, padding=1)

    def convolve() -> None:
        backend.convolve(codes, grid, weight, None, geometry)

    return samples * side**2 * _CHANNELS**2 * 9 / _call_s(convolve, turns)


def memory_bytes_per_s(turns: Turns, sizes: Sizes) -> float:
    """Bytes per second that a sum of two long vectors reads and writes (STREAM's "add")."""
    numel = 2**24 if sizes == "full" else 2**12
    a, b, c = (torch.ones(numel) for _ in range(3))
    return 3 * FLOAT_BYTES * numel / _call_s(lambda: torch.add(a, b, out=c), turns)


def elementwise_ops_per_s(turns: Turns, sizes: Sizes) -> float:
    """Sums per second on a vector that the first caches hold."""
    numel, calls = (2**13, 50) if sizes == "full" else (2**8, 2)
    a, b = torch.ones(numel), torch.ones(numel)

    def add() -> None:
        for _ in range(calls):
            torch.add(a, b, out=a)

    return calls * numel / _call_s(add, turns)


def available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Memory that a new program can use without swapping, as the kernel estimates it.

    Raises:
        CalibrationError: the kernel does not say.
    """
    try:
        lines = meminfo.read_text().splitlines()
    except OSError as error:
        raise CalibrationError(
            f"{meminfo} can't be read ({error.strerror}); calibrations need Linux"
        ) from error
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise CalibrationError(f"{meminfo} has no MemAvailable; calibrations need Linux 3.14 or newer")


def _call_s(run: Callable[[], object], turns: Turns) -> float:
    """Processor time of a call."""
    run()  # loads and compiles
    return turns.chosen([seconds_of(run) for _ in range(_REPEATS * turns.count)])
