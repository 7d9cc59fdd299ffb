"""A task of one's own in a run: each value is checked, so that late faults are told."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import cast

import torch
from torch import Tensor

from edgesim.assembly.parts.own_calls import Checked, shown
from edgesim.errors import MEND_OWN_CODE, OwnCodeError
from edgesim.learning.tasks import Task

TASK = "training.task"

_ROUNDING = 1e-6  # of a share that is a quotient of sums


class CheckedTask(Checked[Task]):
    """Does what a task of one's own does, and checks what it gives."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """As `Task.loss`.

        Raises:
            OwnCodeError: it is no number with a gradient, or not finite for finite outputs.
        """
        loss = self.own.loss(outputs, targets)
        _refuse(wrong_loss(loss, needs_gradient=torch.is_grad_enabled()))
        if not torch.isfinite(loss).all() and torch.isfinite(outputs).all():
            _refuse(f"loss gives {float(loss.detach())} for outputs that are finite")
        return loss

    def sums(self, outputs: Tensor, targets: Tensor) -> Mapping[str, float]:
        """As `Task.sums`.

        Raises:
            OwnCodeError: they are no numbers, or have no loss.
        """
        sums = self.own.sums(outputs, targets)
        _refuse(wrong_sums(sums))
        return sums

    def summary(self, means: Mapping[str, float]) -> Mapping[str, float]:
        """As `Task.summary`.

        Raises:
            OwnCodeError: figures are lacking, or are no numbers.
        """
        figures = self.own.summary(means)
        _refuse(wrong_summary(figures, self.own.metrics))
        return figures


def checked(task: Task) -> Task:
    """A task of one's own whose values are checked."""
    return cast("Task", CheckedTask(task))


def _refuse(problem: str) -> None:
    if problem:
        raise OwnCodeError(f"{TASK}: {problem}\n{MEND_OWN_CODE}")


def wrong_loss(loss: object, *, needs_gradient: bool) -> str:
    """What is wrong with a loss; empty if nothing is. Whether it is finite is seen elsewhere."""
    if isinstance(loss, Tensor) and loss.numel() == 1 and loss.requires_grad >= needs_gradient:
        return ""
    return f"loss gives {shown(loss)}; must be one number with a gradient, the mean over the batch"


def wrong_sums(sums: object) -> str:
    """What is wrong with the sums of a batch; empty if nothing is."""
    return _wrong_figures("sums(outputs, targets)", sums, ("loss",))


def wrong_summary(figures: object, metrics: Mapping[str, str]) -> str:
    """What is wrong with the figures of an evaluation; empty if nothing is."""
    said = "summary(means)"
    if problem := _wrong_figures(said, figures, ("loss", *metrics)):
        return problem
    assert isinstance(figures, Mapping), "as no problem was found"
    if more := set(figures) - {"accuracy", "loss", *metrics}:
        return f"{said} gives {', '.join(sorted(map(str, more)))} too; name it in metrics"
    accuracy = figures.get("accuracy", 0)
    if not isfinite(accuracy) or not 0 <= accuracy <= 1 + _ROUNDING:
        return f"{said} gives an accuracy of {accuracy:g}; must be a share, from 0 to 1"
    return ""


def _wrong_figures(said: str, figures: object, needed: tuple[str, ...]) -> str:
    if not isinstance(figures, Mapping):
        return f"{said} gives {shown(figures)}; must be a dict of numbers"
    for name in needed:
        if name not in figures:
            return f"{said} has no {name}"
    for name, figure in figures.items():
        if not isinstance(figure, float | int):
            return f"{said} gives {shown(figure)} as {name}; must be a number of Python: float(...)"
    return ""
