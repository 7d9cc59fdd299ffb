"""Whether a run would refuse a studied scenario for its length."""

from __future__ import annotations

from edgesim.assembly.build import check_length
from edgesim.assembly.planned_leaves import check_leaves
from edgesim.assembly.studied_scenario import StudiedScenario
from edgesim.assembly.training_plan import check_rounds, plan_of_epochs

_KNOWN_SHARDS = frozenset({"iid", "label_skew", "dirichlet"})


def check_studied_length(studied: StudiedScenario) -> None:
    """Refuse what a run refuses for its rounds, epochs and evaluations.

    Where the partition decides how many samples a device has, and so how many rounds an epoch, only
    `training.rounds` is checked.

    Args:
        studied: a scenario as its file has it, whose data were not read.

    Raises:
        ScenarioError: the reason.
    """
    scenario, num_rounds = studied.scenario, studied.num_rounds
    is_known = scenario.training.rounds is not None
    if not (is_known or scenario.data.partition.kind in _KNOWN_SHARDS):
        return
    check_rounds(scenario, num_rounds)
    plan_of_epochs(scenario, studied.rounds_per_epoch)
    check_length(scenario, studied.schedule, num_rounds)
    check_leaves(scenario.fleet, studied.schedule, num_rounds)
