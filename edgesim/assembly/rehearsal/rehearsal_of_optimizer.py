"""Optimizers and learning rates of one's own are tried before a run: they take some steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from edgesim.assembly.optimization import SCHEDULE, wrong_rate
from edgesim.assembly.parts.own_calls import (
    called,
    check_finite,
    check_kept,
    check_work,
    flat_vectors,
    shown,
    vectors_of_any_type,
)
from edgesim.assembly.rehearsal.trial_of_gossip import small_change
from edgesim.device.trainer import rate_of_0
from edgesim.errors import ScenarioError
from edgesim.learning.optimizers import LearningRates, Optimizer
from edgesim.storage.state_tree import Packed, StateTreeError, pack, restore_

OPTIMIZER = "training.optimizer.kind"
STEPS = 3  # that are tried
MOST_EPOCHS = 2000  # whose learning rates are looked at; a run looks at all
VECTOR_ERROR = 0.5  # of a flat vector


def check_optimizer_declarations(optimizer: Optimizer, numel: int) -> None:
    """Refuse what an optimizer says of itself, if it can't be counted."""
    for name in ("kept", "kept_in_gossip"):
        number = getattr(optimizer, name)
        if not isinstance(number, int | np.integer) or isinstance(number, bool) or number < 0:
            raise ScenarioError(
                f"{OPTIMIZER}: {name} is {number!r}; must be a number of flat vectors"
            )
    check_work(OPTIMIZER, "work(n)", called(OPTIMIZER, "work", optimizer.work, numel))


def rehearse_optimizer(make: Callable[[], Optimizer], x: Tensor, lr: float) -> tuple[str, ...]:
    """Take some steps, each with a look at what gossip did, three times; the last with checkpoints.

    Args:
        make: makes the optimizer, as each process of a run does.
        x: parameters to begin with.
        lr: learning rate.

    Returns:
        Notices that the steps change nothing, or that the state holds less memory than it says.

    Raises:
        ScenarioError: it fails, gives what can't be used, holds more memory than it says, or has
            other bits when it is made again or resumed.
    """
    key, optimizer = OPTIMIZER, make()
    check_optimizer_declarations(optimizer, len(x))
    trial = TrialOfOptimizer(optimizer, x, lr)
    first = list(trial.steps())
    if first != list(TrialOfOptimizer(make(), x, lr).steps()):
        raise ScenarioError(
            f"{key}: two steps from the same state and gradient differ; draw no random numbers, "
            "and keep what changes in the state"
        )
    if first != list(TrialOfOptimizer(make(), x, lr).steps(resumes=True)):
        raise ScenarioError(
            f"{key}: after a checkpoint it goes on with other steps; keep all that changes in the "
            "state"
        )
    notices = []
    if trial.is_idle:
        notices.append(f"{key}: {STEPS} steps have not changed x; step_ must change it in place")
    said, held = optimizer.kept + optimizer.kept_in_gossip, trial.held
    if held < said - VECTOR_ERROR:
        notices.append(
            f"{key}: by kept and kept_in_gossip the state holds {said} vectors as long as x; in "
            f"{STEPS} steps it held {held:.3g}"
        )
    return tuple(notices)


class TrialOfOptimizer:
    """A device that takes steps, between which gossip moves its model.

    Memory is as in a run: x is a part of a vector that gossip changes, g a part of one that all
    devices of a process share.

    Attributes:
        held: the most vectors that the state held while gossip went on, of numbers of any type.
        is_idle: whether no step has changed x.
    """

    def __init__(self, optimizer: Optimizer, x: Tensor, lr: float) -> None:
        self._optimizer, self._lr, self._numel = optimizer, lr, len(x)
        self._vector = torch.cat([x, x.new_ones(1)])
        self._gradients = torch.zeros_like(self._vector)
        self.held = 0.0
        self.is_idle = True

    def steps(self, *, resumes: bool = False) -> Iterator[bytes]:
        """Bits of x after each step.

        Args:
            resumes: whether the state is written and read back after each round.
        """
        key, optimizer = OPTIMIZER, self._optimizer
        state = self._init()
        for step in range(STEPS):
            self._step_(state, step)
            in_gossip = flat_vectors(state, self._numel)
            self.held = max(self.held, vectors_of_any_type(state, self._numel))
            yield blake2b(self._vector.numpy().tobytes()).digest()
            self._vector += small_change(self._vector, seed=100 + step)
            gossiped = self._vector[: self._numel].clone()
            before = gossiped.clone()
            learn, gamma = optimizer.after_gossip_, self._lr
            called(key, "after_gossip_", learn, state, gossiped, 1.0, gamma)
            if not torch.equal(gossiped, before):
                raise ScenarioError(
                    f"{key}: after_gossip_ changes x; only step_ may, since gossip has sent it"
                )
            check_kept(key, state)
            self._check_apart(state, gossiped)
            self._check_held("kept", flat_vectors(state, self._numel), optimizer.kept)
            self._check_held("kept_in_gossip", in_gossip, optimizer.kept + optimizer.kept_in_gossip)
            if resumes:
                packed = Packed.of(state, "state")
                state = self._init()
                restore_(state, packed.content, packed.arrays)

    def _init(self) -> object:
        own = self._vector[: self._numel]
        before = own.clone()
        state = called(OPTIMIZER, "init", self._optimizer.init, own)
        if not torch.equal(own, before):
            raise ScenarioError(f"{OPTIMIZER}: init changes x; only step_ may")
        check_kept(OPTIMIZER, state)
        self._check_apart(state, own)
        return state

    def _step_(self, state: object, step: int) -> None:
        """Take a step, which must change x where it is."""
        key, own, g = OPTIMIZER, self._vector[: self._numel], self._gradients[: self._numel]
        g.copy_(small_change(g, seed=1 + step))
        before = own.clone()
        returned = called(key, "step_", self._optimizer.step_, state, own, g, self._lr)
        now = self._vector[: self._numel]
        self.is_idle = self.is_idle and torch.equal(now, before)
        if own.shape != now.shape:
            raise ScenarioError(
                f"{key}: after step_ x has shape {tuple(own.shape)}; must stay {tuple(now.shape)}"
            )
        if own.requires_grad:
            raise ScenarioError(f"{key}: after step_ x requires a gradient; g has it already")
        if own.dtype != now.dtype or own.data_ptr() != now.data_ptr():
            raise ScenarioError(
                f"{key}: step_ gives x other memory, so the model keeps the old values; change it "
                "in place, as by x.sub_(...) or x.copy_(...), not by x.data = or x.set_"
            )
        if isinstance(returned, Tensor) and torch.equal(now, before):
            raise ScenarioError(
                f"{key}: step_ returns {shown(returned)} and leaves x as it was; it must change x "
                "in place"
            )
        check_kept(key, state)
        check_finite(key, "after step_", now)
        self._check_apart(state, own)

    def _check_apart(self, state: object, x: Tensor) -> None:
        """Refuse a state that has the memory of x or g, which others change."""
        try:
            pack({"state": state, "x": x, "g": self._gradients}, {}, "~")
        except StateTreeError as error:
            raise ScenarioError(
                f"{OPTIMIZER}: {str(error).replace('~/', '')}: gossip changes x, and all devices "
                "of a process share g"
            ) from error

    def _check_held(self, name: str, held: float, most: int) -> None:
        """Refuse a state that holds more vectors than the optimizer says."""
        if held > most + VECTOR_ERROR:
            when = "between rounds" if name == "kept" else "while gossip goes on"
            also = "" if name == "kept" else " with kept"
            raise ScenarioError(
                f"{OPTIMIZER}: {name} is {getattr(self._optimizer, name)}, but {when} the state "
                f"holds {held:.3g} vectors as long as x{also}; say so, since memory is counted by "
                "it"
            )


def rehearse_rates(make: Callable[[], LearningRates], num_epochs: int, use: str) -> str | None:
    """Ask for the learning rates of epochs, from the first to the last and back.

    Args:
        make: makes the schedule, as each process of a run does.
        num_epochs: of the run.
        use: what needs rates above 0; empty if nothing does.

    Returns:
        A notice that all of them are 0; None if they are not.

    Raises:
        ScenarioError: one is no number or below 0, is 0 where it may not be, or another one when it
            is asked for again.
    """
    rates, again = make(), make()
    epochs = range(0, num_epochs, -(-num_epochs // MOST_EPOCHS) or 1)
    asked = {epoch: called(SCHEDULE, "at", rates.at, epoch) for epoch in epochs}
    for epoch, rate in asked.items():
        if problem := wrong_rate(epoch, rate):
            raise ScenarioError(f"{SCHEDULE}: {problem}")
        if rate == 0 and use:
            raise ScenarioError(f"{SCHEDULE}: {rate_of_0(epoch, use)}")
    for epoch in reversed(epochs):
        if (other := called(SCHEDULE, "at", again.at, epoch)) != asked[epoch]:
            raise ScenarioError(
                f"{SCHEDULE}: at({epoch}) gives {asked[epoch]!r}, and {other!r} if it is made anew "
                "and asked from the last epoch to the first; let it depend on epoch and options "
                "alone, since all devices ask, in any order, and again after a resume"
            )
    if not any(asked.values()):
        return f"{SCHEDULE}: the learning rate is 0 in all epochs, so steps change no parameter"
    return None
