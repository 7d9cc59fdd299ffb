"""Where actors go, and what they ask for."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgesim.errors import ScenarioError
from edgesim.fleet.on_ray.placement import (
    Need,
    Node,
    NoRoomError,
    cpu_share,
    devices_by_actor,
    devices_by_node,
    gpu_share,
    place,
    room,
)
from edgesim.scenario import load_scenario
from edgesim.scenario.fleet import FleetSection


def nodes_of(*cpus: float, gpus: float = 0.0) -> list[Node]:
    return [Node(f"node-{i}", c, c, gpus, gpus) for i, c in enumerate(cpus)]


def counts(nodes: list[Node], num_actors: int, cpus: float, placement: str) -> list[int]:
    places = place(nodes, num_actors, Need(cpus), placement)
    found = Counter(node.node_id for node in places)
    return [found[node.node_id] for node in nodes]


CPUS = st.lists(st.integers(1, 64).map(float), min_size=1, max_size=6)


@given(cpus=CPUS, num_actors=st.integers(1, 200))
def test_all_actors_fit_also_when_the_largest_node_is_lost(cpus, num_actors):
    share = cpu_share(nodes_of(*cpus), num_actors)
    remaining = sorted(cpus)[:-1] or cpus
    assert 0 < share <= 1
    ten_thousandths = round(share * 10_000)  # as Ray counts
    assert share == pytest.approx(ten_thousandths / 10_000, abs=1e-9)
    assert sum(round(c * 10_000) // ten_thousandths for c in remaining) >= num_actors


def test_the_share_of_a_cpu_by_hand():
    assert cpu_share(nodes_of(1), 1) == 1.0
    assert cpu_share(nodes_of(0, 2), 2) == 1.0, "only one of them holds any"
    # Nobody can ask for less than a ten-thousandth.
    assert cpu_share(nodes_of(1), 20_001) == cpu_share(nodes_of(0), 3) == 1e-4
    assert cpu_share(nodes_of(2), 4) == 0.5
    assert cpu_share(nodes_of(16), 4) == 1.0
    # Two of the three nodes must hold 8: four each on half a CPU.
    assert cpu_share(nodes_of(2, 2, 2), 8) == 0.5
    # Without the node of 4: 3 + 2 on shares of at most 3/4 hold 4 + 2; on 2/3 they hold 4 + 3.
    assert cpu_share(nodes_of(4, 3, 2), 6) == 0.75
    assert cpu_share(nodes_of(4, 3, 2), 7) == pytest.approx(2 / 3, abs=1e-4)


@given(
    cpus=CPUS,
    num_actors=st.integers(1, 100),
    placement=st.sampled_from(["auto", "spread", "pack"]),
)
def test_every_actor_has_a_node_with_room_and_neighbours_stay_together(cpus, num_actors, placement):
    nodes = nodes_of(*cpus)
    need = Need(cpu_share(nodes, num_actors))
    places = [node.node_id for node in place(nodes, num_actors, need, placement)]
    assert len(places) == num_actors
    for node in nodes:
        assert places.count(node.node_id) <= room(node, need)
    changes = sum(a != b for a, b in pairwise(places))
    assert changes == len(set(places)) - 1, "devices of a node are consecutive"


def test_placements_by_hand():
    nodes = nodes_of(4, 2, 2)
    assert counts(nodes, 4, 0.5, "auto") == [2, 1, 1]
    assert counts(nodes, 8, 0.5, "auto") == [4, 2, 2]
    assert counts(nodes, 6, 0.5, "spread") == [2, 2, 2]
    assert counts(nodes, 6, 0.5, "pack") == [6, 0, 0]
    assert counts(nodes, 10, 0.5, "pack") == [8, 2, 0]
    assert counts(nodes, 3, 1.0, "by_node") == [1, 1, 1]
    with pytest.raises(NoRoomError, match="room for 3 of 4 actors"):
        counts(nodes, 4, 0.5, "by_node")
    assert counts(nodes_of(2, 4), 1, 0.5, "auto") == [0, 1]
    assert counts(nodes_of(2, 4, 2), 6, 0.5, "pack") == [0, 6, 0]


def test_a_node_that_others_use_gets_fewer():
    busy = [Node("a", 4.0, 1.0), Node("b", 4.0, 4.0)]
    assert counts(busy, 5, 1.0, "spread") == [1, 4]


def test_a_full_cluster_says_how_many_fit_and_what_to_do():
    busy = [Node("a", 4.0, 1.0), Node("b", 4.0, 0.5)]
    with pytest.raises(NoRoomError, match=r"room for 1 of 4 actors, each with 1 CPUs \(1.5 of 8"):
        place(busy, 4, Need(1.0), "auto")
    with pytest.raises(NoRoomError, match=r"raise fleet\.devices_per_actor"):
        place(busy, 4, Need(1.0), "auto")


@pytest.mark.parametrize(
    ("need", "said"),
    [
        (Need(1.0), "with 1 CPUs (5 of 8 CPUs are free on 2 nodes)"),
        (Need(1.0, 0.5), "with 1 CPUs and 0.5 GPUs (5 of 8 CPUs and 1.5 of 2 GPUs are free on 2"),
    ],
)
def test_a_full_cluster_speaks_of_gpus_where_actors_need_some(need, said):
    busy = [Node("a", 4.0, 1.0, 1.0, 0.5), Node("b", 4.0, 4.0, 1.0, 1.0)]
    with pytest.raises(NoRoomError, match=re.escape(said)):
        place(busy, 9, need, "auto")


@pytest.mark.parametrize(
    ("num_devices", "devices_per_actor", "num_cpus", "sizes"),
    [
        (10, 4, 99, [4, 4, 2]),
        (10, "auto", 4, [3, 3, 3, 1]),
        (3, "auto", 8, [1, 1, 1]),
        (3, "auto", 0, [3]),  # of a machine whose CPUs are not known
    ],
)
def test_devices_of_actors_by_hand(num_devices, devices_per_actor, num_cpus, sizes):
    parts = devices_by_actor(num_devices, devices_per_actor, num_cpus)
    assert [len(part) for part in parts] == sizes
    assert [device for part in parts for device in part] == list(range(num_devices))


def test_shares_of_gpus():
    nodes = nodes_of(8, 8, gpus=2)
    assert gpu_share(nodes, 4, "auto") == 1.0
    assert gpu_share(nodes, 5, "auto") == 0.5
    assert gpu_share(nodes, 8, 0.5) == 0.5, "they are all taken"
    assert room(nodes[0], Need(0.5, 0.4)) == 4, "two of 0.4 on each of two GPUs"
    with pytest.raises(NoRoomError, match="4 GPUs hold 8 of 9 actors"):
        gpu_share(nodes, 9, 0.5)
    with pytest.raises(NoRoomError, match="no node of the cluster has a GPU"):
        gpu_share(nodes_of(8), 1, "auto")


@given(cpus=CPUS, num_devices=st.integers(1, 300))
def test_the_devices_of_nodes_are_consecutive_and_in_proportion(cpus, num_devices):
    groups = devices_by_node(num_devices, nodes_of(*cpus))
    assert [device for group in groups for device in group] == list(range(num_devices))
    for group, cpu in zip(groups, cpus, strict=True):
        assert abs(len(group) - num_devices * cpu / sum(cpus)) <= 1, "both ends are rounded"


def test_one_actor_of_a_node_can_not_have_a_given_size(tmp_path):
    path = Path("scenarios/quickstart.yaml")
    with pytest.raises(ScenarioError, match=r"devices_per_actor is 2; must be auto or absent"):
        load_scenario(path, ["fleet.placement=by_node", "fleet.devices_per_actor=2"])
    scenario = load_scenario(path, ["fleet.placement=by_node"])
    assert scenario.fleet.placement == "by_node"
    assert isinstance(scenario.fleet, FleetSection)
