"""The measurement of a machine: rates, times of layers, memory, power, the way to a peer."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from edgesim.calibration.errors import CalibrationError
from edgesim.calibration.fit import Fit, fit_times
from edgesim.calibration.micro_messages import micro_messages
from edgesim.calibration.micro_networks import Arithmetics, Sizes, micro_networks
from edgesim.calibration.micro_updates import micro_updates
from edgesim.calibration.network import Reached, measure_peer
from edgesim.calibration.power import POWERCAP, EnergyCounter, find_counter
from edgesim.calibration.rates import (
    available_bytes,
    elementwise_ops_per_s,
    int8_macs_per_s,
    macs_per_s,
    memory_bytes_per_s,
)
from edgesim.calibration.timing import Timed, timed
from edgesim.calibration.turns import Turns
from edgesim.learning.allocator import keep_freed_memory
from edgesim.learning.threads import one_thread
from edgesim.quant.arithmetic import Arithmetic
from edgesim.quant.backends import BackendName, choose_backend, make_backend
from edgesim.quant.settings import QuantizationSettings
from edgesim.system import processor

_TURNS = Turns(2)
_IDLE_S = 2.0  # for which idle power is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Power of the processor packages.

    Attributes:
        idle_w: while this program waits.
        active_w: while it computes on one core.
    """

    idle_w: float
    active_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was measured.

    Attributes:
        machine: processor and system, in words.
        fp32_macs_per_s: multiply-accumulates of 32-bit floats per second.
        bits16_macs_per_s: of bfloat16.
        int8_macs_per_s: of 8-bit codes, by the back end.
        backend: of 8-bit arithmetic, which runs on this machine choose.
        memory_bandwidth: bytes per second.
        elementwise_ops_per_s: operations per second on vectors.
        memory_bytes: that a new program can use.
        fits: times of kinds of layers.
        turns: of each measurement.
        power: None if the kernel has no counters.
        no_power: why it has none; empty if it has.
        peer: rate and latency to a peer; None if none was named.
    """

    machine: str
    fp32_macs_per_s: float
    bits16_macs_per_s: float
    int8_macs_per_s: float
    backend: BackendName
    memory_bandwidth: float
    elementwise_ops_per_s: float
    memory_bytes: int
    fits: tuple[Fit, ...]
    turns: Turns
    power: Power | None
    no_power: str
    peer: Reached | None


Note = Callable[[int, int, str], None]
"""Is told of progress: parts done, parts in all, and what is measured now."""


def calibrate(
    note: Note,
    settings: QuantizationSettings,
    *,
    turns: Turns = _TURNS,
    sizes: Sizes = "full",
    peer: str | None = None,
    powercap: Path = POWERCAP,
) -> Calibration:
    """Measure this machine on one thread, as devices compute.

    Args:
        note: is told of progress.
        settings: of 8-bit arithmetic.
        turns: of each measurement; more turns are disturbed less by other programs.
        sizes: of the small networks.
        peer: `host:port` of a peer that serves; None for none.
        powercap: folder of the counters of energy.

    Raises:
        CalibrationError: something can't be measured.
    """
    if turns.count < 1:
        raise CalibrationError(f"--rounds is {turns.count}; must be at least 1")
    name = choose_backend("auto", settings, "cpu")
    backend = make_backend(name, settings)
    networks = _networks(backend, settings, sizes)
    total = turns.count * len(networks) + 8
    progress = _Progress(note, total)
    keep_freed_memory()  # as in runs
    with one_thread():
        progress.of("network")
        reached = None if peer is None else measure_peer(peer)
        progress.of("memory")
        memory_bytes = available_bytes()
        counter = find_counter(powercap)
        progress.of("power while idle")
        idle_w = None if isinstance(counter, str) else _idle_w(counter)
        progress.of("products of fp32")
        fp32 = macs_per_s(torch.float32, turns, sizes)
        progress.of("products of 16 bits")
        bits16 = macs_per_s(torch.bfloat16, turns, sizes)
        progress.of("products of 8 bits")
        int8 = int8_macs_per_s(backend, turns, sizes)
        progress.of("memory bandwidth")
        bandwidth = memory_bytes_per_s(turns, sizes)
        progress.of("element-wise operations")
        elementwise = elementwise_ops_per_s(turns, sizes)
        fits: list[Fit] = []

        def time_layers(look: Callable[[], None]) -> None:
            def next_part(what: str) -> None:
                look()
                progress.of(what)

            fits.extend(fit_times(timed(iter(networks), turns, next_part), turns))

        power, no_power = None, ""
        if isinstance(counter, str):
            no_power = counter
            time_layers(lambda: None)
        else:
            assert idle_w is not None, "measured with the same counter"
            # Noise of the counters may not make computing cheaper than waiting.
            active_w = max(idle_w, counter.power_w(time_layers))
            if active_w > 0:
                power = Power(idle_w=idle_w, active_w=active_w)
            else:
                no_power = f"the counters in {powercap} stand still"
    return Calibration(
        machine=machine(),
        fp32_macs_per_s=fp32,
        bits16_macs_per_s=bits16,
        int8_macs_per_s=int8,
        backend=name,
        memory_bandwidth=bandwidth,
        elementwise_ops_per_s=elementwise,
        memory_bytes=memory_bytes,
        fits=tuple(fits),
        turns=turns,
        power=power,
        no_power=no_power,
        peer=reached,
    )


def machine() -> str:
    """Processor and system, in words; no name of the machine."""
    name = processor() or platform.machine()
    return f"{name} ({platform.machine()}), torch {torch.__version__}"


def _networks(backend: Arithmetic, settings: QuantizationSettings, sizes: Sizes) -> list[Timed]:
    fp32, int8 = Arithmetics(None, settings), Arithmetics(backend, settings)
    return [
        *micro_networks(fp32, sizes),
        *micro_networks(int8, sizes),
        *micro_messages(sizes),
        *micro_updates(sizes),
    ]


def _idle_w(counter: EnergyCounter) -> float:
    return counter.power_w(lambda _: time.sleep(_IDLE_S))


class _Progress:
    """Counts the parts that have begun."""

    def __init__(self, note: Note, total: int) -> None:
        self._note, self._total, self._done = note, total, 0

    def of(self, what: str) -> None:
        """A part begins."""
        self._note(self._done, self._total, what)
        self._done += 1
