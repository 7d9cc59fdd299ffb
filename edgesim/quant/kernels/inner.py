"""Compilation of functions that only compiled functions call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from edgesim.compiled import compiled

Function = TypeVar("Function", bound=Callable[..., object])


def inner(function: Function) -> Function:
    """Compile a function with the options of the kernels, for calls from compiled code alone.

    Without an entry point for Python it compiles in two thirds of the time. A division by zero
    gives infinity, as in numpy: a check would keep loops from using vectors.
    """
    options: dict[str, Any] = {
        "no_cpython_wrapper": True,
        "no_cfunc_wrapper": True,
        "error_model": "numpy",
    }
    return compiled(function, **options)
