"""A long training at free pace is reckoned from two shorter ones, as its own clocks would say."""

from __future__ import annotations

import pytest
from study_scenarios import small

from edgesim.api.costs import costs_of
from edgesim.study.iteration import iteration_costs
from edgesim.study.rounds import free_pace, steady_state
from edgesim.study.tables.scenario_tables import fleet_table
from edgesim.study.training import training_of

UNLIKE = "fleet.devices=[{profile: raspberry-pi-4b, count: 3}, {profile: esp32-s3}]"
TWICE = (
    "fleet.devices=[{profile: jetson-nano, count: 2}, {profile: raspberry-pi-zero-2w, count: 2}]"
)
SIGNS = "gossip={algorithm: choco, averaging_rate: 0.01, compressor: {kind: sign_scale}}"
RING = "topology={kind: ring}"
CASES = {
    "unlike": (UNLIKE, RING, SIGNS),
    "busy radios": (TWICE, RING, "network={bandwidth_mbps: 5}"),
    "losses": (TWICE, RING, "network={bandwidth_mbps: 10, latency_ms: 3, jitter_ms: 2, loss: 0.1}"),
    "virtual time": (UNLIKE, RING, SIGNS, "training.virtual_time_s=20"),
}


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_a_long_training_is_reckoned_as_its_clocks_run(tmp_path, monkeypatch, settings):
    monkeypatch.setattr(free_pace, "_MOST_EVENTS", 30_000)
    rounds = ("training.epochs=null", "training.rounds=9000", "fleet.pace=free")
    scenario = small(tmp_path, *rounds, *settings)
    monkeypatch.setattr(steady_state, "FEW_EVENTS", 0)
    reckoned = iteration_costs(scenario)
    monkeypatch.setattr(steady_state, "FEW_EVENTS", 1_000_000)
    whole = iteration_costs(scenario)
    assert not reckoned.steady_state.is_whole
    assert whole.steady_state.is_whole
    rows = dict(fleet_table(reckoned).rows)
    assert rows["clocks run for it"].startswith("two shorter trainings")
    foretold, found = training_of(reckoned), training_of(whole)
    assert foretold.seconds == pytest.approx(found.seconds, rel=0.01)
    assert foretold.rounds == pytest.approx(found.rounds, rel=0.01)
    assert foretold.sent_bytes == pytest.approx(found.sent_bytes, rel=0.1)
    assert sum(foretold.sent_bytes) == pytest.approx(sum(found.sent_bytes), rel=0.02)
    assert sum(foretold.energy_j) == pytest.approx(sum(found.energy_j), rel=0.02)
    assert foretold.last_wait_s == pytest.approx(found.last_wait_s, abs=0.02 * found.seconds)


def test_a_long_training_on_a_trace_is_said_to_be_reckoned_from_its_beginning(
    tmp_path, monkeypatch
):
    """Its contacts go by time, which a shorter training has less of."""
    trace = tmp_path / "contacts.csv"
    trace.write_text("time,source,target,duration\n0,0,1,600\n600,1,2,5400\n600,2,3,5400\n")
    length = ("training.epochs=null", "training.rounds=400", "fleet.pace=free")
    topology = f"topology={{kind: trace, path: {trace}, seconds_per_round: 60, undirected: true}}"
    scenario = small(tmp_path, *length, UNLIKE, topology)
    assert not [line for line in costs_of((scenario, "s")).notices if "far off" in line]
    in_step = small(tmp_path, *length[:2], UNLIKE, topology)
    monkeypatch.setattr(steady_state, "FEW_EVENTS", 0)
    assert not [line for line in costs_of((in_step, "s")).notices if "far off" in line]
    monkeypatch.setattr(free_pace, "_MOST_EVENTS", 100)
    for other in (None, (scenario, "other")):
        said = [line for line in costs_of((scenario, "s"), other).notices if "far off" in line]
        assert [
            line.partition(": topology: the training has more than 300 rounds")[0] for line in said
        ] == ["s", "other"][: 2 if other else 1]
