import re

import networkx as nx
import numpy as np
import pytest
from graph_strategies import is_doubly_stochastic

import topologies
from topologies import (
    KINDS,
    Cycle,
    Static,
    TopologyError,
    build_schedule,
    mixing_matrix,
    ring,
    torus,
)

OPTIONS = {
    "random_regular": {"degree": 3},
    "erdos_renyi": {"probability": 0.5},
    "cycle": {"graphs": [{"kind": "ring"}, {"kind": "torus"}]},
}


@pytest.fixture
def options(request, tmp_path):
    """Options that a kind needs, on 8 devices."""
    if request.param == "file":
        path = tmp_path / "net.csv"
        path.write_text("".join(f"{j},{i}\n" for j, i in ring(8).edges))
        return "file", {"path": str(path)}
    if request.param == "trace":
        path = tmp_path / "meetings.csv"
        lines = "".join(f"0,{j},{i},1\n" for j, i in ring(8).edges)
        path.write_text(f"time,source,target,duration\n{lines}")
        return "trace", {"path": str(path), "seconds_per_round": 1, "repeat": True}
    return request.param, OPTIONS.get(request.param, {})


@pytest.mark.parametrize("options", KINDS, indirect=True)
class TestEveryKind:
    def test_builds_for_8_devices_and_every_device_takes_part(self, options):
        kind, words = options
        schedule = build_schedule(kind, 8, seed=1, **words)
        assert schedule.num_devices == 8
        assert all(schedule.out_edges(device, 0) for device in range(8))

    def test_is_the_same_again_for_the_same_seed(self, options):
        kind, words = options
        first, second = (build_schedule(kind, 8, seed=1, **words) for _ in range(2))
        for t in range(20):
            assert list(first.graph(t).edges(data="weight")) == list(
                second.graph(t).edges(data="weight")
            )

    def test_has_a_description_and_knows_its_options(self, options):
        kind, _ = options
        entry = KINDS[kind]
        assert entry.description
        assert set(entry.required) <= set(entry.options)

    def test_an_unknown_option_is_refused_with_the_known_ones(self, options):
        kind, words = options
        known = ", ".join(KINDS[kind].options)
        with pytest.raises(
            TopologyError, match=f"^{kind}: unknown option colour; it takes {known}"
        ):
            build_schedule(kind, 8, seed=1, colour="red", **words)

    def test_a_missing_option_is_named(self, options):
        kind, words = options
        required = KINDS[kind].required
        for name in required:
            others = {other: words[other] for other in required if other != name}
            with pytest.raises(TopologyError, match=f"^{kind}: needs {name}$"):
                build_schedule(kind, 8, seed=1, **others)

    def test_unknown_weights_are_refused(self, options):
        kind, words = options
        if "weights" in KINDS[kind].options:
            with pytest.raises(TopologyError, match="no weights 'equal'; there are column_stoch"):
                build_schedule(kind, 8, seed=1, weights="equal", **words)


def test_an_unknown_kind_is_refused_with_the_known_ones():
    with pytest.raises(TopologyError, match=r"no topology 'tours'; there are directed_ring, ring,"):
        build_schedule("tours", 8, seed=1)


def test_a_torus_of_7_devices_is_refused_with_the_numbers_that_work():
    with pytest.raises(TopologyError, match="7 is prime; use 6, 8 or 9 devices, or kind: ring"):
        build_schedule("torus", 7, seed=1)


def test_options_reach_the_graph():
    schedule = build_schedule("torus", 12, seed=1, rows=2)
    assert set(schedule.graph(0).edges) == set(torus(12, 2).edges)


class TestWeights:
    def test_metropolis_makes_an_irregular_graph_doubly_stochastic(self):
        uniform, metropolis = (
            mixing_matrix(build_schedule("star", 5, seed=1, weights=weights).graph(0))
            for weights in ("column_stochastic", "metropolis")
        )
        assert not is_doubly_stochastic(uniform)
        assert is_doubly_stochastic(metropolis)

    @pytest.mark.parametrize(
        "kind", ["directed_ring", "exponential", "one_peer_exponential", "rotating"]
    )
    def test_metropolis_on_one_way_links_is_refused(self, kind):
        with pytest.raises(TopologyError, match="use weights: column_stochastic") as refusal:
            build_schedule(kind, 8, seed=1, weights="metropolis")
        if kind in {"one_peer_exponential", "rotating"}:
            assert str(refusal.value).startswith(f"{kind}: its links go one way, ")

    def test_random_pairs_have_the_same_weights_either_way(self):
        graphs = [
            build_schedule("random_matching", 8, seed=1, weights=weights).graph(3)
            for weights in ("column_stochastic", "metropolis")
        ]
        np.testing.assert_array_equal(*map(mixing_matrix, graphs))


class TestRandomKinds:
    @pytest.mark.parametrize("kind", ["random_regular", "erdos_renyi", "random_matching"])
    def test_another_seed_gives_another_graph(self, kind):
        words = OPTIONS.get(kind, {})
        one, other = (build_schedule(kind, 12, seed=seed, **words).graph(0) for seed in (1, 2))
        assert set(one.edges) != set(other.edges)

    def test_two_of_them_in_a_cycle_differ(self):
        schedule = build_schedule(
            "cycle", 12, seed=1, graphs=[{"kind": "random_regular", "degree": 3}] * 2
        )
        assert set(schedule.graph(0).edges) != set(schedule.graph(1).edges)


class TestCycle:
    def test_each_graph_has_its_own_options_and_weights(self):
        schedule = build_schedule(
            "cycle",
            6,
            seed=1,
            graphs=[{"kind": "star", "weights": "metropolis"}, {"kind": "torus", "rows": 2}],
            hold=5,
        )
        assert isinstance(schedule, Cycle)
        assert schedule.period == 10
        assert is_doubly_stochastic(mixing_matrix(schedule.graph(4)))
        assert set(schedule.graph(5).edges) == set(torus(6, 2).edges)

    def test_graphs_need_be_connected_only_together(self, tmp_path):
        words = []
        for name, links in [("rows", "a,b\nb,a\nc,d\nd,c\n"), ("columns", "a,c\nc,a\nb,d\nd,b\n")]:
            path = tmp_path / f"{name}.csv"
            path.write_text(links)
            words.append({"kind": "file", "path": str(path)})
            with pytest.raises(TopologyError, match=f"{name}.csv: not strongly connected"):
                build_schedule("file", 4, seed=1, path=path)
        assert not build_schedule("cycle", 4, seed=1, graphs=words).is_static

    @pytest.mark.parametrize(
        ("words", "complaint"),
        [
            ({"kind": "torus"}, r"graphs\[1\]: a torus of 7 devices"),
            ({"kind": "rotating"}, r"graphs\[1\]: rotating of 7 devices"),
            ({"kind": "random_matching"}, r"graphs\[1\]: random_matching changes by itself"),
            ({"kind": "ring", "rows": 2}, r"graphs\[1\]: ring: unknown option rows"),
            ({}, r"graphs\[1\]: no topology ''"),
        ],
    )
    def test_a_graph_that_cannot_work_is_named_by_its_place(self, words, complaint):
        with pytest.raises(TopologyError, match=complaint):
            build_schedule("cycle", 7, seed=1, graphs=[{"kind": "ring"}, words])


class TestFile:
    def test_another_number_of_devices_is_refused_with_both(self, tmp_path):
        path = tmp_path / "pair.csv"
        path.write_text("a,b\nb,a\n")
        with pytest.raises(TopologyError) as refusal:
            build_schedule("file", 8, seed=1, path=path)
        assert str(refusal.value) == (
            f"{path}: has 2 devices, but the fleet has 8; set fleet.devices: 2"
        )

    def test_a_graph_that_cannot_agree_is_refused_with_the_file_and_the_names(self, tmp_path):
        path = tmp_path / "one_way.csv"
        path.write_text("a,b\n")
        with pytest.raises(TopologyError, match=re.escape(f"{path}: not strongly connected: ")):
            build_schedule("file", 2, seed=1, path=path)

    def test_link_attributes_survive_into_the_schedule(self, tmp_path):
        path = tmp_path / "pair.csv"
        path.write_text("source,target,latency_ms\na,b,5\nb,a,7\n")
        schedule = build_schedule("file", 2, seed=1, path=path)
        assert isinstance(schedule, Static)
        assert nx.get_edge_attributes(schedule.graph(0), "latency_ms") == {(0, 1): 5, (1, 0): 7}


@pytest.mark.parametrize("undirected", [False, True])
def test_a_contact_of_a_trace_goes_both_ways_if_that_is_asked_for(tmp_path, undirected):
    path = tmp_path / "meetings.csv"
    path.write_text("time,source,target,duration\n0,0,1,1\n0,1,2,1\n0,2,0,1\n")
    words = {"path": str(path), "seconds_per_round": 1, "undirected": undirected}
    edges = set(build_schedule("trace", 3, seed=1, **words).graph(0).edges)
    one_way = {(0, 1), (1, 2), (2, 0)}
    assert {e for e in edges if e[0] != e[1]} == one_way | (
        {(i, j) for j, i in one_way} if undirected else set()
    )


def test_rotating_needs_8_devices():
    with pytest.raises(TopologyError, match="rotating of 9 devices: its permutations are for 8"):
        build_schedule("rotating", 9, seed=1)


def test_thousands_of_devices_are_asked_for_their_own_edges_only():
    schedule = build_schedule("one_peer_exponential", 5000, seed=1)
    assert schedule.out_edges(4999, 12) == (((4999 + 4096) % 5000, 0.5),)


def test_everything_exported_exists():
    assert all(hasattr(topologies, name) for name in topologies.__all__)


@pytest.mark.parametrize("num_devices", [2, 3, 4])
def test_files_of_a_cycle_with_unlike_numbers_of_devices_are_told_of_together(
    tmp_path, num_devices
):
    """Each remedy alone, to set another fleet.devices, contradicted that of the other file."""
    two, three = (ring_file(tmp_path, size) for size in (2, 3))
    ring_words = {"kind": "ring"}
    with pytest.raises(TopologyError) as refused:
        build_schedule("cycle", num_devices, seed=1, graphs=[two, ring_words, three])
    assert "graphs[0] has 2 devices, graphs[2] has 3 devices; all graphs" in str(refused.value)
    assert "fleet.devices" not in str(refused.value)


def test_files_of_a_cycle_that_all_need_another_fleet_say_which(tmp_path):
    three = ring_file(tmp_path, 3)
    with pytest.raises(TopologyError, match=r"graphs\[0\].*set fleet.devices: 3"):
        build_schedule("cycle", 4, seed=1, graphs=[three, {"kind": "ring"}, three])


def ring_file(folder, size):
    """Words of a cycle for a file with a directed ring."""
    path = folder / f"{size}.csv"
    path.write_text("".join(f"{d},{(d + 1) % size}\n" for d in range(size)))
    return {"kind": "file", "path": str(path)}
