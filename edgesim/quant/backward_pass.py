"""Whether autograd computes gradients: `torch.utils.checkpoint` calls layers again meanwhile."""

from __future__ import annotations

import torch


def in_backward_pass() -> bool:
    """Whether this thread is within a backward pass."""
    return bool(torch._C._current_graph_task_id() != -1)  # noqa: SLF001 (no public name)
