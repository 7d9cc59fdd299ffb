"""Sentences and tables of runs of a few rows say what can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from hand_made_runs import (
    evaluation,
    figures,
    made,
    message,
    round_of,
    short,
    waiting_fleet,
)

from edgesim.report.activity import segments, shares_over_time, spans_of_rounds
from edgesim.report.ends import device_table
from edgesim.report.evaluations import evaluations_of, extremes, quantile_bands
from edgesim.report.summary import device_rows
from edgesim.report.waiting import pace_setters, waits
from edgesim.scenario import load_scenario
from edgesim.scenario.shipped import shipped_scenarios

QUICKSTART = shipped_scenarios()["quickstart"]


def test_a_fleet_in_short():
    """Each figure is worked out: 20 s of clocks of which 10 s are waits, 28 J, 1,400 bytes."""
    assert short(waiting_fleet()) == [
        "3 devices trained small_cnn in fp32 on digits with choco for 2 rounds.",
        (
            "The averaged model classifies 25 % of the test samples correctly (its best was 50 "
            "% in round 1); devices' own models 12.5 % to 50 %."
        ),
        (
            "The fleet sent 1.4 kB in 12 messages, 467 B a device, the most, 600 B, by device "
            "2; 70 B of lost packets were sent again."
        ),
        "That takes the real fleet 7 s and 28 J; the most, 11 J, is spent by device 0.",
        "Slowest is device 2: it computes 3 s a round with a step, 3 times as long as device 0.",
        "Devices wait for 50 % of their time.",
        (
            "What set the pace of the fleet: steps 85.7 % (device 2 85.7 %), messages 14.3 % (2 "
            "-> 0 14.3 %) of the time."
        ),
    ]


def test_times_by_rates_of_processors_are_called_lower_bounds():
    """Of a profile with measured times of layers they are none."""
    layers = "[{layer: sgd_update, call_us: 1.0}]"
    mine = f"hardware.profiles=[{{name: mine, based_on: raspberry-pi-4b, layer_times: {layers}}}]"

    def said(*boards):
        devices = ", ".join(f"{{profile: {board}}}" for board in boards)
        scenario = load_scenario(QUICKSTART, (mine, f"fleet.devices=[{devices}]"))
        lines = short(replace(waiting_fleet(), scenario=scenario))
        return [line for line in lines if line.startswith("At least that: ")]

    (all_of_them,) = said(*["raspberry-pi-4b"] * 3)
    assert "times and energies of computing are lower bounds" in all_of_them
    (one,) = said("mine", "raspberry-pi-4b", "mine")
    assert "computing on raspberry-pi-4b are lower bounds" in one
    assert said("mine", "mine", "mine") == []


def test_who_waited_for_whom_and_the_critical_path():
    run = waiting_fleet()
    assert waits(run).to_dict("list") == {
        "device": [0, 1],
        "waited_for": [2, 2],
        "waited_s": [5.0, 5.0],
        "times": [2, 2],
    }
    found = pace_setters(run)
    assert list(found.links.items()) == [((2, 2), 6.0), ((2, 0), 1.0)]
    assert found.away_s == 0
    assert found.whole_s == 7


def test_what_waits_for_no_message_waits_for_the_contact_trace():
    """Round 0 ends at second 10; messages of round 1 from the slow device are there at 14."""
    ends_s = {0: (10.0, 14.0), 1: (10.0, 14.0), 2: (10.0, 13.0)}
    rounds = []
    for device, (first_s, second_s) in ends_s.items():
        compute_s, waited_for = (3.0, -1) if device == 2 else (1.0, 2)
        rounds.append(round_of(device, 0, first_s, compute_s, first_s - compute_s))
        wait_s = second_s - 10.0 - compute_s
        rounds.append(round_of(device, 1, second_s, compute_s, wait_s, waited_for))
    messages = [message(1, 2, 0, 13.0), message(1, 2, 1, 13.0)]
    assert pace_setters(made(rounds, messages)).trace_s == 0
    on_trace = made(rounds, messages, topology={"kind": "trace", "seconds_per_round": 10.0})
    found = pace_setters(on_trace)
    assert (found.trace_s, found.away_s) == (10.0, 0.0)
    assert found.links == {(2, 2): 3.0, (2, 0): 1.0}
    assert short(on_trace)[-1] == (
        "What set the pace of the fleet: the contact trace 71.4 %, steps 21.4 % (device 2 21.4 %), "
        "messages 7.14 % of the time."
    )


def test_who_was_away_on_a_contact_trace_sets_the_pace_from_the_begin_of_its_round_on():
    """It is back at second 20, computes until 33, and all wait for its message until 34."""
    rounds = [round_of(0, k, 10.0 * (k + 1), 1.0, 9.0) for k in (0, 1)]
    rounds += [round_of(0, 2, 34.0, 1.0, 13.0, 1), round_of(1, 0, 10.0, 1.0, 9.0)]
    rounds += [round_of(1, 2, 33.0, 13.0)]
    run = made(
        rounds,
        [message(2, 1, 0, 34.0)],
        topology={"kind": "trace", "seconds_per_round": 10.0},
        fleet={"churn": {"absent": [{"device": 1, "from_round": 1, "until_round": 2}]}},
    )
    found = pace_setters(run)
    assert (found.trace_s, found.away_s) == (20.0, 0.0)
    assert found.links == {(1, 1): 13.0, (1, 0): 1.0}
    parts = segments(run, spans_of_rounds(run), (0.0, 40.0), [1])
    of_round = (
        parts[parts["end_s"] <= 33.0]
        .query("round == 2")[["activity", "start_s", "end_s"]]
        .to_numpy()
        .tolist()
    )
    assert of_round == [["absent", 10.0, 20.0], ["computing", 20.0, 33.0]]


def test_a_message_that_was_there_before_the_step_ended_waited_for_a_radio():
    """The step of the receiver set the pace, then its radio, which was busy until second 6."""
    rounds = [round_of(0, 0, 6.0, 4.0, 2.0, 1), round_of(1, 0, 2.0, 2.0)]
    run = made(rounds, [message(0, 1, 0, 2.0), message(0, 1, 0, 5.0)])
    assert pace_setters(run).links == {(0, 0): 4.0, (1, 0): 2.0}


def test_closing_figures_and_the_table_of_devices():
    run = waiting_fleet(
        summary={"wall_s": 90.0, "parameters": 12345, "averaging_rate": 0.4},
        evaluation={"samples": 40, "gossip_rounds": 2},
    )
    assert figures(run) == {
        "accuracy of the averaged model": "25 %",
        "loss of the averaged model": "0.75",
        "  evaluated on": "40 of 355 test samples",
        "accuracy of devices, mean": "29.2 %",
        "  worst to best": "12.5 % to 50 %",
        "consensus distance": "0.25",
        "averaging rate": "0.4",
        "rounds": "2",
        "parameters": "12,345",
        "bytes sent": "1.4 kB",
        "  by a device, most": "600 B",
        "virtual time": "7 s",
        "energy": "28 J",
        "  computing": "12 J",
        "  radio": "6 J",
        "  waiting": "10 J",
        "time of this machine": "1 min 30 s",
        "seed": "1",
        "files": "place",
    }
    table = device_rows(run, device_table(run))
    assert table.columns == (
        *("device", "rounds", "computed", "waited", "radio sent", "sent", "received", "energy"),
        *("accuracy", "at the end"),
    )
    assert table.rows == (
        ("0", "2", "2 s", "5 s", "2 s", "400 B", "500 B", "11 J", "25 %", "there"),
        ("1", "2", "2 s", "5 s", "2 s", "400 B", "500 B", "11 J", "50 %", "there"),
        ("2", "2", "6 s", "0 s", "2 s", "600 B", "400 B", "6 J", "12.5 %", "there"),
    )


def test_energy_of_memory_is_told_where_there_is_some():
    rounds = [round_of(0, 0, 1.0, 1.0, energy_j=3.5, energy_memory_j=0.5)]
    assert figures(made(rounds))["  memory"] == "500 mJ"


def test_a_best_is_told_from_half_a_point_on():
    for first, is_told in ((0.506, True), (0.504, False)):
        rows = [*evaluation(1, first), *evaluation(2, 0.5)]
        line = short(waiting_fleet(evaluations=rows))[1]
        assert ("its best was 50.6 % in round 1" in line) == is_told


def test_results_on_devices_own_samples():
    """The range is from the least to the largest, with the names; without accuracies, of losses."""
    rows = evaluation(2, 0.5, (0.5, 0.5, 0.5))
    accuracies, losses = (0.7, 0.6, 0.9, 0.2), (0.35, 0.5, 0.25, 0.75)
    both = [
        row | {"own_accuracy": accuracy, "own_loss": loss}
        for row, accuracy, loss in zip(rows, accuracies, losses, strict=True)
    ]
    line = short(waiting_fleet(evaluations=both))[2]
    assert line == (
        "On devices' own held-out samples the averaged model has 70 % right, devices' own models "
        "from 20 % right (device 2) to 90 % right (device 1)."
    )
    found = figures(waiting_fleet(evaluations=both))
    assert found["accuracy on devices' own samples"] == "70 %"
    assert found["  of single devices, accuracy on devices' own samples"] == "20 % to 90 %"
    assert found["loss on devices' own samples"] == "0.35"
    assert found["  of single devices, loss on devices' own samples"] == "0.25 to 0.75"
    none = [row | {"own_accuracy": float("nan")} for row in both]
    assert short(waiting_fleet(evaluations=none))[2] == (
        "On devices' own held-out samples the averaged model has a loss of 0.35, devices' own "
        "models from a loss of 0.25 (device 1) to a loss of 0.75 (device 2)."
    )


def test_results_after_further_gossip_are_of_the_accuracy_or_else_of_the_loss():
    rows = [
        row | {"after_gossip_accuracy": 0.75, "after_gossip_loss": 0.5}
        for row in evaluation(2, 0.5)
    ]
    run = waiting_fleet(evaluations=rows, evaluation={"gossip_rounds": 1})
    assert figures(run)["accuracy after 1 further round of gossip, mean"] == "75 %"
    assert "loss after 1 further round of gossip, mean" not in figures(run)
    rows = [row | {"after_gossip_accuracy": float("nan")} for row in rows]
    run = waiting_fleet(evaluations=rows, evaluation={"gossip_rounds": 20})
    assert figures(run)["loss after 20 further rounds of gossip, mean"] == "0.5"


def test_devices_that_are_nearly_as_slow_are_slowest_too():
    """Those within a tenth of the slowest; and where all are within it nobody is slow."""
    steps_s = (1.0, 2.0, 1.9)
    rounds = [round_of(device, 0, 2.0, step_s) for device, step_s in enumerate(steps_s)]
    (line,) = [each for each in short(made(rounds)) if each.startswith("Slowest")]
    assert line == (
        "Slowest are device 1 and device 2: they compute 2 s a round with a step, 2 times as long "
        "as device 0."
    )
    rounds = [round_of(device, 0, 2.0, step_s) for device, step_s in enumerate((1.85, 2.0, 1.9))]
    assert not [each for each in short(made(rounds)) if each.startswith("Slowest")]


def test_a_round_without_a_step_does_not_make_a_device_quick():
    """Device 0 has one step of 2 s in two rounds, so it is as quick as the others."""
    rounds = [round_of(0, 0, 2.0, 2.0), round_of(0, 1, 2.5, 0.5, loss=float("nan"))]
    rounds += [round_of(1, 0, 2.0, 2.0), round_of(1, 1, 4.0, 2.0)]
    run = made(rounds)
    devices = device_table(run).set_index("device")
    assert devices["rounds"].tolist() == [2, 2]
    assert devices["steps"].tolist() == [1, 2]
    assert devices["step_rounds_s"].tolist() == [2.0, 4.0]
    assert not [each for each in short(run) if each.startswith("Slowest")]


def test_time_that_is_neither_computing_nor_waiting_is_time_away():
    run = made([round_of(0, 0, 2.0, 2.0), round_of(0, 1, 10.0, 2.0, 1.0)])
    devices = device_table(run)
    assert devices["asleep_s"].tolist() == [5.0]
    row = dict(
        zip(device_rows(run, devices).columns, device_rows(run, devices).rows[0], strict=True)
    )
    assert (row["computed"], row["waited"], row["asleep"]) == ("4 s", "1 s", "5 s")
    assert spans_of_rounds(run)["away_s"].tolist() == [0.0, 5.0]
    assert spans_of_rounds(run)["start_s"].tolist() == [0.0, 2.0]


def test_shares_of_the_time_of_a_fleet():
    """Four bins of 2 s of two devices: device 1 is gone after second 4."""
    run = made([round_of(0, 0, 8.0, 2.0, 4.0), round_of(1, 0, 4.0, 4.0)])
    table = shares_over_time(run, spans_of_rounds(run), 4)
    found = {
        str(activity): own["share"].tolist()
        for activity, own in table.groupby("activity", sort=False)
    }
    assert found == {
        "computing": [0.625, 0.625, 0.125, 0.125],
        "waiting": [0.25] * 4,
        "asleep": [0.125] * 4,
        "gone": [0.0, 0.0, 0.5, 0.5],
    }
    assert table["time_s"].tolist()[:4] == [1.0, 3.0, 5.0, 7.0]


def test_the_timeline_of_a_window():
    """From second 2 to 6 of the waiting fleet, of devices 0 and 2."""
    run = waiting_fleet()
    table = segments(run, spans_of_rounds(run), (2.0, 6.0), [0, 2])
    assert [tuple(row) for row in table.itertuples(index=False)] == [
        (0, "waiting", 2.0, 4.0, 0, "2"),
        (0, "computing", 4.0, 5.0, 1, ""),
        (0, "waiting", 5.0, 6.0, 1, "2"),
        (2, "computing", 2.0, 3.0, 0, ""),
        (2, "computing", 3.0, 6.0, 1, ""),
        (2, "sending", 3.0, 3.5, 0, "0"),
        (2, "sending", 3.0, 3.5, 0, "1"),
        (0, "sending", 5.0, 5.5, 1, "1"),
        (0, "sending", 5.0, 5.5, 1, "2"),
    ]


def test_an_older_run_does_not_say_for_whom_devices_waited():
    run = waiting_fleet()
    del run.rounds["waited_for"]
    assert waits(run) is None
    assert pace_setters(run).whole_s == 0
    table = segments(run, spans_of_rounds(run), (0.0, 7.0), [0])
    waiting = table[table["activity"] == "waiting"]
    assert waiting["peer"].tolist() == ["", ""]
    assert waiting["start_s"].tolist() == [1.0, 5.0]
    assert not any("pace" in line or "wait for" in line for line in short(run))


def test_an_evaluation_has_what_the_fleet_had_sent_by_then():
    """Rows of devices have the totals of the averaged model's row, not their own."""
    rows = [
        *evaluation(1, 0.5, (0.2, 0.1, 0.3)),
        *evaluation(2, 0.25, (0.25, 0.5, 0.125)),
    ]
    rows = [
        row | {"total_sent_bytes": 10 * place, "total_energy_j": 0.5 * place}
        for place, row in enumerate(rows)
    ]
    found = evaluations_of(waiting_fleet(evaluations=rows))
    assert found["evaluation"].tolist() == [0] * 4 + [1] * 4
    assert found["fleet_sent_bytes"].tolist() == [0] * 4 + [40] * 4
    assert found["fleet_energy_j"].tolist() == [0.0] * 4 + [2.0] * 4
    assert found["series"].tolist() == [
        *("averaged model", "other devices", "best device", "worst device"),
        *("averaged model", "other devices", "best device", "worst device"),
    ]


def test_the_best_and_the_worst_device():
    """Of equal accuracies the loss decides, of which the least is the best."""
    run = waiting_fleet()
    found = extremes(run)
    assert (found.by, found.worst, found.best) == ("accuracy", 2, 1)
    rows = evaluation(2, 0.5, (0.4, 0.4, 0.4))
    for row, loss in zip(rows, (1.0, 0.7, 0.9, 0.8), strict=True):
        row["loss"] = loss
    found = extremes(waiting_fleet(evaluations=rows))
    assert (found.by, found.worst, found.best) == ("loss", 1, 0)
    rows[1]["accuracy"] = 0.3  # device 0 has the least loss, and now the least accuracy
    found = extremes(waiting_fleet(evaluations=rows))
    assert (found.by, found.worst, found.best) == ("accuracy", 0, 2)
    found = extremes(waiting_fleet(evaluations=rows), "loss")
    assert (found.by, found.worst, found.best) == ("loss", 1, 0)


def test_bands_are_quantiles_over_devices():
    """Of 11 devices with the values 0 to 10, in the second of two evaluations."""
    values = [*range(11), *range(0, 22, 2)]
    table = pd.DataFrame({"evaluation": [1] * 11 + [0] * 11, "loss": map(float, values)})
    found = quantile_bands(table, ["evaluation"], ["accuracy", "loss"])
    assert found.to_dict("list") == {
        "evaluation": [0, 1],
        "measure": ["loss", "loss"],
        "lowest": [0.0, 0.0],
        "p10": [2.0, 1.0],
        "p25": [5.0, 2.5],
        "median": [10.0, 5.0],
        "p75": [15.0, 7.5],
        "p90": [18.0, 9.0],
        "highest": [20.0, 10.0],
    }


def test_of_a_large_fleet_the_table_has_those_that_stand_out():
    """Of 70 devices: two at each end of each figure, and the first eight that left."""
    rounds = [
        round_of(device, 0, 1.0, 1.0 + (device == 30) - (device == 31) / 2, sent_bytes=100 + device)
        for device in range(70)
    ]
    left = {str(device): 0 for device in range(40, 52)}
    run = made(rounds, summary={"left_after_round": left})
    table = device_rows(run, device_table(run))
    # All wait alike and spend alike, so that the first and the last by number stand for both.
    expected = [0, 1, 30, 31, *range(40, 48), 68, 69]
    assert [row[0] for row in table.rows] == list(map(str, expected))
    assert table.notes[0].startswith("14 of 70 devices: ")
    few = made(rounds[:64])
    assert len(device_rows(few, device_table(few)).rows) == 64
    assert device_rows(few, device_table(few)).notes == ()
