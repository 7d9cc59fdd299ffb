"""Compilation of what only compiled functions call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def inner(function: Function) -> Function:
    """Compile a function as the kernels' others, but not to be called from Python.

    Without the code for such calls it compiles in two thirds of the time.
    """
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast("Function", njit(nogil=True, cache=True, **options)(function))
