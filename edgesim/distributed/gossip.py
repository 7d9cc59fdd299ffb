"""Gossip around the steps of an optimizer of torch.

Symbols:
    x: numerator   u: push weight   z = x/u: model   x~: x after the local step

Between steps the module holds z, at which its gradient is taken. A step moves x, as in the emulator
(reference.md, section 3.1): the module holds x while the optimizer works. Where u is 1 the two are
the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, final

import numpy as np
import torch
from torch.optim import Optimizer

from edgesim.compression.wire import ByteCounts
from edgesim.distributed.errors import START_AGAIN, GossipError
from edgesim.distributed.member import Member, diverged
from edgesim.distributed.module_vector import ModuleVector
from edgesim.distributed.peers import Peers
from edgesim.distributed.rates import learning_rate
from edgesim.distributed.rules import Rules
from topologies import steps_before

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
        member: Member,
    ) -> None:
        self._vector = vector
        self._rules = rules
        self._peers = peers
        self._member = member
        self._digest = rules.digest().hex()  # now: files of a topology may change later
        # Which part of a step is under way, also after an error that ended it.
        self._under_way: Literal["", "the caller's step", "a round"] = ""
        vector.take(optimizer)
        # The optimizer holds its hooks, and so this object. No reference leads back, so both end
        # with the caller's last reference to the optimizer.
        self._hooks = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]

    @property
    def rounds(self) -> int:
        """Rounds that are completed: one a step, more where an average takes several exchanges.

        So it may be larger than `steps`; checkpoints of one `rounds` fit together.
        """
        return self._member.round_index

    @property
    def steps(self) -> int:
        """Steps of the optimizer that are completed, also before a restart."""
        return steps_before(self._rules.schedule, self.rounds)

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

    def average(self) -> dict[str, Any]:
        """The averaged model sum(x)/sum(u) of all processes, which all must ask for at once.

        Returns:
            What `load_state_dict` of a copy of the module takes, on the CPU: averaged parameters,
            and as they are in this process all others without a gradient and the buffers, such as
            the statistics of batch norm. Names are those without `torch.compile`. A copy, since
            training goes on with each process's own z.

        Raises:
            GossipError: another process did not ask for it, an error ended the last step, or a
                layer of the module was replaced or added.
        """
        self._check_whole()
        state = self._member.state
        mass = torch.cat([state.x.double(), torch.tensor([state.u], dtype=torch.float64)])
        self._peers.sum_(mass)
        return self._vector.state_with((mass[:-1] / mass[-1]).float())

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
            GossipError: it is no such state, or of another scenario, model or process.
        """
        self._member.check_state(state)
        if state["digest"] != self._digest:
            raise GossipError(
                "the state of gossip is of another scenario or model; wrap the same model with the "
                "same topology, gossip and seed before it is loaded"
            )
        self._member.load_state_dict(state)
        self._vector.write(self._member.state.debiased())
        self._under_way = ""

    def remove(self) -> None:
        """End gossip: further steps of the optimizer are the process's own."""
        if self._hooks:  # else another gossip may have the parameters by now
            self._vector.release()
        while self._hooks:
            self._hooks.pop().remove()

    @torch.no_grad()
    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _Arguments | None:
        """Put x in the place of z."""
        self._check_whole()
        self._check_step()
        self._vector.check_tensors(optimizer)
        self._check_parameters()
        self._learning_rate(optimizer)
        self._under_way = "the caller's step"
        if self._holds_x:
            self._vector.write(self._member.state.x)
        return self._at_model(args, kwargs)

    @torch.no_grad()
    def _after_step(self, optimizer: Optimizer, *_: object) -> None:
        """Take x~ from the module, exchange messages, and put the new z there."""
        self._check_closure()
        state, rate = self._member.state, self._learning_rate(optimizer)
        moved = self._vector.read()
        if self._rules.steps_on_model:
            moved.mul_(state.u)
        self._under_way = "a round"
        state.x.copy_(moved)
        state.take_rate_(rate)
        self._member.end_round_()
        self._vector.write(state.debiased())
        self._under_way = ""

    @property
    def _holds_x(self) -> bool:
        """Whether the module holds x, which is not z, while the optimizer works."""
        return self._member.state.u != 1.0 and not self._rules.steps_on_model

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
        """A closure that evaluates the module at z, also while it holds x.

        If it raises, the module gets back the z of before the step: nothing was sent, and the step
        may be taken again.
        """

        def call() -> Any:  # noqa: ANN401 (whatever the closure returns)
            x = self._vector.read() if self._holds_x else None
            if x is not None:
                self._vector.write(x / self.push_weight)
            try:
                loss = closure()
            except BaseException:
                self._vector.write(self._member.state.debiased())
                self._under_way = ""
                raise
            if x is not None:
                self._vector.write(x)
            return loss

        return call

    def _check_whole(self) -> None:
        """Refuse a state in the middle of a round: a neighbour may lack what this process sent."""
        if self._under_way == "a round":
            raise GossipError(
                f"process {self._peers.rank}: an error ended round {self.rounds} in its middle. "
                f"{START_AGAIN}"
            )

    def _check_step(self) -> None:
        """Refuse parameters in the middle of a step, at which gradients may have been taken."""
        if self._under_way:
            raise GossipError(
                f"process {self._peers.rank}: an error ended optimizer.step() in its middle, "
                "before messages were sent; gossip.load_state_dict(gossip.state_dict()) puts the "
                "parameters back, then compute gradients anew"
            )

    def _check_closure(self) -> None:
        """Refuse a step that went on after an error of its closure: from then the module held z.

        The module gets z again, so that the step may be taken again.
        """
        if self._under_way:
            return
        self._vector.write(self._member.state.debiased())
        raise GossipError(
            f"process {self._peers.rank}: the optimizer went on after an error of its closure; "
            "let the error end optimizer.step(), which may then be called again"
        )

    def _check_parameters(self) -> None:
        """Refuse parameters that were changed elsewhere than in a step."""
        z, held = self._member.state.debiased(), self._vector.read()
        if np.array_equal(z.numpy(), held.numpy()):  # three times as fast as torch.equal
            return
        if not z.isfinite().all():
            raise diverged(self._peers.rank, self.rounds, "a parameter is not finite")
        raise GossipError(
            f"process {self._peers.rank}: parameter {self._vector.first_difference(z, held)} was "
            "changed outside of optimizer.step(), where gossip can't see it: by load_state_dict, "
            "by another optimizer, in forward(), or by hand. Load gossip.average() into a copy of "
            "the model, call gossip.load_state_dict after that of the model, and change "
            "parameters in a hook of the optimizer (Your training loop, in docs/outside.md)"
        )

    def _learning_rate(self, optimizer: Optimizer) -> float:
        return learning_rate(optimizer, self._rules.algorithm, self._member.state)
