"""Parts of one's own are tried before a run: each does once what it will do in every round.

What a part gives is checked where it is given. In a run a wrong value would be noticed later, far
from the code that made it, or not at all. Parts of the catalog are made, which checks their
options, but not tried.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from edgesim.assembly.equipment import has_batteries
from edgesim.assembly.gossip import make_algorithm, with_some_rate
from edgesim.assembly.optimization import (
    make_learning_rates,
    make_optimizer,
    plain_learning_rates,
    use_of_rate,
)
from edgesim.assembly.parts.checked_compressor import unchecked
from edgesim.assembly.parts.own_calls import called, is_own, new_rng
from edgesim.assembly.parts.own_data import batch_transform
from edgesim.assembly.parts.own_errors import own_code
from edgesim.assembly.parts.own_topology import rehearse_topology
from edgesim.assembly.rehearsal.rehearsal_of_gossip import (
    check_algorithm,
    check_compressor,
    rehearse_algorithm,
    rehearse_compressor,
)
from edgesim.assembly.rehearsal.rehearsal_of_optimizer import (
    check_optimizer_declarations,
    rehearse_optimizer,
    rehearse_rates,
)
from edgesim.assembly.rehearsal.trial_of_gossip import small_change
from edgesim.data.batches import transformed
from edgesim.gossip.algorithm import Algorithm
from edgesim.learning.flat_model import FlatModel
from edgesim.learning.optimizers import Optimizer
from edgesim.scenario.schema import Scenario
from edgesim.scenario.topology import OtherTopology
from topologies import Schedule

DATASET = "data.source"


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
    algorithm, other = (
        make_algorithm(with_some_rate(scenario), flat.layout, schedule) for _ in range(2)
    )
    optimizer = make_optimizer(scenario)
    make_learning_rates(scenario)
    check_declarations(scenario, algorithm, None)
    notices: list[str | None] = []
    if isinstance(scenario.topology, OtherTopology):
        rehearse_topology(scenario, scenario.topology)
    x = flat.parameters.cpu()
    if is_own(gossip.compressor.kind):
        compressors = unchecked(algorithm.compressor), unchecked(other.compressor)
        notices.append(rehearse_compressor(*compressors, flat.layout, small_change(x)))
    if is_own(gossip.algorithm):
        mass_moves = _mass_moves(scenario)
        notices.extend(rehearse_algorithm(algorithm, other, x, schedule, mass_moves=mass_moves))
    if is_own(training.optimizer.kind):
        own_x, lr = x[: flat.num_trainable], training.optimizer.lr
        notices.extend(rehearse_optimizer(lambda: make_optimizer(scenario), own_x, lr))
    if is_own(training.schedule.kind):
        use = use_of_rate(algorithm, optimizer)
        notices.append(rehearse_rates(lambda: plain_learning_rates(scenario), num_epochs, use))
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
        check_optimizer_declarations(optimizer, layout.numel)
    if is_own(scenario.gossip.algorithm):
        check_algorithm(algorithm)


def _mass_moves(scenario: Scenario) -> bool:
    """Whether devices may come to have unlike mass whatever the graph is."""
    churn = scenario.fleet.churn
    if not scenario.fleet.rules.waits_for_all or has_batteries(scenario):
        return True
    return churn is not None and bool(churn.joins or churn.leaves)
