"""Tasks of one's own are tried before a run, on the outputs of a model for a few samples."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import NamedTuple

import torch
from torch import Tensor, nn

from edgesim.assembly.parts.checked_task import TASK, wrong_loss, wrong_summary, wrong_sums
from edgesim.assembly.parts.own_calls import called, expect, shown
from edgesim.errors import ScenarioError
from edgesim.learning.flat_model import FlatModel
from edgesim.learning.tasks import Targets, Task
from edgesim.models.dropout import seed_dropout_
from edgesim.quant.layers import seed_rounding_
from edgesim.results.columns import EVALUATION_NAMES, OWN_PREFIX

MODEL = "model.name"
LIKE = 0.05  # relative difference of figures that count as alike
ROUNDING = 1e-4  # of sums in another order; those of four samples in fp32 differ by some 1e-7
EPSILONS = 4  # of the type of outputs, by which sums of fewer bits may differ
SAME_SIZE, OTHER_SIZE = 2, 100  # times; losses of one size, and of sizes that are no penalty's
CANCELLED = 0.5  # of the sum of magnitudes; below it a sum of losses of either sign is near 0
UNLIKE = (-2, 6)  # powers of 2, by the first and the last of which unlike samples are scaled

_METRIC = re.compile(r"[a-z][a-z0-9_]*")
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
    seed_dropout_(flat.leaf_modules, 0)
    seed_rounding_(flat.leaf_modules, 0)
    with flat.around_step():
        trained = _outputs(flat.model.train(), inputs).detach()
    with torch.no_grad():
        evaluated = _outputs(flat.model.eval(), inputs)
    flat.load_(parameters, buffers)
    loss = _loss(task, trained, targets)
    sums = _sums(task, evaluated, targets)
    if not isfinite(sums["loss"]):
        raise ScenarioError(f"{TASK}: sums gives {sums['loss']} as loss of the first outputs")
    _figures(task, [sums], len(targets))
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
            _check_sums(task, evaluated, targets),
            _notice_of_loss(task, trained, targets, loss),
            _notice_of_reported(task, trained, targets, loss),
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
        is_taken = (
            name in EVALUATION_NAMES
            or f"{_CONSENSUS}{name}" in EVALUATION_NAMES
            or name.startswith(OWN_PREFIX)
        )
        if not _METRIC.fullmatch(name) or is_taken:
            raise ScenarioError(
                f"{TASK}: a metric is called {name}; must be of a-z, 0-9 and _, and no other "
                "column of evaluations.parquet"
            )
    if isinstance(task, nn.Module) and any(p.requires_grad for p in task.parameters()):
        raise ScenarioError(
            f"{TASK}: the task has parameters of its own, which nobody would train or send; put "
            "them into the model, or freeze them: requires_grad_(False)"
        )


def _outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    outputs: Tensor = called(MODEL, "a forward pass", model, inputs)
    expect(MODEL, "a forward pass", outputs, Tensor)
    if not outputs.is_floating_point():
        raise ScenarioError(f"{MODEL}: a forward pass gives {shown(outputs)}; must be of floats")
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
    if not torch.isfinite(gradient).all():
        raise ScenarioError(
            f"{TASK}: the loss of the first outputs is finite, and its gradient is not; look for a "
            "root or a norm of 0"
        )
    return _Loss(value, gradient)


def _gradient(tensor: Tensor) -> Tensor | None:
    return tensor.grad


def _sums(task: Task, outputs: Tensor, targets: Tensor) -> Mapping[str, float]:
    """The measures of outputs."""
    own, at = targets.clone(), outputs.clone()
    with torch.no_grad():
        sums: Mapping[str, float] = called(TASK, "sums", task.sums, at, own)
    _refuse(wrong_sums(sums))
    if not torch.equal(own, targets):
        raise ScenarioError(f"{TASK}: sums changes targets, which are not its own; copy them first")
    return sums


def _figures(
    task: Task, sums: Sequence[Mapping[str, float]], num_samples: int
) -> Mapping[str, float]:
    """Figures of an evaluation by the sums of its batches."""
    names = dict.fromkeys(name for of_batch in sums for name in of_batch)
    means = {name: sum(of.get(name, 0) for of in sums) / num_samples for name in names}
    figures: Mapping[str, float] = called(TASK, "summary", task.summary, means)
    _refuse(wrong_summary(figures, task.metrics))
    return figures


def _check_sums(task: Task, outputs: Tensor, targets: Tensor) -> str | None:
    """Refuse what is no sum over samples, such as a mean; a notice of what is not quite one.

    Sums of parts of the batch are compared with those of the whole: of halves, and of each sample
    alone. So are those of unlike samples, in which a root of a mean is far from the mean of roots.
    """
    num_samples = len(targets)
    if num_samples < 2 or outputs.ndim == 0 or len(outputs) != num_samples:
        return None
    for tried in ((outputs, targets), _unlike(outputs, targets)):
        for num_parts in dict.fromkeys((2, num_samples)):
            if notice := _check_parts(task, *tried, num_parts):
                return notice
    return None


def _unlike(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs of unlike size, and targets too where they are numbers; so are errors and losses."""
    factors = torch.logspace(*UNLIKE, len(targets), base=2)
    return _scaled(outputs, factors), _scaled(targets, factors)


def _scaled(values: Tensor, factors: Tensor) -> Tensor:
    if not values.is_floating_point():
        return values
    return values * factors.to(values.dtype).reshape(-1, *[1] * (values.ndim - 1))


def _check_parts(task: Task, outputs: Tensor, targets: Tensor, num_parts: int) -> str | None:
    """The same of one division of the batch."""
    num_samples = len(targets)
    pairs = zip(outputs.tensor_split(num_parts), targets.tensor_split(num_parts), strict=True)
    try:
        whole = _sums(task, outputs, targets)
        parts = [_sums(task, *pair) for pair in pairs]
        figures = _figures(task, [whole], num_samples)
        by_parts = _figures(task, parts, num_samples)
    except (
        ScenarioError
    ):  # fewer samples are none that it can measure, such as those without labels
        return None
    like = max(ROUNDING, EPSILONS * torch.finfo(outputs.dtype).eps)
    if all(
        _is_sum(value, [part.get(name, 0) for part in parts], like) for name, value in whole.items()
    ):
        return None
    for name, figure in figures.items():
        by_part = by_parts[name]
        if _are_alike(figure, by_part, like) or not isfinite(by_part):
            continue
        said = (
            f"{TASK}: {name} of {num_samples} samples is {figure:.4g} if they are one batch, and "
            f"{by_part:.4g} if they are {'two' if num_parts == 2 else num_parts}"
        )
        if _are_alike(num_parts * figure, by_part):
            raise ScenarioError(
                f"{said}: sums must give sums over samples, no means or maxima, as those of all "
                "batches are added and divided by the number of samples"
            )
        return f"{said}: so evaluations depend on how samples are grouped"
    return None


def _is_sum(whole: float, parts: Sequence[float], like: float) -> bool:
    """Whether a measure of all samples is the sum of its parts, as far as rounding tells."""
    return abs(whole - sum(parts)) <= like * sum(map(abs, parts))


def _notice_of_loss(task: Task, outputs: Tensor, targets: Tensor, loss: _Loss) -> str | None:
    """That a loss is a sum over samples, or that nothing is learnt from it."""
    if not loss.gradient.any():
        return f"{TASK}: the loss of {len(targets)} samples has a gradient of 0: nothing is learnt"
    if outputs.ndim == 0 or len(outputs) != len(targets):
        return None
    twice = _loss(task, torch.cat([outputs, outputs]), torch.cat([targets, targets])).value
    if loss.value and _are_alike(twice, 2 * loss.value):
        return (
            f"{TASK}: the loss is {loss.value:g}, and {twice:g} if each sample is there twice: a "
            "sum over samples; learning rates and the column loss are meant for means"
        )
    return None


def _notice_of_reported(task: Task, outputs: Tensor, targets: Tensor, loss: _Loss) -> str | None:
    """That what evaluations report has the other sign than what is trained, or another size.

    They may differ on purpose, as by a penalty that training adds. Both are of the same outputs,
    as statistics of norms make those of an evaluation others. A mean near 0 of losses of either
    sign says nothing: it is measured by the magnitudes of the losses of single samples.
    """
    num_samples = len(targets)
    try:
        reported = _sums(task, outputs, targets)["loss"] / num_samples
    except ScenarioError:  # outputs of training may have a form of their own
        return None
    least, most = sorted((abs(loss.value), abs(reported)))
    is_reversed = loss.value * reported < 0 and most <= SAME_SIZE * least
    if not is_reversed and most <= OTHER_SIZE * least:
        return None
    if not isfinite(reported) or _cancels(task, outputs, targets):
        return None
    return (
        f"{TASK}: loss gives {loss.value:.4g} for {num_samples} samples, and sums a mean of "
        f"{reported:.4g}: training goes by the first, evaluations report the second"
    )


def _cancels(task: Task, outputs: Tensor, targets: Tensor) -> bool:
    """Whether losses of single samples, trained or reported, add up to almost nothing."""
    if outputs.ndim == 0 or len(outputs) != len(targets):
        return False
    samples = list(zip(outputs.split(1), targets.split(1), strict=True))
    try:
        trained = [_loss(task, *sample).value for sample in samples]
        reported = [_sums(task, *sample)["loss"] for sample in samples]
    except ScenarioError:  # it takes no single samples
        return False
    return any(
        len({value > 0 for value in losses if value}) > 1
        and abs(sum(losses)) <= CANCELLED * sum(map(abs, losses))
        for losses in (trained, reported)
    )


def _are_alike(value: float, other: float, like: float = LIKE) -> bool:
    if not (isfinite(value) and isfinite(other)):
        return str(value) == str(other)  # nan included
    return abs(value - other) <= like * max(abs(value), abs(other))
