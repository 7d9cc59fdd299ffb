"""Reports of fleets whose devices come, go, sleep or are not drawn say so, with right numbers."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from small_fleets import small_scenario, write_scenario

from edgesim.assembly.equipment import awake_times
from edgesim.assembly.preparation import prepare
from edgesim.device.trainer import DivergedError
from edgesim.fleet.run import run_scenario
from edgesim.report.activity import away_between, segments, shares_over_time, spans_of_rounds
from edgesim.report.ends import device_table, rounds_missed
from edgesim.report.figures.graph_figure import graph_figure
from edgesim.report.figures.time_figures import time_figures
from edgesim.report.report import report_page
from edgesim.report.runs import load_runs
from edgesim.report.summary import in_short
from edgesim.report.troubles import troubles
from edgesim.report.waiting import pace_setters
from edgesim.scenario import load_scenario


def reported(folder, **changes):
    """A small run in this process, as a report sees it."""
    scenario = small_scenario(**changes)
    prepared = prepare(load_scenario(write_scenario(folder, scenario)))
    run_scenario(prepared, folder / "run", inline=True, console=Console(quiet=True))
    return load_runs([folder / "run"])[0]


def test_absences_at_both_ends_count_and_only_planned_joins_are_joins(tmp_path):
    churn = {
        "absent": [
            {"device": 1, "from_round": 4},
            {"device": 2, "from_round": 0, "until_round": 5},
        ],
        "joins": [{"device": 3, "round": 3}],
    }
    run = reported(
        tmp_path,
        fleet={"devices": 5, "churn": churn},
        topology={"kind": "complete"},
        training={"rounds": 12},
    )
    assert rounds_missed(run) == {1: 8, 2: 5}
    devices = device_table(run)
    assert devices["end"].tolist() == ["there", "absent", "there", "there", "there"]
    said = troubles(run, devices)
    assert "Device 1 was absent in 8 rounds." in said
    assert "Device 2 was absent in 5 rounds." in said
    assert "Joined later: device 3 in round 3." in said


def test_devices_that_no_cycle_drew_last_are_no_trouble(tmp_path):
    """Nor are those that took fewer steps slow."""
    run = reported(
        tmp_path,
        fleet={"devices": 5, "profile": "raspberry-pi-4b"},
        topology={"kind": "star"},
        training={"rounds": 12},
        gossip={
            "algorithm": "fedavg",
            "participation": 0.5,
            "averaging_rate": None,
            "compressor": None,
        },
        evaluation={"every_rounds": 12},
        data={"batch_size": 8, "partition": {"kind": "iid"}},
    )
    devices = device_table(run)
    last = run.by_device.groupby("device")["push_weight"].last()
    assert (last == 0).any()
    assert run.run.summary["without_model"] == []
    assert not any("got no model" in line for line in troubles(run, devices))
    assert devices["steps"].nunique() > 1
    times_s = devices["step_rounds_s"] / devices["steps"]
    assert times_s[1:].nunique() == 1
    (line,) = [line for line in in_short(run, devices) if line.startswith("Slowest")]
    server = "Slowest is device 0: it computes 0.457 ms a round with a step, 1.14 times as long as"
    assert line.startswith(server)


def asleep(tmp_path, period_s=0.01):
    cycle = {"period_s": period_s, "awake_s": 0.4 * period_s}
    return reported(
        tmp_path,
        fleet={"devices": 4, "profile": "raspberry-pi-5", "duty_cycle": cycle},
        network={"latency_ms": 1, "bandwidth_mbps": 50},
        topology={"kind": "ring"},
        training={"rounds": 12},
    )


def test_sleep_is_no_message_and_no_step(tmp_path):
    run = asleep(tmp_path)
    found = pace_setters(run)
    end_s = run.rounds["virtual_time_s"].max()
    assert found.whole_s == pytest.approx(end_s)
    awake_s = awake_times(run.scenario)[0].awake_between(0.0, end_s)
    assert found.away_s == pytest.approx(end_s - awake_s)
    (line,) = [each for each in in_short(run, device_table(run)) if "set the pace" in each]
    assert "sleep " in line


def test_the_fleet_sleeps_when_all_devices_do(tmp_path):
    run = asleep(tmp_path)
    spans = spans_of_rounds(run)
    num_bins = 40
    shares = shares_over_time(run, spans, num_bins)
    edges = np.linspace(0.0, spans["end_s"].max(), num_bins + 1)
    sleeps = shares[shares["activity"] == "asleep"]["share"].to_numpy()
    last_s = spans.groupby("device")["end_s"].max()
    for place in range(num_bins):
        low_s, high_s = edges[place], edges[place + 1]
        expected = 0.0
        for device, times in enumerate(awake_times(run.scenario)):
            until_s = min(high_s, last_s[device])
            if until_s > low_s:
                expected += until_s - low_s - times.awake_between(low_s, until_s)
        assert sleeps[place] == pytest.approx(expected / (high_s - low_s) / 4, abs=1e-9)
    whole = shares.groupby("time_s")["share"].sum()
    assert whole.to_numpy() == pytest.approx(np.ones(num_bins))


def away_at_free_pace(tmp_path):
    cycle = {"period_s": 0.01, "awake_s": 0.004}
    churn = {
        "absent": [{"device": 1, "from_s": 0.02, "until_s": 0.045}],
        "joins": [{"device": 3, "at_s": 0.033}],
    }
    return reported(
        tmp_path,
        fleet={
            "pace": "free",
            "devices": [{"profile": "raspberry-pi-5", "count": 4, "duty_cycle": cycle}],
            "churn": churn,
        },
        network={"latency_ms": 1},
        topology={"kind": "complete"},
        training={"rounds": 30},
        evaluation={"every_rounds": 30},
    )


@pytest.mark.parametrize("make", [asleep, away_at_free_pace])
def test_spans_of_the_timeline_do_not_overlap(tmp_path, make):
    run = make(tmp_path)
    spans = spans_of_rounds(run)
    table = segments(run, spans, (0.0, float(spans["end_s"].max())), [0, 1, 2, 3])
    for _, own in table[table["activity"] != "sending"].groupby("device"):
        in_order = own.sort_values("start_s")
        assert (in_order["start_s"].iloc[1:].to_numpy() >= in_order["end_s"].iloc[:-1] - 1e-9).all()
    lengths = (table["end_s"] - table["start_s"]).groupby([table["device"], table["activity"]])
    totals = spans.groupby("device")[["compute_s", "wait_s"]].sum()
    for device, own in totals.iterrows():
        for activity, column in (("computing", "compute_s"), ("waiting", "wait_s")):
            lasted = lengths.sum().get((device, activity), 0.0)
            assert lasted == pytest.approx(own[column]), (device, activity)


def test_sleeps_that_are_many_shorten_the_timeline_and_are_drawn(tmp_path):
    """Rounds have hundreds of sleeps each; all that a device does fills the time of a part."""
    run = asleep(tmp_path, period_s=0.00002)
    (figure,) = [each for each in time_figures(run, device_table(run)) if each.key == "timeline"]
    times, table = awake_times(run.scenario), figure.tables["timeline"]
    assert set(table["part"]) == {"begin", "middle", "end"}
    assert "so short that a device sleeps some 200 times at most." in figure.caption
    ends_s = spans_of_rounds(run).groupby("device")["end_s"].max()
    for _, part in table[table["activity"] != "sending"].groupby("part"):
        low_s, high_s = part["start_s"].min(), part["end_s"].max()
        assert high_s - low_s == pytest.approx(200 * 0.00002)
        for device, own in part.groupby("device"):
            lasted = own.groupby("activity")["length_s"].sum()
            awake_s = times[device].awake_between(low_s, min(high_s, ends_s[device]))
            assert lasted.drop("asleep").sum() == pytest.approx(awake_s, rel=1e-4)
            asleep_s = high_s - low_s - times[device].awake_between(low_s, high_s)
            assert lasted["asleep"] == pytest.approx(asleep_s, rel=1e-4)


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """Three of five devices leave, one after the other; one of them had joined late."""
    churn = {
        "joins": [{"device": 3, "round": 4}],
        "leaves": [
            {"device": 4, "round": 3},
            {"device": 3, "round": 8},
            {"device": 2, "round": 12},
        ],
    }
    return reported(
        tmp_path_factory.mktemp("left"),
        fleet={"devices": 5, "profile": "raspberry-pi-4b", "churn": churn},
        topology={"kind": "complete"},
        training={"rounds": 24},
        data={"partition": {"kind": "iid"}},
    )


def test_after_leaves_only_devices_that_are_there_are_drawn(left):
    there = left.by_device.groupby("round")["device"].apply(set)
    links = graph_figure(left, device_table(left)).tables["links"]
    by_graph = links.groupby("graph")[["sender", "receiver"]].agg(set)
    assert len(by_graph) > 1
    for graph, ends in by_graph.iterrows():
        numbers = [int(number) for number in re.findall(r"\d+", graph)]
        # The last messages of a leaver are of the next exchange.
        assert ends["sender"] | ends["receiver"] <= there[numbers[0]] | there[numbers[0] + 1]
    spans = spans_of_rounds(left)
    end_s = float(spans["end_s"].max())
    table = segments(left, spans, (0.9 * end_s, end_s), list(range(5)))
    at_the_end = {left.labels[device] for device in there[there.index.max()]}
    assert set(table["peer"]) - {""} <= at_the_end


def test_a_leaver_has_done_its_own_rounds(left):
    devices = device_table(left)
    said = [line for line in troubles(left, devices) if " left " in line]
    assert len(said) == 3
    for line in said:
        device = int(line.split()[1])
        assert f"after {devices['rounds'][device]} rounds" in line
    assert devices["rounds"][3] < left.run.summary["left_after_round"]["3"] + 1


def test_nobody_waits_for_itself_or_sleeps_after_leaves(left):
    waiting = left.by_device[left.by_device["waited_for"] >= 0]
    assert (waiting["waited_for"] != waiting["device"]).all()
    found = pace_setters(left)
    assert found.away_s == 0
    assert found.whole_s == pytest.approx(left.rounds["virtual_time_s"].max())


def test_bytes_and_messages_are_the_same_between_devices(left):
    found, own = left.exchanges, left.messages
    pd.testing.assert_frame_equal(found[["bytes", "kind"]], own.loc[found.index, ["bytes", "kind"]])
    assert (found["sender"] == found["device"]).all()
    to_itself = own.drop(found.index)
    assert set(to_itself["device"]) <= set(own[own["kind"] == "handover"]["receiver"])


def test_an_unfinished_run_says_what_stopped_it(tmp_path):
    with pytest.raises(DivergedError):
        reported(
            tmp_path,
            fleet={"devices": 3, "churn": {"joins": [{"device": 2, "round": 5}]}},
            topology={"kind": "complete"},
            training={"optimizer": {"lr": 1e9}},
        )
    run = load_runs([tmp_path / "run"])[0]
    assert not any(line.startswith("Joined") for line in troubles(run, device_table(run)))
    (line,) = [line for line in troubles(run, device_table(run)) if "not finished" in line]
    assert "It was stopped by an error: device " in line
    assert "diverged in round" in line
    assert "edgesim resume" not in line  # it would diverge again
    devices = device_table(run)
    assert set(devices["end"]) == {""}
    (line,) = [
        each for each in troubles(replace(run, environment={}), devices) if "not fin" in each
    ]
    assert "stopped by" not in line
    assert "edgesim resume" in line


@pytest.mark.parametrize("table", ["profile", "horowitz_45nm"])
def test_the_table_of_energies_is_named(tmp_path, table):
    run = reported(
        tmp_path,
        fleet={"devices": 2, "profile": "raspberry-pi-4b"},
        hardware={"energy_table": table},
        training={"rounds": 2},
    )
    (line,) = [line for line in in_short(run, device_table(run)) if "the real fleet" in line]
    assert ("horowitz_45nm" in line) == (table == "horowitz_45nm")
    assert "by the energies" not in line or table != "profile"


def test_a_run_in_which_nothing_was_sent_has_a_report(tmp_path):
    """The quick device has ended before the other one joins."""
    run = reported(
        tmp_path,
        fleet={
            "pace": "free",
            "devices": [{"profile": "jetson-nano"}, {"profile": "raspberry-pi-zero-2w"}],
            "churn": {"joins": [{"device": 1, "at_s": 0.05}]},
        },
        topology={"kind": "directed_ring"},
        training={"rounds": 3},
        data={"partition": {"kind": "iid"}},
    )
    assert run.run.summary["sent_bytes"] == 0
    page = report_page([run])
    assert "What each device sent" not in page
    assert "What each device spent its energy on" in page


def test_the_pace_of_a_run_without_messages_is_that_of_steps(tmp_path):
    """One device alone, as a measure for fleets."""
    run = reported(
        tmp_path, fleet={"devices": 1, "profile": "raspberry-pi-4b"}, topology={"kind": "complete"}
    )
    assert run.messages.empty
    found = pace_setters(run)
    assert set(found.links) == {(0, 0)}
    assert found.away_s == 0
    assert "What the fleet does over time" in report_page([run])


def test_a_leaver_that_waits_for_its_radio_does_not_sleep(tmp_path):
    """It hands its vectors over between two exchanges, and the successor waits for that."""
    run = reported(
        tmp_path,
        fleet={
            "devices": 4,
            "profile": "raspberry-pi-5",
            "churn": {"leaves": [{"device": 1, "round": 3}]},
        },
        topology={"kind": "complete"},
        training={"rounds": 6},
        gossip={"local_steps": 3},
        evaluation={"every_rounds": 6},
    )
    (own,) = run.by_device[run.by_device["device"] == 1].tail(1).to_dict("records")
    assert own["virtual_wait_s"] > 0
    assert own["waited_for"] == -1
    found = pace_setters(run)
    assert found.away_s == 0
    assert found.whole_s == pytest.approx(run.rounds["virtual_time_s"].max())
    (successor,) = run.messages[run.messages["kind"] == "handover"]["receiver"]
    assert found.links[1, successor] >= own["virtual_wait_s"]


def slow_with_a_leaver(folder, leaves, rounds, **topology):
    """Messages of 7.7 s; device 3 hands over to its successor, which waits for that."""
    return reported(
        folder,
        fleet={
            "devices": 4,
            "profile": "raspberry-pi-4b",
            "churn": {"leaves": [{"device": 3, "round": leaves}]},
        },
        topology=topology,
        network={"bandwidth_mbps": 0.1},
        gossip={"compressor": {"kind": "identity"}},
        training={"rounds": rounds},
    )


def test_a_successor_that_waits_for_the_handover_waits_for_no_trace(tmp_path):
    """It is told as waiting for itself, as it sends in the leaver's name."""
    run = slow_with_a_leaver(tmp_path, 1, 4, kind="star")
    assert (run.by_device["waited_for"] == run.by_device["device"]).any()
    found = pace_setters(run)
    assert found.trace_s == 0
    assert set(found.links) >= {(3, 0)}
    assert found.whole_s == pytest.approx(run.rounds["virtual_time_s"].max())


def test_the_trace_sets_the_pace_for_no_longer_than_its_rounds(tmp_path):
    contacts = tmp_path / "contacts.csv"
    rows = ["0,0,1,99", "0,1,2,99", "0,2,3,99"]
    contacts.write_text("\n".join(["time,source,target,duration", *rows]) + "\n")
    run = slow_with_a_leaver(
        tmp_path, 2, 6, kind="trace", path=str(contacts), seconds_per_round=10.0, undirected=True
    )
    found = pace_setters(run)
    assert found.trace_s <= 6 * 10.0
    assert found.whole_s == pytest.approx(run.rounds["virtual_time_s"].max())


def test_an_absence_that_begins_within_another_is_drawn_once(tmp_path):
    churn = {
        "absent": [{"device": 1, "from_s": 0.0005, "until_s": 0.001}],
        "random": {"absence_probability": 0.6, "mean_absence_s": 0.002},
    }
    run = reported(
        tmp_path,
        fleet={
            "pace": "free",
            "devices": [{"profile": "raspberry-pi-5", "count": 3}],
            "churn": churn,
        },
        topology={"kind": "complete"},
        training={"rounds": 40},
        evaluation={"every_rounds": 40},
        data={"partition": {"kind": "iid"}},
        seed=5,
    )
    end_s = float(run.rounds["virtual_time_s"].max())
    for times in awake_times(run.scenario):
        spans = away_between(times, 0.0, end_s)
        assert len(spans) > 1
        for (_, _, until_s), (_, from_s, _) in pairwise(spans):
            assert from_s >= until_s
