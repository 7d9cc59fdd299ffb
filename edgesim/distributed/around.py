"""The one line that puts gossip around a module and its optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import NamedTuple

from torch import distributed as dist
from torch import nn
from torch.optim import Optimizer

from edgesim.api.scenarios import ScenarioLike
from edgesim.distributed.agreement import VALUES, agree, digest_of
from edgesim.distributed.errors import GossipError
from edgesim.distributed.gossip import Gossip
from edgesim.distributed.member import Member
from edgesim.distributed.module_vector import ModuleVector
from edgesim.distributed.peers import Peers
from edgesim.distributed.rates import learning_rate
from edgesim.distributed.rules import Rules, read_rules
from edgesim.gossip.optional_members import follows_rate


def gossip_around(
    model: nn.Module,
    optimizer: Optimizer,
    scenario: ScenarioLike,
    *,
    group: dist.ProcessGroup | None = None,
    num_samples: int = 1,
    **overrides: object,
) -> Gossip:
    """Let processes of `torch.distributed` train one model by gossip, one process each.

        gossip = edgesim.gossip_around(model, optimizer, "scenario.yaml")

    From then on each `optimizer.step()` ends with an exchange of messages, and the training loop
    stays as it is. Process i is device i of the scenario. Given the same batches, the parameters
    are those of the emulator up to float rounding, and the bytes of messages are the same.

    All processes of the group must call it at once. If one of them can't begin, all raise. Only a
    process whose `group` can't be used has nobody to tell: the others wait for it.

    Args:
        model: any module whose trained parameters are float32, with equal values in all processes.
            Parameters with `requires_grad=False` stay as they are and are not sent.
        optimizer: any of torch's kind; it trains parameters of `model`.
        scenario: as `edgesim.run` takes it; a mapping needs `topology` and `gossip` alone. Of a
            whole scenario the sections on data, model, training, hardware and evaluation have no
            part, but for `training.optimizer.step_on`, `training.device_seeds` and
            `model.precision`, the format of values in sparse messages that name none.
        group: the processes; None: all. Its backend must send tensors of the CPU, as gloo does.
        num_samples: training samples of this process, by which `fedavg` weighs its model.
        **overrides: values by key, as `edgesim.run` takes them: `gossip__averaging_rate=0.2`.

    Raises:
        ScenarioError: the scenario can't be used, or not by processes in lockstep.
        GossipError: torch.distributed is not initialised, model and optimizer can't be used, the
            processes differ in scenario or model, or another process can't begin.
    """
    peers = Peers(group)
    try:
        start = _prepared(peers, model, optimizer, scenario, num_samples, overrides)
        digests = start.digests(optimizer)
    except Exception as error:
        agree(peers, error)
        raise
    agree(peers, digests)
    return Gossip(optimizer, start.vector, start.rules, peers, start.member)


class _Start(NamedTuple):
    """What a process begins with."""

    vector: ModuleVector
    rules: Rules
    member: Member

    def digests(self, optimizer: Optimizer) -> dict[str, bytes]:
        """Digests of what must be equal in all processes, each by what it is of."""
        form, values = self.vector.digests()
        algorithm, state, rate = self.rules.algorithm, self.member.state, 0.0
        if follows_rate(algorithm, state):
            rate = learning_rate(optimizer, algorithm, state)
        return {
            **self.rules.digests(),
            "the learning rate": digest_of(rate),
            "the names, shapes or requires_grad of parameters": form,
            VALUES: values,
        }


def _prepared(
    peers: Peers,
    model: nn.Module,
    optimizer: Optimizer,
    scenario: ScenarioLike,
    num_samples: int,
    overrides: Mapping[str, object],
) -> _Start:
    """All that a process can make and check alone."""
    vector = ModuleVector(model)
    _check_optimizer(optimizer, vector)
    if not _is_count(num_samples):
        raise GossipError(f"num_samples is {num_samples!r}; must be a whole number, at least 1")
    rules = read_rules(scenario, overrides, vector.layout, peers.size)
    member = Member(rules, peers, vector.read(), num_samples)
    learning_rate(optimizer, rules.algorithm, member.state)
    return _Start(vector, rules, member)


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and int(value) >= 1


def _check_optimizer(optimizer: Optimizer, vector: ModuleVector) -> None:
    """Refuse what has no hooks, and parameters that gossip would not know of."""
    if not isinstance(optimizer, Optimizer):
        raise GossipError(
            f"the optimizer is a {type(optimizer).__name__}; must be a torch.optim.Optimizer"
        )
    if others := vector.num_others(optimizer):
        raise GossipError(
            f"the optimizer trains {others} parameters that are not in the model; put all into one "
            "module, and wrap that"
        )
