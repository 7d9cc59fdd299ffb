"""Gossip around the steps of an optimizer of torch.

Symbols:
    x: numerator   u: push weight   z = x/u: model   x~: x after the local step

Between steps the module holds z, at which its gradient is taken. A step moves x, as in the emulator
(reference.md, section 3.1): the module holds x while the optimizer works. Where u is 1 the two are
the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, final

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from edgesim.compression.wire import ByteCounts
from edgesim.distributed.errors import GossipError
from edgesim.distributed.member import Member, diverged
from edgesim.distributed.module_vector import ModuleVector
from edgesim.distributed.peers import Peers
from edgesim.distributed.rules import Rules
from edgesim.gossip.algorithm import GossipState
from edgesim.gossip.optional_members import carries_steps

_Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


@final
class Gossip:
    """Exchanges messages with other processes after each step of an optimizer.

    Made by `gossip_around`. Every process must call `optimizer.step()` equally often, since each
    call waits for the messages of the neighbours.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        vector: ModuleVector,
        rules: Rules,
        peers: Peers,
        num_samples: int,
    ) -> None:
        self._optimizer = optimizer
        self._vector = vector
        self._rules = rules
        self._peers = peers
        self._member = Member(rules, peers, vector.read(), num_samples)
        self._digest = rules.digest().hex()  # now: files of a topology may change later
        self._in_step = False  # also after a step that an error ended
        self._learning_rate()
        self._hooks = (
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        )

    @property
    def rounds(self) -> int:
        """Rounds that are completed: one a step, more where an average takes several exchanges."""
        return self._member.round_index

    @property
    def push_weight(self) -> float:
        """The process's push weight u, by which x was divided."""
        return self._member.state.u

    @property
    def sent(self) -> ByteCounts:
        """Bytes of all messages that this process has sent: `total`, and by part.

        The parts are `values`, `indices`, `scales` and `header`.
        """
        return self._member.sent

    @property
    def received_bytes(self) -> int:
        """Bytes of all messages that this process has received."""
        return self._member.received_bytes

    def average(self) -> dict[str, Tensor]:
        """The averaged model sum(x)/sum(u) of all processes, which all must ask for at once.

        Returns:
            Parameters by name, float32, on the CPU, for `load_state_dict(..., strict=False)` of a
            copy of the module: training goes on with each process's own z. Buffers, such as the
            statistics of batch norm, are not averaged.
        """
        self._check_whole()
        state, layout = self._member.state, self._vector.layout
        mass = torch.cat([state.x.double(), torch.tensor([state.u], dtype=torch.float64)])
        self._peers.sum_(mass)
        mean = (mass[:-1] / mass[-1]).float()
        return dict(zip(layout.names, layout.unflatten(mean), strict=True))

    def state_dict(self) -> dict[str, Any]:
        """State of gossip between two steps, for a checkpoint of this process.

        It has plain values and tensors, which `torch.save` writes and `torch.load` reads with
        `weights_only`. Module, optimizer and data are saved as without gossip.

        Raises:
            GossipError: an error ended the last step, so that its round is done in part.
        """
        self._check_whole()
        return {"digest": self._digest, **self._member.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that `state_dict` gave; the module gets the model z of it.

        Raises:
            GossipError: it is of another scenario, model or process.
        """
        if state["digest"] != self._digest:
            raise GossipError(
                "the state of gossip is of another scenario or model; wrap the same model with the "
                "same topology, gossip and seed before it is loaded"
            )
        self._member.load_state_dict(state)
        self._vector.write(self._member.state.debiased())
        self._in_step = False

    def remove(self) -> None:
        """End gossip: further steps of the optimizer are the process's own."""
        for hook in self._hooks:
            hook.remove()

    @torch.no_grad()
    def _before_step(
        self, _optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _Arguments | None:
        """Put x in the place of z."""
        self._check_whole()
        self._check_parameters()
        self._in_step = True
        state = self._member.state
        if state.u == 1.0 or self._rules.steps_on_model:
            return None
        self._vector.write(state.x[: self._vector.num_trainable])
        return self._at_model(args, kwargs)

    @torch.no_grad()
    def _after_step(self, *_: object) -> None:
        """Take x~ from the module, exchange messages, and put the new z there."""
        state, trainable = self._member.state, self._vector.num_trainable
        moved = self._vector.read()
        if self._rules.steps_on_model:
            moved[:trainable].mul_(state.u)
        moved[trainable:].mul_(state.u)  # statistics, which no step moves
        state.x.copy_(moved)
        state.take_rate_(self._learning_rate())
        self._member.end_round_()
        self._vector.write(state.debiased())
        self._in_step = False

    def _at_model(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Arguments | None:
        """Arguments of a step whose closure, if there is one, is called at z."""
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            return None
        called = self._called_at_model(closure)
        if "closure" in kwargs:
            return args, {**kwargs, "closure": called}
        return (args[0], called, *args[2:]), kwargs

    def _called_at_model(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """A closure that evaluates the module at z while it holds x."""

        def call() -> Any:  # noqa: ANN401 (whatever the closure returns)
            x = self._vector.read()[: self._vector.num_trainable]
            self._vector.write(x / self.push_weight)
            loss = closure()
            self._vector.write(x)
            return loss

        return call

    def _check_whole(self) -> None:
        """Refuse a state in the middle of a round: a neighbour may lack what this process sent."""
        if self._in_step:
            raise GossipError(
                f"process {self._peers.rank}: an error ended round {self.rounds} in its middle; go "
                "on from a checkpoint of an earlier round, in all processes"
            )

    def _check_parameters(self) -> None:
        """Refuse parameters that were changed elsewhere than in a step."""
        trainable = self._vector.num_trainable
        z, held = self._member.state.debiased()[:trainable], self._vector.read()[:trainable]
        if np.array_equal(z.numpy(), held.numpy()):  # three times as fast as torch.equal
            return
        if not z.isfinite().all():
            raise diverged(self._peers.rank, self.rounds, "a parameter is not finite")
        raise GossipError(
            f"process {self._peers.rank}: parameters of the model were changed outside of "
            "optimizer.step(), where gossip can't see it; load checkpoints with load_state_dict "
            "of gossip after that of the model, and change parameters in a step post-hook of the "
            "optimizer that was registered before gossip; there the model holds x = u z"
        )

    def _learning_rate(self) -> float:
        """Learning rate of the optimizer.

        Raises:
            GossipError: there are several, or it is not positive, and the algorithm follows it.
        """
        rates = {float(group["lr"]) for group in self._optimizer.param_groups if "lr" in group}
        algorithm, state = self._rules.algorithm, self._member.state
        follows = type(state).take_rate_ is not GossipState.take_rate_
        if carries_steps(type(algorithm)) and follows and (len(rates) != 1 or min(rates) <= 0):
            raise GossipError(
                f"{algorithm.name} keeps steps times one learning rate above 0; the optimizer has "
                f"{', '.join(f'{rate:g}' for rate in sorted(rates)) or 'none'}"
            )
        return max(rates, default=0.0)
