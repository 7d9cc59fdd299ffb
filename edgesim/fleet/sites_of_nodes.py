"""Sites that are the nodes of a cluster: found once, when a run begins, and kept with it.

The result of a run depends on its sites, and must depend on its scenario alone. So the scenario in
the run directory has the site of each device instead of `nodes`. A run that is resumed, maybe on
other nodes, has the same sites.
"""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from edgesim.assembly.gossip import is_of_nodes
from edgesim.assembly.preparation import prepare
from edgesim.assembly.prepared_run import PreparedRun
from edgesim.fleet.recording.view import say


def with_sites_of_nodes(prepared: PreparedRun, mode: str, console: Console) -> PreparedRun:
    """The run with the site of each device, if its scenario says `gossip.sites: nodes`.

    Args:
        prepared: the run.
        mode: "inline" for one process, which is one site, or "ray" for the nodes of a cluster.
        console: where the sites that were found are said.

    Raises:
        ScenarioError: the algorithm does not suit these sites.
    """
    scenario = prepared.scenario
    if not is_of_nodes(scenario):
        return prepared
    num_devices = scenario.fleet.num_devices
    groups = [range(num_devices)]
    if mode != "inline":
        from edgesim.fleet.on_ray.cluster import devices_of_nodes  # loads Ray

        groups = devices_of_nodes(num_devices)
    sites = tuple(site for site, devices in enumerate(groups) for _ in devices)
    say(console, f"gossip.sites: {len(groups)}, the nodes on which devices start")
    gossip = scenario.gossip.model_copy(update={"sites": sites})
    found = prepare(scenario.model_copy(update={"gossip": gossip}), reads_images=False)
    return replace(found, found_rate=prepared.found_rate)
