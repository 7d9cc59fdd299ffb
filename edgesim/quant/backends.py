"""The back ends by name, and the choice between them by probing the processor."""

from __future__ import annotations

import platform
from typing import Literal, assert_never

from edgesim.quant.arithmetic import Arithmetic
from edgesim.quant.errors import BackendError
from edgesim.quant.reference import Reference
from edgesim.quant.settings import QuantizationSettings

BackendName = Literal["reference", "int8_cpu"]


def choose_backend(
    wanted: Literal["auto"] | BackendName,
    settings: QuantizationSettings,
    accelerator: Literal["cpu", "cuda"],
) -> BackendName:
    """The back end of a fleet; `auto` chooses the integer kernels where they can work.

    Args:
        wanted: as scenarios have it.
        settings: of quantization; not every back end serves all of them.
        accelerator: where models compute.

    Raises:
        BackendError: the scenario names `int8_cpu`, which cannot work here.
    """
    if wanted == "reference":
        return "reference"
    obstacle = _obstacle_to_int8_cpu(settings, accelerator)
    if obstacle is None:
        return "int8_cpu"
    if wanted == "int8_cpu":
        raise BackendError(
            f"model.quantization.backend is int8_cpu, but {obstacle}; choose auto or reference"
        )
    return "reference"


def make_backend(name: BackendName, settings: QuantizationSettings) -> Arithmetic:
    """A back end, for the use of one thread at a time.

    Raises:
        BackendError: the back end, chosen on another machine, cannot work on this one.
    """
    match name:
        case "reference":
            return Reference(has_integer_zero=settings.has_integer_zero)
        case "int8_cpu":
            from edgesim.quant.int8_cpu import Int8Cpu  # loads numba: half a second

            obstacle = _obstacle_to_int8_cpu(settings, "cpu")
            if obstacle is not None:
                raise BackendError(
                    f"{platform.node()}: the fleet computes with int8_cpu, but {obstacle}; set "
                    "model.quantization.backend: reference"
                )
            return Int8Cpu()
        case _:
            assert_never(name)


def describe_backend(name: BackendName) -> str:
    """One line for people: the name, the kernels and their library."""
    match name:
        case "reference":
            return f"{Reference.name} ({Reference.description})"
        case "int8_cpu":
            from edgesim.quant.int8_cpu import Int8Cpu

            return f"{Int8Cpu.name} ({Int8Cpu().description})"
        case _:
            assert_never(name)


def _obstacle_to_int8_cpu(
    settings: QuantizationSettings, accelerator: Literal["cpu", "cuda"]
) -> str | None:
    """Why integer kernels cannot be used, as a clause for a message; None if they can."""
    if not settings.has_integer_zero:
        return "the grids of zero_point: float_offset have no integers to compute with"
    if accelerator != "cpu":
        return f"models compute on {accelerator}"
    from edgesim.quant.kernels.products.native import multiply_add_is_native

    if not multiply_add_is_native():
        return "this processor lacks the 16-bit multiply-add of AVX2"
    return None
