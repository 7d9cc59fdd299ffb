"""Section topology of kind: trace."""

from pathlib import Path

import pytest
from test_scenario_files import LEAST, error_of, write

from edgesim.assembly.build import make_schedule
from edgesim.assembly.equipment import check_hardware, device_hardware
from edgesim.errors import ScenarioError
from edgesim.scenario import load_scenario

BUSES = Path(__file__).resolve().parents[2] / "scenarios" / "traces" / "buses.yaml"
RING = "time,source,target,duration\n0,0,1,5\n20,1,2,5\n40,2,3,5\n60,3,0,5\n"


def scenario_of(tmp_path: Path, options: str = "", *overrides: str):
    (tmp_path / "contacts.csv").write_text(RING)
    topology = f"{{kind: trace, path: contacts.csv, seconds_per_round: 10{options}}}"
    return load_scenario(write(tmp_path, LEAST.replace("{kind: ring}", topology)), list(overrides))


def test_the_path_is_relative_to_the_scenario_and_rounds_have_their_seconds(tmp_path: Path):
    schedule = make_schedule(scenario_of(tmp_path))
    assert schedule.seconds_per_round == 10
    assert [schedule.out_edges(0, t) for t in range(3)] == [((1, 0.5),), (), ()]
    assert schedule.period is None


def test_options_reach_the_schedule(tmp_path: Path):
    options = ", repeat: true, undirected: true, weights: metropolis"
    schedule = make_schedule(scenario_of(tmp_path, options))
    assert schedule.period == 7
    assert schedule.out_edges(1, 7) == ((0, 0.5),)


@pytest.mark.parametrize(
    ("options", "override", "error"),
    [
        ("", "fleet.devices=3", "contacts.csv, line 4: there is no device 3; the fleet has 0 to 2"),
        (
            "",
            "fleet.devices=5",
            "contacts.csv: not strongly connected: nothing that device 0 sends",
        ),
        (", weights: metropolis", "seed=1", "contacts.csv: metropolis weights need every contact"),
        ("", "training.rounds=6", "devices 1, 2, 3 sends can reach device 0 within 6 rounds"),
    ],
)
def test_a_trace_that_does_not_fit_the_fleet_is_refused(
    options: str, override: str, error: str, tmp_path: Path
):
    with pytest.raises(ScenarioError) as refusal:
        make_schedule(scenario_of(tmp_path, options, override))
    message = str(refusal.value)
    assert message.startswith("topology: ")
    assert error in message
    assert "\n" not in message


@pytest.mark.parametrize("churn", [False, True])
def test_of_a_trace_that_begins_after_the_training_the_first_contact_is_told(
    tmp_path: Path, *, churn: bool
):
    override = f"fleet.churn={'{leaves: [{device: 3, round: 5}]}' if churn else 'null'}"
    scenario = scenario_of(tmp_path, "", override, "training.rounds=8")
    (tmp_path / "contacts.csv").write_text(
        "\n".join(
            f"{'time' if k == 0 else 1700000000 + k},{line.partition(',')[2]}"
            for k, line in enumerate(RING.splitlines())
        )
    )
    with pytest.raises(ScenarioError) as refusal:
        make_schedule(scenario)
    message = str(refusal.value)
    assert (
        "the first contact comes after 170,000,000 rounds (1.7e+09 s), and the training" in message
    )
    assert "times count from 0: subtract that of the first contact" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("topology", "error"),
    [
        ("{kind: trace, path: c.csv}", "topology.seconds_per_round is missing; must be a number"),
        (
            "{kind: trace, path: c.csv, seconds_per_round: 0}",
            "topology.seconds_per_round is 0; must be a number in [1e-06, 1e+09]",
        ),
        (
            "{kind: trace, path: c.csv, seconds_per_round: 1, repeat: 3}",
            "topology.repeat is 3; must be true or false",
        ),
        (
            "{kind: trace, path: c.csv, seconds_per_round: 1, hold: 3}",
            "topology.hold is an unknown key of kind: trace; known: kind, weights, path,",
        ),
        (
            "{kind: cycle, graphs: [{kind: trace, path: c.csv, seconds_per_round: 1}]}",
            "topology.graphs[0].kind is the text 'trace'; must be one of",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_its_line(topology: str, error: str, tmp_path: Path):
    message = error_of(write(tmp_path, LEAST.replace("{kind: ring}", topology)))
    assert message.startswith(f"x.yaml:3: {error}")


def test_dcd_refuses_a_trace(tmp_path: Path):
    text = LEAST.replace("{kind: ring}", "{kind: trace, path: c.csv, seconds_per_round: 1}")
    overrides = ("gossip.algorithm=dcd", "topology.weights=metropolis")
    scenario = load_scenario(write(tmp_path, text), overrides)
    said = "topology.kind is trace; gossip.algorithm: dcd needs a fixed graph"
    with pytest.raises(ScenarioError, match=said):
        make_schedule(scenario)


def test_buses_and_stops_can_tell_each_other_everything():
    """The shipped example: numbers by sorted name, bus 4 joining in round 20."""
    schedule = make_schedule(load_scenario(BUSES))
    names = [name for _, name in schedule.graph(0).nodes(data="name")]
    assert names == ["bus-1", "bus-2", "bus-3", "bus-4", "depot", "harbour", "market"]
    assert schedule.presence.join_round(names.index("bus-4")) == 20
    stops = {names.index(stop) for stop in ("depot", "harbour", "market")}
    for bus in range(4):
        assert stops <= set(schedule.possible_receivers(bus))


def test_local_steps_would_miss_contacts(tmp_path: Path):
    with pytest.raises(ScenarioError) as refusal:
        make_schedule(scenario_of(tmp_path, "", "gossip.local_steps=2"))
    assert str(refusal.value) == (
        "gossip.local_steps: an exchange every 2 rounds would miss contacts of a trace, which says "
        "when devices meet; must be 1"
    )


def test_figures_of_links_are_those_of_the_trace_and_checked(tmp_path: Path):
    text = RING.replace("duration\n", "duration,bandwidth_mbps\n").replace(",5\n", ",5,2\n")
    scenario = scenario_of(tmp_path, "", "fleet.profile=raspberry-pi-4b")
    (tmp_path / "contacts.csv").write_text(text)
    hardware = device_hardware(scenario, make_schedule(scenario))
    assert hardware[0].links[1].bandwidth_bps == 2e6
    assert hardware[1].links[0].bandwidth_bps > 2e6, "no contact of that link is in the trace"
    (tmp_path / "contacts.csv").write_text(text.replace(",2\n", ",-2\n"))
    with pytest.raises(ScenarioError, match=r"bandwidth_mbps of the link 0 -> 1 is -2.0; must be"):
        check_hardware(scenario, make_schedule(scenario))
