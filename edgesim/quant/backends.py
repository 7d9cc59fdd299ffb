"""The back ends by name, and the choice between them."""

from __future__ import annotations

from typing import Literal, assert_never

from edgesim.quant.arithmetic import Arithmetic
from edgesim.quant.reference import Reference
from edgesim.quant.settings import QuantizationSettings

BackendName = Literal["reference"]


def choose_backend(
    wanted: Literal["auto", "reference"],
    settings: QuantizationSettings,  # noqa: ARG001
    accelerator: Literal["cpu", "cuda"],  # noqa: ARG001
) -> BackendName:
    """The back end of a fleet; `auto` takes the fastest that can serve.

    Args:
        wanted: as scenarios have it.
        settings: of quantization; not every back end serves all of them.
        accelerator: where models compute.
    """
    match wanted:
        case "auto" | "reference":
            return "reference"
        case _:
            assert_never(wanted)


def make_backend(name: BackendName, settings: QuantizationSettings) -> Arithmetic:
    """A back end."""
    match name:
        case "reference":
            return Reference(has_integer_zero=settings.has_integer_zero)
        case _:
            assert_never(name)


def describe_backend(name: BackendName) -> str:
    """One line for people: the name, and which kernels of which library do the work."""
    match name:
        case "reference":
            return f"{Reference.name} ({Reference.description})"
        case _:
            assert_never(name)
