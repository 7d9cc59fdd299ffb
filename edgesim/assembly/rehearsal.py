"""Parts of one's own are tried before a run: each does once what it will do in every round.

What a part gives is checked where it is given. In a run a wrong value would be noticed later, far
from the code that made it, or not at all. Parts of the catalog are made, which checks their
options, but not tried.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from edgesim.assembly.checked_compressor import unchecked
from edgesim.assembly.gossip import make_algorithm, with_some_rate
from edgesim.assembly.optimization import make_learning_rates, make_optimizer, use_of_rate
from edgesim.assembly.own_calls import (
    called,
    check_finite,
    check_kept,
    expect,
    flat_vectors,
    is_own,
    new_rng,
    shown,
)
from edgesim.assembly.own_data import batch_transform
from edgesim.assembly.own_errors import own_code
from edgesim.assembly.own_topology import rehearse_topology
from edgesim.assembly.rehearsal_of_gossip import (
    VECTOR_ERROR,
    check_algorithm,
    check_compressor,
    rehearse_algorithm,
    rehearse_compressor,
)
from edgesim.assembly.trial_of_gossip import small_change
from edgesim.data.batches import transformed
from edgesim.device.trainer import rate_of_0
from edgesim.errors import ScenarioError
from edgesim.gossip.algorithm import Algorithm
from edgesim.hardware.work import Work
from edgesim.learning.flat_model import FlatModel
from edgesim.learning.optimizers import LearningRates, Optimizer
from edgesim.learning.tasks import Task
from edgesim.results.columns import EVALUATIONS, OWN_EVALUATIONS, VIRTUAL_EVALUATIONS
from edgesim.scenario.schema import Scenario
from edgesim.scenario.topology import OtherTopology
from edgesim.storage.state_tree import Packed, restore_
from topologies import Schedule

OPTIMIZER, SCHEDULE = "training.optimizer.kind", "training.schedule.kind"
DATASET, MODEL, TASK = "data.source", "model.name", "training.task"
STEPS = 3  # of an optimizer that are tried
MOST_EPOCHS = 1000  # whose learning rates are looked at

_METRIC = re.compile(r"[a-z][a-z0-9_]*")
_TAKEN = {column.name for column in EVALUATIONS + VIRTUAL_EVALUATIONS + OWN_EVALUATIONS}


@own_code()
def rehearse(
    scenario: Scenario,
    schedule: Schedule,
    flat: FlatModel,
    batch: tuple[Tensor, Tensor],
    num_epochs: int,
) -> tuple[str, ...]:
    """Make all parts that devices are made of, and try those of one's own.

    Args:
        scenario: of the run; its averaging rate may not have been found yet.
        schedule: of its graphs.
        flat: the initial model; it is as it was afterwards.
        batch: inputs and targets of a few samples.
        num_epochs: of the run.

    Returns:
        Notices: what is allowed and easily overlooked.

    Raises:
        ScenarioError: one of them fails, or gives what can't be used.
    """
    gossip, training = scenario.gossip, scenario.training
    algorithm = make_algorithm(with_some_rate(scenario), flat.layout, schedule)
    optimizer, rates = make_optimizer(scenario), make_learning_rates(scenario)
    check_declarations(scenario, algorithm, None)
    notices: list[str | None] = []
    if isinstance(scenario.topology, OtherTopology):
        rehearse_topology(scenario, scenario.topology)
    x = flat.parameters.cpu()
    if is_own(gossip.compressor.kind):
        rehearse_compressor(unchecked(algorithm.compressor), flat.layout, small_change(x))
    if is_own(gossip.algorithm):
        notices.extend(rehearse_algorithm(algorithm, x, schedule))
    if is_own(training.optimizer.kind):
        own_x, lr = x[: flat.num_trainable], training.optimizer.lr
        notices.append(_rehearse_optimizer(optimizer, own_x, lr))
    if is_own(training.schedule.kind):
        notices.append(_rehearse_rates(rates, num_epochs, use_of_rate(algorithm, optimizer)))
    if (transform := batch_transform(scenario.data)) is not None:
        called(DATASET, "transform", transformed, batch[0].numpy(), transform, new_rng())
    return tuple(notice for notice in notices if notice)


def check_declarations(
    scenario: Scenario, algorithm: Algorithm[Any], optimizer: Optimizer | None
) -> None:
    """Refuse what one's own parts say of their messages and their work, if it can't be counted.

    Args:
        scenario: that names them.
        algorithm: with its compressor and layout.
        optimizer: None where it is looked at elsewhere.

    Raises:
        ScenarioError: a name, a count or a sum of bytes has another form.
    """
    compressor, layout = unchecked(algorithm.compressor), algorithm.layout
    if is_own(scenario.gossip.compressor.kind):
        check_compressor(compressor, layout)
    if optimizer is not None and is_own(scenario.training.optimizer.kind):
        _check_optimizer_declarations(optimizer, layout.numel)
    if is_own(scenario.gossip.algorithm):
        check_algorithm(algorithm)


def _check_optimizer_declarations(optimizer: Optimizer, numel: int) -> None:
    for name in ("kept", "kept_in_gossip"):
        if not isinstance(number := getattr(optimizer, name), int):
            raise ScenarioError(
                f"{OPTIMIZER}: {name} is {number!r}; must be a number of flat vectors"
            )
    expect(OPTIMIZER, "work(n)", called(OPTIMIZER, "work", optimizer.work, numel), Work)


def _rehearse_optimizer(optimizer: Optimizer, x: Tensor, lr: float) -> str | None:
    """Take some steps, each with a look at what gossip did, three times; the last with checkpoints.

    Returns:
        A notice that the steps change nothing; None if they do.
    """
    key = OPTIMIZER
    _check_optimizer_declarations(optimizer, len(x))
    first = _steps(optimizer, x, lr)
    if first != _steps(optimizer, x, lr):
        raise ScenarioError(f"{key}: two steps from the same state and gradient differ")
    if first != _steps(optimizer, x, lr, resumes=True):
        raise ScenarioError(
            f"{key}: after a checkpoint it goes on with other steps; keep all that changes in the "
            "state, and let no two of its tensors share memory: clone one of them"
        )
    if first[-1] == _bits(x):
        return f"{key}: {STEPS} steps have not changed x; step_ must change it in place"
    return None


def _steps(
    optimizer: Optimizer, x: Tensor, lr: float, *, resumes: bool = False
) -> tuple[bytes, ...]:
    """Bits of x after each step.

    Args:
        optimizer: of one's own.
        x: parameters to begin with.
        lr: learning rate.
        resumes: whether the state is written and read back after each step.
    """
    key, moved, bits = OPTIMIZER, x.clone(), []
    state = called(key, "init", optimizer.init, moved)
    check_kept(key, state)
    for step in range(STEPS):
        gradient = small_change(x, seed=1 + step)
        returned = called(key, "step_", optimizer.step_, state, moved, gradient, lr)
        if isinstance(returned, Tensor) and torch.equal(moved, x):
            raise ScenarioError(
                f"{key}: step_ returns a tensor and leaves x as it was; it must change x in place"
            )
        called(key, "after_gossip_", optimizer.after_gossip_, state, moved, 1.0, lr)
        check_kept(key, state)
        if moved.shape != x.shape:
            raise ScenarioError(
                f"{key}: after step_ x has shape {tuple(moved.shape)}; must stay {tuple(x.shape)}"
            )
        check_finite(key, "after step_", moved)
        bits.append(_bits(moved))
        packed = Packed.of(state, "state")
        held = flat_vectors(state, len(x))
        if held > optimizer.kept + VECTOR_ERROR:
            raise ScenarioError(
                f"{key}: kept is {optimizer.kept}, but between rounds the state holds {held:.3g} "
                "vectors as long as x; say so, since memory is counted by it"
            )
        if resumes:
            state = called(key, "init", optimizer.init, moved)
            restore_(state, packed.content, packed.arrays)
    return tuple(bits)


def _bits(x: Tensor) -> bytes:
    return blake2b(x.numpy().tobytes()).digest()


def _rehearse_rates(rates: LearningRates, num_epochs: int, use: str) -> str | None:
    """Ask for the learning rates of epochs from the first to the last.

    Args:
        rates: of one's own.
        num_epochs: of the run.
        use: what needs rates above 0; empty if nothing does.

    Returns:
        A notice that all of them are 0; None if they are not.

    Raises:
        ScenarioError: one is no number or below 0, or is 0 where it may not be.
    """
    is_zero = True
    for epoch in range(0, num_epochs, max(num_epochs // MOST_EPOCHS, 1)):
        rate = called(SCHEDULE, "at", rates.at, epoch)
        if not (isinstance(rate, float | int) and rate >= 0 and isfinite(rate)):
            raise ScenarioError(
                f"{SCHEDULE}: the learning rate of epoch {epoch} is {rate!r}; must be a number, at "
                "least 0"
            )
        if rate == 0 and use:
            raise ScenarioError(f"{SCHEDULE}: {rate_of_0(epoch, use)}")
        is_zero = is_zero and rate == 0
    if is_zero:
        return f"{SCHEDULE}: the learning rate is 0 in all epochs, so steps change no parameter"
    return None


def rehearse_task(task: Task, flat: FlatModel, inputs: Tensor, targets: Tensor) -> None:
    """Take the loss of a batch, and evaluate the batch.

    Args:
        task: of one's own.
        flat: the initial model; it is as it was afterwards.
        inputs: a batch.
        targets: of these.

    Raises:
        ScenarioError: it fails, or gives what is no loss and no measures.
    """
    metrics, key = task.metrics, TASK
    if not isinstance(metrics, Mapping) or not all(
        isinstance(word, str) for pair in metrics.items() for word in pair
    ):
        raise ScenarioError(
            f"{key}: metrics is {shown(metrics)}; must be a dict of meanings by name"
        )
    for name in metrics:
        if not _METRIC.fullmatch(name) or name in _TAKEN:
            raise ScenarioError(
                f"{key}: a metric is called {name}; must be of a-z, 0-9 and _, and no other column "
                "of evaluations.parquet"
            )
    parameters, buffers = flat.parameters.clone(), flat.buffers.clone()
    with flat.around_step():
        outputs = called(MODEL, "a forward pass", flat.model.train(), inputs)
    loss = called(key, "loss", task.loss, outputs, targets)
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
        raise ScenarioError(
            f"{key}: loss gives {shown(loss)}; must be one number with a gradient, the mean over "
            "the batch"
        )
    with torch.no_grad():
        outputs = called(MODEL, "a forward pass", flat.model.eval(), inputs)
    sums = called(key, "sums", task.sums, outputs, targets)
    _check_figures("sums(outputs, targets)", sums, ("loss",))
    means = {name: total / len(targets) for name, total in sums.items()}
    summary = called(key, "summary", task.summary, means)
    _check_figures("summary(means)", summary, ("loss", *metrics))
    if more := set(summary) - {"accuracy", "loss", *metrics}:
        raise ScenarioError(
            f"{key}: summary(means) gives {', '.join(sorted(more))} too; name it in metrics"
        )
    flat.load_(parameters, buffers)


def _check_figures(said: str, figures: object, needed: tuple[str, ...]) -> None:
    if not isinstance(figures, Mapping):
        raise ScenarioError(f"{TASK}: {said} gives {shown(figures)}; must be a dict of numbers")
    for name in needed:
        if name not in figures:
            raise ScenarioError(f"{TASK}: {said} has no {name}")
    for name, figure in figures.items():
        if not isinstance(figure, float | int):
            raise ScenarioError(
                f"{TASK}: {said} gives {shown(figure)} as {name}; must be a number of Python: "
                "float(...)"
            )
