"""Sites that are nodes of a cluster are found once and kept with the run."""

from __future__ import annotations

import pytest
from interrupted_runs import resumed
from small_fleets import assert_same_bits, train

from edgesim.errors import ScenarioError
from edgesim.fleet.on_ray import cluster
from edgesim.fleet.on_ray.cluster import devices_of_nodes
from edgesim.fleet.on_ray.placement import Node, NoRoomError
from edgesim.scenario import load_scenario

FLEET = (
    "topology={kind: complete}",
    "training.rounds=12",
    "evaluation={every_rounds: 6, samples: 50}",
    "fleet.placement=by_node",
)


def of_sites(sites, algorithm="bagua_low_precision"):
    return (*FLEET, f"gossip={{algorithm: {algorithm}, sites: {sites}}}")


def test_one_process_is_one_site_and_the_run_keeps_it(tmp_path, runs):
    calm = runs.calm(*of_sites("nodes"))
    assert load_scenario(calm.path / "scenario.yaml").gossip.sites == (0, 0, 0, 0)
    assert_same_bits(runs.calm(*of_sites(1)), calm)
    runs.interrupted(tmp_path / "run", *of_sites("nodes"), at_step=10)
    assert_same_bits(calm, resumed(tmp_path))


@pytest.mark.ray
def test_nodes_are_sites_and_the_bits_are_those_of_a_scenario_with_these_sites(
    tmp_path, runs, started_ray, monkeypatch
):
    node = cluster.cluster_nodes()[0]
    two = [Node(node.node_id, 1.0, 1.0), Node("b", 0.0, 0.0), Node(node.node_id, 3.0, 3.0)]
    monkeypatch.setattr(cluster, "cluster_nodes", lambda: two)
    run = train(tmp_path, "run", *of_sites("nodes"))
    assert load_scenario(run.path / "scenario.yaml").gossip.sites == (0, 1, 1, 1)
    assert_same_bits(runs.calm(*of_sites([0, 1, 1, 1])), run)


def test_nodes_get_devices_by_their_cpus_and_those_without_any_are_no_sites(monkeypatch):
    nodes = [Node(name, cpus, cpus) for name, cpus in (("a", 2.0), ("b", 0.0), ("c", 6.0))]
    monkeypatch.setattr(cluster, "cluster_nodes", lambda: nodes)
    assert devices_of_nodes(4) == [range(1), range(1, 4)]
    assert devices_of_nodes(1) == [range(1)]
    monkeypatch.setattr(cluster, "cluster_nodes", lambda: nodes[1:2])
    with pytest.raises(NoRoomError, match="no node"):
        devices_of_nodes(4)


def test_an_algorithm_that_does_not_suit_the_nodes_is_refused_when_they_are_known(tmp_path, runs):
    pairs = "gossip={algorithm: bagua_decentralized, sites: nodes, peers: shift_one}"
    with pytest.raises(ScenarioError, match="which pairs sites; there are 1, must be even"):
        runs.calm(*FLEET, pairs)
