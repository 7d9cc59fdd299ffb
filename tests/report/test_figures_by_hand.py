"""Sentences and tables of runs of a few rows say what can be worked out by hand."""

from __future__ import annotations

import pandas as pd
import pytest
from hand_made_runs import evaluation, made, message, round_of, waiting_fleet

from edgesim.report.activity import segments, shares_over_time, spans_of_rounds
from edgesim.report.ends import device_table, join_rounds, rounds_missed
from edgesim.report.evaluations import evaluations_of, extremes, quantile_bands
from edgesim.report.summary import device_rows, in_short, results_table
from edgesim.report.troubles import troubles
from edgesim.report.waiting import pace_setters, waits


def short(run):
    return in_short(run, device_table(run))


def wrong(run):
    return troubles(run, device_table(run))


def figures(run):
    return {row[0]: row[1] for row in results_table([run], [device_table(run)]).rows}


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


def test_rounds_that_were_missed():
    """One round counts; a device that left misses none, one that joins late none before."""
    rounds = [round_of(0, number, 1.0 + number, 1.0) for number in range(6)]
    rounds += [round_of(1, number, 1.0 + number, 1.0) for number in (0, 1, 3, 4, 5)]
    rounds += [round_of(2, number, 1.0 + number, 1.0) for number in (0, 1)]
    rounds += [round_of(3, number, 1.0 + number, 1.0) for number in (4, 5)]
    rounds += [round_of(4, number, 1.0 + number, 1.0) for number in (0, 1, 2)]
    churn = {"joins": [{"device": "d", "round": 4}], "leaves": [{"device": 2, "round": 1}]}
    run = made(
        rounds, names=list("abcde"), summary={"left_after_round": {"2": 1}}, fleet={"churn": churn}
    )
    assert join_rounds(run) == {3: 4}
    assert rounds_missed(run) == {1: 1, 4: 3}
    assert device_table(run)["end"].tolist() == ["there", "there", "left", "there", "absent"]
    said = wrong(run)
    assert "b was absent in 1 round." in said
    assert "e was absent in 3 rounds." in said
    assert "Joined later: d in round 4." in said


def test_who_left_and_who_died():
    rounds = [
        round_of(0, 0, 4.0, 1.0, charge_left_j=-0.5),
        round_of(1, 0, 4.0, 1.0, charge_left_j=2.0),
        round_of(1, 1, 6.0, 1.0, charge_left_j=1.5),
        round_of(2, 0, 3.0, 1.0, charge_left_j=float("nan")),
    ]
    handover = message(0, 2, 1, 3.0, kind="handover")
    run = made(
        rounds,
        [handover],
        summary={
            "dead_devices": {"0": {"virtual_time_s": 4.25, "rounds": 1}},
            "left_after_round": {"2": 0, "1": 1},
            "left_because": {"2": "plan", "1": "battery"},
        },
        pace="free",
    )
    assert wrong(run) == [
        "Device 0 died of an empty battery at 4.25 s after 1 round.",
        (
            "Device 2 left as planned at 3 s after 1 round; device 1 took its place, without its "
            "samples."
        ),
        (
            "Device 1 left because its battery would not have lasted to its next turn to leave, at "
            "6 s after 2 rounds, with 1.5 J left."
        ),
    ]
    assert device_table(run)["end"].tolist() == ["died", "left", "left"]


BARE = {"loss": 1.0, "sent_bytes": 10, "received_bytes": 10, "messages_sent": 1}


def test_without_clocks_a_leaver_has_rounds_and_no_moment():
    """A summary of an older edgesim does not say why it left."""
    rounds = [{"device": 0, "round": number, **BARE} for number in range(3)]
    rounds += [{"device": 1, "round": 0, **BARE}]
    run = made(rounds, summary={"left_after_round": {"1": 0}, "left_because": {"1": "plan"}})
    assert wrong(run) == ["Device 1 left as planned after 1 round."]
    run = made(rounds, summary={"left_after_round": {"1": 0}})
    assert len(wrong(run)) == 1
    assert short(run)[1:] == [
        "The fleet sent 40 B in 4 messages, 20 B a device, the most, 30 B, by device 0."
    ]


def test_of_many_that_left_five_have_a_sentence():
    rounds = [{"device": device, "round": 0, **BARE} for device in range(7)]
    for left, last in (
        (5, "Device 4 left as planned after 1 round."),
        (6, "So did 1 more device; the table of devices has them."),
        (7, "So did 2 more devices; the table of devices has them."),
    ):
        names = list(map(str, range(left)))
        summary = {
            "left_after_round": dict.fromkeys(names, 0),
            "left_because": dict.fromkeys(names, "plan"),
        }
        said = wrong(made(rounds, summary=summary))
        assert said[-1] == last
        assert len(said) == min(left, 6)


def test_of_many_that_missed_rounds_five_have_a_sentence():
    """Device 0 misses none, each other as many as its number says."""
    rounds = [
        {"device": device, "round": number, **BARE}
        for device in range(8)
        for number in range(20)
        if not 5 <= number < 5 + device
    ]
    said = wrong(made(rounds))
    assert said[0] == "Device 1 was absent in 1 round."
    assert said[4:] == [
        "Device 5 was absent in 5 rounds.",
        "2 more devices missed 6 to 7 rounds each.",
    ]


def charges(run, left_j, **changes):
    devices = device_table(run)
    return devices.assign(charge_left_j=left_j, battery_j=100.0, **changes)


@pytest.mark.parametrize(
    ("left_j", "end", "said"),
    [
        ([10.0, 50.0, 100.0], "there", []),  # a tenth is not less than a tenth
        ([9.5, 50.0, 9.0], "there",
         [("Device 0 and device 2 ended with less than 10 % of the battery; of the emptiest 9 J is "
          "left.")]),
        ([-1.0, 50.0, 9.0], "there",
         [("Device 0 and device 2 ended with less than 10 % of the battery; of the emptiest "
          "nothing is left.")]),
        ([9.5, 50.0, 9.0], "died", []),
        ([9.5, 50.0, 9.0], "left", []),
        ([float("nan")] * 3, "there", []),
    ],
)  # fmt: skip
def test_batteries_that_are_nearly_empty(left_j, end, said):
    run = waiting_fleet()
    assert troubles(run, charges(run, left_j, end=end)) == said


def test_batteries_of_an_unfinished_run_have_not_ended():
    run = waiting_fleet(missing=("summary",))
    (line,) = [each for each in troubles(run, charges(run, [5.0, 50.0, 60.0])) if "battery" in each]
    assert line == "Device 0 came to less than 10 % of the battery; of the emptiest 5 J is left."


def test_an_unfinished_run_says_how_far_it_is():
    """Device 1 is one round behind; the distance has grown from 0.1 to 0.25."""
    rounds = [round_of(0, 0, 1.0, 1.0), round_of(0, 1, 2.0, 1.0), round_of(1, 0, 1.0, 1.0)]
    distances = (0.1, 0.2, 0.25)
    rows = [
        row
        for number, distance in enumerate(distances, 1)
        for row in evaluation(number, 0.5, consensus_distance=distance)
    ]
    run = made(rounds, (), rows, missing=("summary",))
    assert wrong(run) == [
        (
            "The run is not finished: of each device 1 to 2 rounds are recorded. edgesim resume "
            "place goes on with it."
        ),
        "The consensus distance is 0.25, 2.5 times its least: the models move apart.",
    ]
    stop = {"stopped_by": {"error": "a disc is full.", "can_go_on": False}}
    assert short(run)[3:5] == [
        "So far: devices have done 1 to 2 rounds, and the next figures add them up as they are.",
        "That took the real fleet 2 s and 9 J; the most, 6 J, is spent by device 0.",
    ]
    rounds.append(round_of(1, 1, 2.0, 1.0))
    run = made(rounds, (), rows[:2], missing=("summary",), environment=stop)
    assert wrong(run) == [
        (
            "The run is not finished: of each device 2 rounds are recorded. It was stopped by "
            "an error: a disc is full."
        )
    ]
    assert not any(line.startswith("So far") for line in short(run))
    assert not wrong(made(rounds, (), rows))  # of a finished run summary.json says it


def test_a_device_without_any_row_yet_has_done_no_round():
    rounds = [round_of(0, number, 1.0 + number, 1.0) for number in range(3)]
    run = made(rounds, names=["here", "late"], missing=("summary",))
    (line,) = wrong(run)
    assert "at the end" not in device_rows(run, device_table(run)).columns
    assert line.startswith("The run is not finished: of each device 0 to 3 rounds are recorded.")


def test_what_was_lost_is_counted():
    summary = {
        "actor_restarts": 1,
        "resumes": 2,
        "messages_lost": 3,
        "push_weight_lost": 0.125,
        "without_model": [0, 2],
        "warnings": ["it was warm"],
    }
    assert wrong(waiting_fleet(summary=summary)) == [
        "it was warm",
        "Actors were lost and restarted 1 time; the result is that of an undisturbed run.",
        "The run was interrupted and resumed 2 times.",
        "3 messages to dead devices were lost, with a push weight of 0.125.",
        "Device 0 and device 2 got no model: no message came before the run ended.",
    ]
    resumed = {"resumed": [{"started_utc": "monday"}]}
    assert wrong(waiting_fleet(environment=resumed)) == [
        "The run was interrupted and resumed 1 time."
    ]


def test_lost_packets_of_the_fleet_and_of_the_worst_link():
    """Of 1,000 bytes 60 were sent again: 6 %. On the link from 1 to 0 it is a tenth of 500."""

    def messages(packets, again, other):
        lost = {"retransmissions": packets, "retransmitted_bytes": again}
        return [
            message(0, 0, 1, 1.0, bytes=500, retransmissions=20, retransmitted_bytes=other),
            message(0, 1, 0, 1.0, bytes=500, **lost),
        ]

    rounds = [round_of(0, 0, 2.0, 1.0), round_of(1, 0, 2.0, 1.0)]
    assert wrong(made(rounds, messages(20, 50, 10))) == [
        (
            "Links lost packets: 60 B were sent again, 6 % of what was sent; on the worst, 1 -> 0, "
            "10 %."
        )
    ]
    assert wrong(made(rounds, messages(20, 30, 10))) == [  # 4 % of all, and 6 % of a link
        "Links lost packets: 40 B were sent again, 4 % of what was sent; on the worst, 1 -> 0, 6 %."
    ]
    assert wrong(made(rounds, messages(19, 30, 10))) == []
    assert wrong(made(rounds, messages(19, 60, 10))) == [  # the worst of those with 20 packets
        "Links lost packets: 70 B were sent again, 7 % of what was sent; on the worst, 0 -> 1, 2 %."
    ]
    assert wrong(made(rounds, messages(20, 25, 25))) == []  # a twentieth is not more


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
