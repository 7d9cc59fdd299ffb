"""What layers know of autograd: what it keeps for the backward pass, and whether it is in one."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Context(Protocol):
    """What autograd keeps from the forward to the backward pass."""

    saved_tensors: tuple[Tensor, ...]

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keep tensors, which the backward pass finds in `saved_tensors`."""


def in_backward_pass() -> bool:
    """Whether this thread is within a backward pass.

    `torch.utils.checkpoint` calls layers again meanwhile.
    """
    return bool(torch._C._current_graph_task_id() != -1)  # noqa: SLF001 (no public name)
