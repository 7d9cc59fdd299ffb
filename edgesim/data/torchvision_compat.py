"""Imports torchvision, also where its compiled operators cannot be loaded.

torchvision from the package index is built for CUDA; beside a CPU build of torch its C++ library
does not load, and `import torchvision` fails on the first operator that it expects from there.
Datasets need none of these operators, so it is enough to declare them. Nothing is declared if the
operators are present. Importing torchvision takes seconds: call this only when its files are read.
"""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MISSING_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


@cache
def torchvision_datasets() -> ModuleType:
    """The module `torchvision.datasets`."""
    try:
        return importlib.import_module("torchvision.datasets")
    except RuntimeError as error:
        if "operator torchvision::nms does not exist" not in str(error):
            raise
    _declare_missing_operators()
    return importlib.import_module("torchvision.datasets")


@cache  # torch forgets the declarations when the library object is deleted
def _declare_missing_operators() -> torch.library.Library:
    import torch  # as late as torchvision: listing the datasets must not load it

    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in MISSING_OPERATORS:
        library.define(schema)
    return library
