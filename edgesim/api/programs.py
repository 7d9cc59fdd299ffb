"""Models as programs of `torch.export`, which run without edgesim."""

from __future__ import annotations

import os
from contextlib import redirect_stderr
from copy import deepcopy
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from edgesim.errors import EdgesimError

PROGRAM = ".pt2"  # torch's suffix of exported programs
ABOUT_PROGRAM = "edgesim.json"  # in the file of a program


class NoProgramError(EdgesimError):
    """A model can't be written as a program."""


def traced(
    module: nn.Module, input_shape: tuple[int, ...], dtype: torch.dtype, place: str
) -> ExportedProgram:
    """A module as a program that takes batches of any size.

    Args:
        module: stays as it is.
        input_shape: of one input.
        dtype: of inputs.
        place: where the module comes from, for messages.

    Raises:
        NoProgramError: torch can't trace it.
    """
    # A batch of one would fix the size of batches. No sample of the fleet is in the file.
    example = torch.zeros((2, *input_shape), dtype=dtype)
    try:
        return _program(deepcopy(module).eval().requires_grad_(requires_grad=False), example)
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
        raise NoProgramError(
            f"{place}: torch.export can't trace the model ({type(error).__name__}: {said}); save "
            "its values in a file that ends in .pt"
        ) from error


def _program(module: nn.Module, example: Tensor) -> ExportedProgram:
    """Trace a module for batches of any size; what torch prints meanwhile is left out.

    It is traced as it runs, and if that fails by its Python code, which some modules need.
    """
    sizes, errors = ({0: Dim("batch")},), []
    with Path(os.devnull).open("w") as nowhere, redirect_stderr(nowhere):
        for strict in (False, True):
            try:
                return torch.export.export(module, (example,), dynamic_shapes=sizes, strict=strict)
            except Exception as error:  # noqa: BLE001 (told to the caller)
                errors.append(error)
    raise errors[0]
