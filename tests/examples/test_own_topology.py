"""Topologies of one's own: graphs that a function returns."""

from __future__ import annotations

import numpy as np
import pytest
from runs_of_examples import EXAMPLES

import edgesim
from edgesim.assembly.build import make_schedule
from edgesim.assembly.equipment import device_hardware
from edgesim.assembly.preparation import prepare
from edgesim.cli.listing import catalog_table
from edgesim.errors import ScenarioError
from edgesim.results.run_files import RunDirectoryError
from edgesim.scenario import load_scenario
from topologies import mixing_matrix

SHORT = ("training.rounds=4", "evaluation={every_rounds: 4, samples: 20}", "data.train_samples=100")


@pytest.fixture
def own(tmp_path):
    """A function that makes a scenario with the topology of a function's text."""

    def make(body, *overrides, section=""):
        path = tmp_path / "mine.py"
        path.write_text(f"import networkx as nx\n{body}\n")
        topology = f"topology={{kind: '{path}:graphs'{section}}}"
        changes = [*SHORT, "fleet.devices=4", topology, *overrides]
        return load_scenario(EXAMPLES / "one_peer_hypercube.yaml", changes)

    return make


def test_the_example_averages_exactly_in_as_many_rounds_as_its_numbers_have_bits():
    path = EXAMPLES / "one_peer_hypercube.yaml"
    schedule = make_schedule(load_scenario(path))
    rounds = [mixing_matrix(schedule.graph(index)) for index in range(4)]
    np.testing.assert_array_equal(rounds[2] @ rounds[1] @ rounds[0], np.full((8, 8), 1 / 8))
    np.testing.assert_array_equal(rounds[3], rounds[0])
    orders = {
        make_schedule(load_scenario(path, [f"seed={seed}"])).out_edges(0, 0) for seed in range(6)
    }
    assert len(orders) > 1, "its order is drawn"
    with pytest.raises(ScenarioError, match=r"ValueError: 6 devices are no power of two") as caught:
        make_schedule(load_scenario(path, ["fleet.devices=6"]))
    assert str(caught.value).startswith(f"topology.kind: {EXAMPLES}/one_peer_hypercube.py:one_peer")


def test_it_is_given_what_it_names(own):
    body = (
        "def graphs(num_devices, device_names, seed, rng, far):\n"
        "    assert (num_devices, device_names, seed) == (4, ('a', 'b', 'c', 'd'), 9)\n"
        "    names = [device_names[int(k)] for k in rng.permutation(4)]\n"
        "    graph = nx.DiGraph(zip(names, names[1:] + names[:1]))\n"
        "    graph.edges[names[0], names[1]]['latency_ms'] = far\n"
        "    return graph"
    )
    scenario = own(
        body,
        "seed=9",
        "fleet={devices: 4, names: [a, b, c, d], profile: raspberry-pi-4b}",
        section=", options: {far: 70}",
    )
    prepared = prepare(scenario)
    links = [
        prepared.schedule.link_attributes(device, receiver).get("latency_ms")
        for device in range(4)
        for receiver, _ in prepared.schedule.out_edges(device, 0)
    ]
    assert sorted(links, key=str) == [70.0, None, None, None]
    latencies = [
        link.latency_s
        for hardware in device_hardware(prepared.scenario, prepared.schedule)
        for link in hardware.links.values()
    ]
    assert max(latencies) == pytest.approx(0.07)
    assert sum(latency == max(latencies) for latency in latencies) == 1


def test_graphs_that_differ_from_call_to_call_are_refused(own):
    body = (
        "calls = []\n"
        "def graphs(num_devices):\n"
        "    calls.append(1)\n"
        "    return nx.cycle_graph(4) if len(calls) % 2 else nx.complete_graph(4)"
    )
    with pytest.raises(ScenarioError, match="gives two different graphs for the same seed; draw"):
        prepare(own(body))


def test_what_is_no_graph_is_said_with_its_key(own):
    with pytest.raises(ScenarioError, match=r"mine\.py:graphs returns what can't be used: it is i"):
        prepare(own("def graphs(num_devices):\n    return num_devices"))


def test_algorithms_for_one_symmetric_graph_take_such_graphs_alone(own):
    """D2 mixes with one symmetric matrix, which a graph of one's own may have."""
    gossip = "gossip={algorithm: d2, averaging_rate: 0.9}"
    ring = "def graphs(num_devices):\n    return nx.cycle_graph(num_devices)"
    prepare(own(ring, gossip))
    star = "def graphs(num_devices):\n    return nx.star_graph(num_devices - 1)"
    with pytest.raises(ScenarioError, match="whose graph has other weights in one direction than"):
        prepare(own(star, gossip))
    prepare(own(star, gossip, section=", weights: metropolis"))
    two = "def graphs(num_devices):\n    return [nx.cycle_graph(4), nx.complete_graph(4)]"
    with pytest.raises(ScenarioError, match=r"whose graph changes; gossip\.algorithm: d2 ne"):
        prepare(own(two, gossip))


def test_weights_of_edges_are_those_of_gossip(own):
    body = (
        "def graphs(num_devices):\n"
        "    graph = nx.cycle_graph(num_devices)\n"
        "    nx.set_edge_attributes(graph, 0.4, 'weight')\n"
        "    return graph"
    )
    with pytest.raises(ScenarioError, match="weights: column_stochastic would replace; set weight"):
        prepare(own(body))
    schedule = make_schedule(own(body, section=", weights: edges"))
    W = mixing_matrix(schedule.graph(0))
    np.testing.assert_allclose(np.diag(W), 0.2, atol=1e-15)


@pytest.mark.parametrize(
    ("weight", "rate", "pace", "is_said"),
    [
        (1.0, 1.0, "lockstep", True),
        (1.0, 0.9, "lockstep", False),
        (0.9, 1.0, "lockstep", False),
        (1.0, 1.0, "free", False),
    ],
)
def test_weights_that_hand_models_round_are_said_before_a_run(own, weight, rate, pace, is_said):
    """On a directed ring of whole models each device has another's model, and never an average."""
    body = (
        "def graphs(num_devices):\n"
        "    graph = nx.cycle_graph(num_devices, create_using=nx.DiGraph)\n"
        f"    nx.set_edge_attributes(graph, {weight}, 'weight')\n"
        "    return graph"
    )
    fleet = f"fleet={{devices: 4, pace: {pace}, profile: raspberry-pi-4b}}"
    gossip = f"gossip={{algorithm: gradient_push, averaging_rate: {rate}}}"
    checked = edgesim.validate(own(body, fleet, gossip, section=", weights: edges"))
    said = [notice for notice in checked.notices if "models go round" in notice]
    assert len(said) == is_said


def test_the_list_says_that_there_may_be_others():
    notes = " ".join(catalog_table("topologies", None).notes)
    assert "or one of your own: topology.kind: package.module:Name or ./file.py:Name" in notes
    table = catalog_table("keys", "topology.weights")
    assert any("edges" in " ".join(row) for row in table.rows)


def test_a_run_is_not_resumed_with_other_graphs_of_the_same_code(tmp_path):
    """The function reads a file, which its source does not tell of."""
    (tmp_path / "weight.txt").write_text("0.5")
    (tmp_path / "mine.py").write_text(
        "import networkx as nx\n"
        "from pathlib import Path\n\n"
        "def graphs(num_devices):\n"
        "    graph = nx.cycle_graph(num_devices, create_using=nx.DiGraph)\n"
        f"    weight = float(Path({str(tmp_path / 'weight.txt')!r}).read_text())\n"
        "    nx.set_edge_attributes(graph, weight, 'weight')\n"
        "    return graph\n"
    )

    def stop(_evaluation):
        raise InterruptedError

    topology = {"kind": f"{tmp_path}/mine.py:graphs", "weights": "edges"}
    settings = {"topology": topology, "data__train_samples": 100, "training__rounds": 8}
    every = {"every_rounds": 4, "samples": 20}
    place = tmp_path / "run"
    with pytest.raises(InterruptedError):
        edgesim.run(
            "quickstart",
            out=place,
            inline=True,
            on_evaluation=stop,
            evaluation=every,
            **settings,
        )
    (tmp_path / "weight.txt").write_text("0.25")
    with pytest.raises(
        RunDirectoryError, match=r"mine.py:graphs gives other graphs than those that"
    ):
        edgesim.resume(place)
    (tmp_path / "weight.txt").write_text("0.5")
    assert edgesim.resume(place).summary["rounds"] == 8
