"""Checks of arrays before a kernel runs, which itself checks no bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgesim.quant.kernels.errors import KernelError


def require(
    name: str, array: NDArray[Any], dtype: type[np.generic], shape: tuple[int, ...]
) -> None:
    """Check that an array is contiguous and of this type and shape.

    Raises:
        KernelError: it is not one.
    """
    if array.dtype.type is dtype and array.shape == shape and array.flags.c_contiguous:
        return
    layout = "contiguous" if array.flags.c_contiguous else "strided"
    raise KernelError(
        f"{name} is {layout} {array.dtype} of shape {array.shape}; "
        f"the kernel takes contiguous {np.dtype(dtype)} of shape {shape}"
    )
