"""The one line that puts gossip around a module and its optimizer."""

from __future__ import annotations

from hashlib import blake2b

from torch import Tensor, nn
from torch import distributed as dist
from torch.optim import Optimizer

from edgesim.api.scenarios import ScenarioLike
from edgesim.distributed.errors import GossipError
from edgesim.distributed.gossip import Gossip
from edgesim.distributed.module_vector import ModuleVector
from edgesim.distributed.peers import Peers
from edgesim.distributed.rules import DIGEST_BYTES, Rules, read_rules


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

    Args:
        model: any module with parameters in float32, with equal values in all processes.
        optimizer: any of torch's kind; it trains parameters of `model`.
        scenario: as `edgesim.run` takes it; a mapping needs `topology` and `gossip` alone. Of a
            whole scenario the sections on data, model, training, hardware and evaluation have no
            part, but for `training.optimizer.step_on` and `training.device_seeds`.
        group: the processes; None: all. Its backend must send tensors of the CPU, as gloo does.
        num_samples: training samples of this process, by which `fedavg` weighs its model.
        **overrides: values by key, as `edgesim.run` takes them: `gossip__averaging_rate=0.2`.

    Raises:
        ScenarioError: the scenario can't be used, or not by processes in lockstep.
        GossipError: torch.distributed is not initialised, the processes differ in the scenario or
            at the start of the model, or model and optimizer can't be used.
    """
    peers, vector = Peers(group), ModuleVector(model)
    _check_optimizer(optimizer, vector)
    if num_samples < 1:
        raise GossipError(f"num_samples is {num_samples}; must be at least 1")
    rules = read_rules(scenario, overrides, vector.layout, peers.size)
    _check_agreement(peers, rules, vector.read())
    return Gossip(optimizer, vector, rules, peers, num_samples)


def _check_optimizer(optimizer: Optimizer, vector: ModuleVector) -> None:
    """Refuse what has no hooks, and parameters that gossip would not know of."""
    if not isinstance(optimizer, Optimizer):
        raise GossipError(
            f"the optimizer is a {type(optimizer).__name__}; must be a torch.optim.Optimizer"
        )
    own = set(map(id, vector.parameters))
    others = sum(id(p) not in own for group in optimizer.param_groups for p in group["params"])
    if others:
        raise GossipError(
            f"the optimizer trains {others} parameters that are not in the model; put all into one "
            "module, and wrap that"
        )


def _check_agreement(peers: Peers, rules: Rules, x: Tensor) -> None:
    """Refuse processes that differ from process 0; all of them raise the same error."""
    own = rules.digest() + blake2b(x.numpy().data, digest_size=DIGEST_BYTES).digest()
    first, *others = peers.gather(own)
    for rank, other in enumerate(others, start=1):
        if other[:DIGEST_BYTES] != first[:DIGEST_BYTES]:
            raise GossipError(
                f"process {rank} differs from process 0 in topology, gossip, seed or in the shapes "
                "of the model; give all the same"
            )
        if other != first:
            raise GossipError(
                f"the parameters of process {rank} differ from those of process 0; call "
                "torch.manual_seed with one number before the model is made, and load checkpoints "
                "after gossip_around"
            )
