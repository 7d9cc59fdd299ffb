"""Fleets in lockstep on a contact trace: times and energies by hand, by `cost` and by a run."""

from __future__ import annotations

import pandas as pd
import pytest
from study_scenarios import DENSE, ran, small

from edgesim.hardware.catalog import PROFILES
from edgesim.study.answer import answer_of
from edgesim.study.candidates import candidates
from edgesim.study.changes import advise
from edgesim.study.iteration import iteration_costs
from edgesim.study.rounds.critical_path import seconds_by_kind
from edgesim.study.tables.answer_text import answer_lines
from edgesim.study.tables.scenario_tables import time_table
from edgesim.study.training import training_of

BOARD = PROFILES["raspberry-pi-4b"].profile
AWAY = "{device: 0, from_round: 0, until_round: 1}, {device: 1, from_round: 3, until_round: 5}"
LENGTH = ("training.epochs=null", "training.rounds=6", "evaluation={}")


def on_trace(
    folder, *settings, rows=("0,0,1,20", "20,1,2,1", "30,2,3,10"), seconds=10, repeat="false"
):
    """Four devices of a chain, that meet by pairs."""
    path = folder / "contacts.csv"
    path.write_text("\n".join(["time,source,target,duration", *rows]) + "\n")
    graph = (
        f"topology={{kind: trace, path: {path}, seconds_per_round: {seconds}, undirected: true, "
        f"repeat: {repeat}}}"
    )
    board = "fleet.devices=[{profile: raspberry-pi-4b, count: 4}]"
    return small(folder, board, graph, DENSE, *LENGTH, *settings)


def test_a_fleet_takes_the_seconds_of_its_rounds_and_draws_idle_power_in_them(tmp_path):
    """Rounds x S seconds; idle energy is idle power x (time - computing)."""
    scenario = on_trace(tmp_path)
    foretold = training_of(costs := iteration_costs(scenario))
    rounds = pd.read_parquet(ran(tmp_path, scenario).path / "rounds.parquet")
    found = rounds.groupby("device")
    assert foretold.seconds == 60.0
    assert (rounds["virtual_time_s"] == 10.0 * (rounds["round"] + 1)).all()
    by_hand_j = BOARD.idle_power_w * (60.0 - found["virtual_compute_s"].sum().to_numpy())
    assert found["energy_idle_j"].sum().to_numpy() == pytest.approx(by_hand_j, rel=1e-9)
    assert foretold.energy_j == pytest.approx(found["energy_j"].sum(), rel=1e-3)
    assert min(foretold.energy_j) > 60 * BOARD.idle_power_w
    for device in costs.devices:
        cycle = device.time.cycle
        assert cycle.period_s == pytest.approx(10.0, rel=1e-12)
        assert cycle.most_wait_s == found["virtual_wait_s"].max()[device.device]
        assert cycle.waits_for is None


@pytest.mark.parametrize(
    "settings",
    [
        ("network.bandwidth_mbps=0.05", "training.rounds=5"),  # messages longer than rounds
        (f"fleet.churn={{absent: [{AWAY}]}}",),
        ("fleet.duty_cycle={period_s: 7, awake_s: 2}",),
    ],
)
def test_so_it_is_with_late_rounds_absences_and_sleep(tmp_path, settings):
    scenario = on_trace(tmp_path, *settings)
    foretold = training_of(iteration_costs(scenario))
    run = ran(tmp_path, scenario)
    found = pd.read_parquet(run.path / "rounds.parquet").groupby("device")
    assert foretold.seconds == pytest.approx(found["virtual_time_s"].max().max(), rel=1e-12)
    assert foretold.energy_j == pytest.approx(found["energy_j"].sum(), rel=1e-3)


@pytest.mark.parametrize("churn", [f"absent: [{AWAY}]", "joins: [{device: 1, round: 4}]"])
def test_nobody_sends_before_its_round_begins(tmp_path, churn):
    """Not even who was away; by `cost` no sleep or step lasts for an absence either."""
    scenario = on_trace(
        tmp_path, f"fleet.churn={{{churn}}}", rows=("0,0,1,60", "0,1,2,60", "0,2,3,60")
    )
    messages = pd.read_parquet(ran(tmp_path, scenario).path / "messages.parquet")
    assert (messages["departure_time_s"] >= 10.0 * messages["round"]).all()
    limits = seconds_by_kind(iteration_costs(scenario).steady_state.limits)
    assert limits == {"trace": pytest.approx(10.0, rel=1e-9)}


def test_a_battery_has_to_last_for_the_seconds_of_the_trace(tmp_path):
    """60 s of idle power are 0.05 Wh or so, with a reserve for a turn of four rounds."""
    needed_j = 60 * BOARD.idle_power_w

    def lasting(joules):
        board = "profile: raspberry-pi-4b"
        fleet = f"[{{{board}, count: 3}}, {{{board}, battery_wh: {joules / 3600:.9g}}}]"
        scenario = on_trace(
            tmp_path, f"fleet.devices={fleet}", rows=("0,0,3,60", "0,0,1,60", "0,1,2,60")
        )
        (life,) = training_of(iteration_costs(scenario)).lives
        run = ran(tmp_path, scenario, f"run{joules:.0f}")
        return life.lasts, "3" not in run.summary["left_after_round"]

    assert lasting(0.5 * needed_j) == (False, False)
    assert lasting(2.2 * needed_j) == (True, True)


def test_a_long_training_on_a_trace_that_repeats_settles_at_its_seconds(tmp_path):
    scenario = on_trace(tmp_path, "training.rounds=100000", repeat="true")
    state = iteration_costs(scenario).steady_state
    assert not state.is_whole
    assert state.is_settled
    assert state.period_s == pytest.approx(10.0, rel=1e-9)


def test_what_takes_the_time_is_the_trace_and_nobody_is_waited_for(tmp_path):
    """No changed scenario is tried, nor named is free pace, which would do the rounds sooner."""
    scenario = on_trace(tmp_path)
    costs = iteration_costs(scenario)
    said = " ".join("\n".join(answer_lines(answer_of(costs, advise(scenario, costs)))).split())
    assert "limits the contact trace 10 s: of 10 s a round" in said
    assert "change none makes rounds shorter: the contact trace says how long they last" in said
    assert {row[-1] for row in time_table(costs).rows} == {"the contact trace"}
    assert ("fleet.pace=free",) not in {one.settings for one in candidates(scenario, costs)}


def test_one_late_message_is_not_awaited_more_than_the_trace(tmp_path):
    """In round 0 device 0 or 1 waits for the other; in 59 rounds all wait for the trace."""
    scenario = on_trace(
        tmp_path,
        "training.rounds=60",
        "network.bandwidth_mbps=0.14",
        rows=("0,0,1,10", "0,2,3,10", "100,1,2,10"),
    )
    costs = iteration_costs(scenario)
    assert max(device.time.cycle.most_late_s for device in costs.devices) > 0
    assert {row[-1] for row in time_table(costs).rows} == {"the contact trace"}


def test_where_messages_take_longer_than_rounds_they_are_told_beside_the_trace(tmp_path):
    """In the last round, from 50 s on, two messages of 6.5 s share a half-duplex radio."""
    rows = ("0,0,1,10", "10,1,2,10", "50,2,3,10")
    state = iteration_costs(
        on_trace(tmp_path, "network.bandwidth_mbps=0.12", rows=rows)
    ).steady_state
    by_kind = {kind: 6 * seconds for kind, seconds in seconds_by_kind(state.limits).items()}
    assert by_kind["trace"] == pytest.approx(50.0, rel=1e-9)
    assert by_kind["sending"] > 10
    assert sum(by_kind.values()) == pytest.approx(6 * state.period_s, rel=1e-9)


def test_at_free_pace_rounds_are_as_short_as_ever(tmp_path):
    assert training_of(iteration_costs(on_trace(tmp_path, "fleet.pace=free"))).seconds < 10
