"""The accelerator of models, CPU or GPU; results are repeatable on both."""

from __future__ import annotations

import os
from typing import Literal

import torch

from edgesim.errors import EdgesimError

Accelerator = Literal["cpu", "cuda"]


class AcceleratorError(EdgesimError, ValueError):
    """The scenario asks for a GPU, but there is none."""


def choose_accelerator(wanted: Literal["auto", "cpu", "cuda"], num_gpus: float) -> Accelerator:
    """Choose the accelerator of a fleet.

    Args:
        wanted: `auto` takes GPUs where there are any.
        num_gpus: of this machine, or of the cluster.

    Raises:
        AcceleratorError: `cuda` without a GPU.
    """
    if wanted == "cuda" and not num_gpus:
        raise AcceleratorError(
            "fleet.accelerator is cuda, but there is no GPU that torch can use; "
            "choose auto or cpu, or a cluster with GPUs (--address)"
        )
    return "cuda" if num_gpus and wanted != "cpu" else "cpu"


def num_local_gpus() -> int:
    """GPUs of this machine that torch can use."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def open_device(accelerator: Accelerator) -> torch.device:
    """This process's torch device, with all settings for repeatable results.

    TF32, which is switched off, would round factors of products to 10 bits, also the whole numbers
    of 8-bit training.
    """
    if accelerator == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # as torch's manual asks for
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False
    return torch.device(accelerator)
