"""Tasks of one's own are tried before a run, on the outputs of a model for a few samples."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import isfinite
from typing import NamedTuple

import torch
from torch import Tensor, nn

from edgesim.assembly.checked_task import TASK, wrong_loss, wrong_summary, wrong_sums
from edgesim.assembly.own_calls import called, expect, shown
from edgesim.errors import ScenarioError
from edgesim.learning.flat_model import FlatModel
from edgesim.learning.tasks import Targets, Task
from edgesim.results.columns import EVALUATIONS, OWN_PREFIX, TOTALS, VIRTUAL_EVALUATIONS

MODEL = "model.name"
LIKE = 0.05  # relative difference of figures that count as alike

_METRIC = re.compile(r"[a-z][a-z0-9_]*")
_TAKEN = {column.name for column in EVALUATIONS + VIRTUAL_EVALUATIONS + TOTALS}
_CONSENSUS = "consensus_"  # begins names of summary.json, where metrics are too


class _Loss(NamedTuple):
    """A loss, and its gradient at the outputs."""

    value: float
    gradient: Tensor

    def equals(self, other: _Loss) -> bool:
        """Whether both have the same bits."""
        return self.value == other.value and torch.equal(self.gradient, other.gradient)


def rehearse_task(
    make: Callable[[], Task], flat: FlatModel, inputs: Tensor, targets: Tensor
) -> tuple[str, ...]:
    """Take the loss of a batch, with its gradient, and evaluate the batch, several times.

    Args:
        make: makes the task, as each process of a run does.
        flat: the initial model; it is as it was afterwards.
        inputs: a batch.
        targets: of these.

    Returns:
        Notices: that losses or measures are not those of samples, or that nothing is learnt.

    Raises:
        ScenarioError: it fails, gives what is no loss and no measures, or differs when it is
            repeated.
    """
    task = make()
    _check_declarations(task)
    parameters, buffers = flat.parameters.clone(), flat.buffers.clone()
    with flat.around_step():
        trained = _outputs(flat.model.train(), inputs).detach()
    with torch.no_grad():
        evaluated = _outputs(flat.model.eval(), inputs)
    flat.load_(parameters, buffers)
    loss = _loss(task, trained, targets)
    sums = _sums(task, evaluated, targets)
    means = {name: total / len(targets) for name, total in sums.items()}
    figures = called(TASK, "summary", task.summary, means)
    _refuse(wrong_summary(figures, task.metrics))
    for one in (task, make()):
        again = _sums(one, evaluated, targets)
        is_same = repr(dict(sums)) == repr(dict(again))  # nan included
        if not is_same or not loss.equals(_loss(one, trained, targets)):
            raise ScenarioError(
                f"{TASK}: loss or sums differ when they are asked again for the same outputs and "
                "targets; draw no random numbers, and keep nothing between calls"
            )
    return tuple(
        notice
        for notice in (
            _check_sums(task, evaluated, targets, sums),
            _notice_of_loss(task, trained, targets, loss),
        )
        if notice
    )


def check_task_targets(task: Task) -> Targets | None:
    """The targets that a task says that it needs; None if it says nothing."""
    targets: object = getattr(task, "targets", None)
    if targets is not None and not isinstance(targets, Targets):
        raise ScenarioError(
            f"{TASK}: targets is {shown(targets)}; must be a Targets of edgesim.learning.tasks"
        )
    return targets


def _refuse(problem: str) -> None:
    if problem:
        raise ScenarioError(f"{TASK}: {problem}")


def _check_declarations(task: Task) -> None:
    """Refuse names of metrics that are no columns, and parameters that nobody would train."""
    metrics = task.metrics
    if not isinstance(metrics, Mapping) or not all(
        isinstance(word, str) for pair in metrics.items() for word in pair
    ):
        raise ScenarioError(
            f"{TASK}: metrics is {shown(metrics)}; must be a dict of meanings by name"
        )
    for name in metrics:
        is_taken = name in _TAKEN or f"{_CONSENSUS}{name}" in _TAKEN or name.startswith(OWN_PREFIX)
        if not _METRIC.fullmatch(name) or is_taken:
            raise ScenarioError(
                f"{TASK}: a metric is called {name}; must be of a-z, 0-9 and _, and no other "
                "column of evaluations.parquet"
            )
    if isinstance(task, nn.Module) and any(p.requires_grad for p in task.parameters()):
        raise ScenarioError(
            f"{TASK}: the task has parameters of its own, which nobody would train or send; put "
            "them into the model"
        )


def _outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    outputs: Tensor = called(MODEL, "a forward pass", model, inputs)
    expect(MODEL, "a forward pass", outputs, Tensor)
    return outputs


def _loss(task: Task, outputs: Tensor, targets: Tensor) -> _Loss:
    """The loss of outputs, and its gradient at them."""
    own, at = targets.clone(), outputs.clone().requires_grad_()
    loss = called(TASK, "loss", task.loss, at.clone(), own)
    _refuse(wrong_loss(loss, needs_gradient=True))
    if _gradient(at) is not None:
        raise ScenarioError(f"{TASK}: loss takes the backward pass itself; edgesim does that")
    if not torch.equal(own, targets):
        raise ScenarioError(f"{TASK}: loss changes targets, which are not its own; copy them first")
    called(TASK, "the backward pass of loss", loss.sum().backward)
    if (gradient := _gradient(at)) is None:
        raise ScenarioError(
            f"{TASK}: loss has no gradient at the outputs of the model; compute it of them, "
            "without detach(), no_grad() or another tensor made of their values"
        )
    value = float(loss.detach())
    if not isfinite(value):
        raise ScenarioError(f"{TASK}: the loss of the first outputs is {value}")
    return _Loss(value, gradient)


def _gradient(tensor: Tensor) -> Tensor | None:
    return tensor.grad


def _sums(task: Task, outputs: Tensor, targets: Tensor) -> Mapping[str, float]:
    """The measures of outputs."""
    own, at = targets.clone(), outputs.clone()
    with torch.no_grad():
        sums: Mapping[str, float] = called(TASK, "sums", task.sums, at, own)
    _refuse(wrong_sums(sums))
    if not isfinite(sums["loss"]):
        raise ScenarioError(f"{TASK}: sums gives {sums['loss']} as loss of the first outputs")
    if not torch.equal(own, targets):
        raise ScenarioError(f"{TASK}: sums changes targets, which are not its own; copy them first")
    return sums


def _check_sums(
    task: Task, outputs: Tensor, targets: Tensor, sums: Mapping[str, float]
) -> str | None:
    """Refuse means in the place of sums; a notice of what is neither."""
    half = len(targets) // 2
    if half == 0:
        return None
    first = _sums(task, outputs[:half], targets[:half])
    second = _sums(task, outputs[half:], targets[half:])
    for name, whole in sums.items():
        parts = first.get(name, 0) + second.get(name, 0)
        if _are_alike(whole, parts):
            continue
        if _are_alike(2 * whole, parts):
            raise ScenarioError(
                f"{TASK}: sums gives {whole:g} as {name} of {len(targets)} samples, and "
                f"{first[name]:g} and {second[name]:g} of their halves: a mean; must be the sum "
                "over samples, which is divided by their number"
            )
        return (
            f"{TASK}: {name} of {len(targets)} samples is {whole:g} in sums, and that of their "
            f"halves {parts:g} together: so figures of evaluations depend on how samples are "
            "grouped"
        )
    return None


def _notice_of_loss(task: Task, outputs: Tensor, targets: Tensor, loss: _Loss) -> str | None:
    """That a loss is a sum over samples, or that nothing is learnt from it."""
    if not loss.gradient.any():
        return f"{TASK}: the gradient of the loss at the first outputs is 0: nothing is learnt"
    twice = _loss(task, torch.cat([outputs, outputs]), torch.cat([targets, targets])).value
    if loss.value and _are_alike(twice, 2 * loss.value):
        return (
            f"{TASK}: the loss is {loss.value:g}, and {twice:g} if each sample is there twice: a "
            "sum over samples; learning rates and the column loss are meant for means"
        )
    return None


def _are_alike(value: float, other: float) -> bool:
    return value == other or abs(value - other) <= LIKE * max(abs(value), abs(other))
