"""What is drawn of runs of a few rows can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hand_made_runs import evaluation, made, message, round_of, waiting_fleet

from edgesim.hardware.duty_cycle import DutyCycle
from edgesim.report.ends import device_table
from edgesim.report.evaluated import test_samples as samples_of
from edgesim.report.figures.breakdowns import bytes_figure, energy_figure
from edgesim.report.figures.comparison import groups_table
from edgesim.report.figures.curves import curve_figures
from edgesim.report.figures.figure import rounded
from edgesim.report.figures.spending import charge_figure
from edgesim.report.figures.time_figures import _waits, rows_of, time_figures
from edgesim.report.figures.training_loss import training_loss_figure
from edgesim.report.holders import between_devices, waiting_for_devices
from edgesim.report.paper import required_paper_table
from edgesim.report.waiting import _Sleeps


def sent(number, device, sender, receiver, **more):
    return message(number, sender, receiver, float(number), device=device, **more)


def test_a_successor_sends_and_receives_from_the_round_after_a_handover():
    """Device 1 leaves in round 2 and device 0 takes its place; in round 5 device 2 takes both."""
    rows = [
        sent(2, 2, 2, 1),
        sent(2, 1, 1, 0, kind="handover"),
        sent(3, 2, 2, 1),
        sent(3, 0, 1, 2),
        sent(3, 0, 1, 0),
        sent(5, 3, 3, 1),
        sent(5, 0, 0, 2, kind="handover"),
        sent(6, 3, 3, 1),
        sent(6, 3, 3, 0),
        sent(6, 2, 1, 3),
    ]
    messages = pd.DataFrame(rows[::-1])
    found = between_devices(messages, 4, is_free=False)[::-1]
    assert list(zip(found["sender"], found["receiver"], strict=True)) == [
        *((2, 1), (1, 0), (2, 0), (0, 2), (0, 0), (3, 0), (0, 2), (3, 2), (3, 2), (2, 3)),
    ]
    none = messages[messages["kind"] == "share"]
    assert between_devices(none, 4, is_free=False) is none


def test_at_free_pace_a_successor_receives_what_arrives_after_the_handover_has_left():
    """Whatever the numbers of rounds; the handover leaves at second 5."""
    rows = [
        message(9, 1, 0, 5.0, kind="handover"),
        message(3, 2, 1, 4.0),  # arrives at second 5, as the handover leaves
        message(1, 2, 1, 4.25),
    ]
    found = between_devices(pd.DataFrame(rows), 3, is_free=True)
    assert found["receiver"].tolist() == [0, 1, 0]


def test_a_wait_is_for_the_device_that_sent():
    """In round 3 device 0 sends for device 1, which has left; it waited itself for the handover."""
    messages = pd.DataFrame([sent(1, 1, 1, 2), sent(3, 0, 1, 2), sent(3, 0, 1, 3)])
    rounds = pd.DataFrame(
        [(2, 1, 1), (2, 3, 1), (0, 3, 1), (3, 3, -1), (3, 2, 2)],
        columns=["device", "round", "waited_for"],
    )
    found = waiting_for_devices(rounds, messages)
    assert found["waited_for"].tolist() == [1, 0, 1, -1, 2]
    assert waiting_for_devices(rounds, messages[:1]) is rounds


@pytest.mark.parametrize(
    ("offset_s", "span_s", "asleep_s"),
    [
        (3.0, (0.0, 10.0), 9.0),  # the second sleeps until 3 and from 7 on, the first from 4 on
        (3.0, (5.0, 12.0), 7.0),
        (3.0, (5.0, 6.0), 1.0),
        (0.0, (0.0, 10.0), 6.0),
        (3.0, (0.0, 3000.0), 1800.0),  # of more sleeps than are listed, those of one device
        (3.0, (5.0, 5.0), 0.0),
    ],
)
def test_a_link_rests_while_one_of_its_ends_sleeps(offset_s, span_s, asleep_s):
    """Both are awake for 4 of 10 s, the second some seconds later than the first."""
    sleeps = _Sleeps(waiting_fleet())
    sleeps._times = tuple(
        DutyCycle(period_s=10.0, awake_s=4.0, offset_s=each_s) for each_s in (0.0, offset_s)
    )
    assert sleeps.seconds(*span_s, 0, 1) == pytest.approx(asleep_s)
    assert sleeps.seconds(*span_s, 1, 0) == pytest.approx(asleep_s)


def test_of_a_large_fleet_both_ends_have_rows():
    """Of 33 devices the 16 with the most, then the 16 with the least; of two columns 8 of each."""
    run = made([round_of(device, 0, 1.0, 1.0) for device in range(33)])
    devices = pd.DataFrame({"device": range(33), "a": range(33), "b": range(33, 0, -1)})
    assert rows_of(run, devices, ["a"]) == [*range(32, 16, -1), *range(16)]
    assert rows_of(run, devices, ["a", "b"]) == [*range(32, 24, -1), *range(8)]
    few = made([round_of(device, 0, 1.0, 1.0) for device in range(32)])
    assert rows_of(few, devices[:32], ["b"]) == list(range(32))


def test_whom_others_waited_for():
    (figure,) = _waits(waiting_fleet(names=["quick", "other", "slow"]))
    assert figure.caption.startswith("Others waited longest for slow (10 s).")
    assert figure.tables["waits"].to_dict("records") == [
        {"device": device, "name": name, "waited_for": 2, "waited_for_name": "slow",
         "waited_s": 5.0, "times": 2}
        for device, name in enumerate(("quick", "other"))
    ]  # fmt: skip


def test_times_of_devices_and_their_timeline():
    """Each sends four messages of half a second; the timeline is short enough to be whole."""
    run = waiting_fleet(names=["quick", "other", "slow"])
    figures = {figure.key: figure for figure in time_figures(run, device_table(run))}
    times = figures["time-of-devices"].tables["times"]
    assert {(kind, name): number for name, kind, number in times.itertuples(index=False)} == {
        ("computing", "quick"): 2.0,
        ("computing", "other"): 2.0,
        ("computing", "slow"): 6.0,
        ("waiting", "quick"): 5.0,
        ("waiting", "other"): 5.0,
        ("waiting", "slow"): 0.0,
    }
    radio = figures["time-of-devices"].tables["radio"]
    assert dict(radio.itertuples(index=False)) == dict.fromkeys(("quick", "other", "slow"), 2.0)
    timeline = figures["timeline"].tables["timeline"]
    assert set(timeline["part"]) == {"all of it"}
    assert [run.labels[device] for device in timeline["device"]] == timeline["name"].tolist()
    assert (timeline["length_s"] == timeline["end_s"] - timeline["start_s"]).all()
    waited = timeline[timeline["activity"] == "waiting"].groupby("name")["length_s"].sum()
    assert waited.to_dict() == {"quick": 5.0, "other": 5.0}


def test_of_a_large_fleet_those_are_drawn_that_were_waited_for():
    """Devices 1 to 33 wait for device 0, for 1 s each, and it waits 2 s for the last."""
    rounds = [round_of(0, 0, 3.0, 1.0, 2.0, 33)]
    rounds += [round_of(device, 0, 2.0, 1.0, 1.0, 0) for device in range(1, 34)]
    (figure,) = _waits(made(rounds))
    assert figure.caption.startswith("Others waited longest for 0 (33 s) and 33 (2 s).")
    assert figure.tables["waits"].to_dict("records") == [
        {"waited_for_name": "0", "waited_s": 33.0, "by_devices": 33},
        {"waited_for_name": "33", "waited_s": 2.0, "by_devices": 1},
    ]


def test_numbers_of_drawings_keep_six_digits():
    table = pd.DataFrame({"x": [123456.789, 0.000123456789, 0.0, np.nan, np.inf, -2.00000049]})
    found = rounded(table)["x"].tolist()
    assert found[:3] == [123457.0, 0.000123457, 0.0]
    assert np.isnan(found[3])
    assert found[4:] == [np.inf, -2.0]
    assert rounded(table, 9)["x"].iloc[0] == 123456.789
    assert table["x"].iloc[0] == 123456.789


def test_a_point_of_many_rounds_is_their_mean():
    """Of 401 rounds three each, so that the last point has two; the loss is the round's number."""
    rounds = [
        round_of(device, number, 2.0 * number, 1.0, loss=number + 10.0 * device)
        for device in range(2)
        for number in range(401)
    ]
    figure = training_loss_figure(made(rounds))
    assert "A point is the mean of 3 rounds." in figure.caption
    assert "A point of the fleet" not in figure.caption
    own = figure.tables["devices"].query("device == 1").set_index("point")
    assert own["loss"].loc[[0, 1, 133]].tolist() == [11.0, 14.0, 409.5]
    fleet = figure.tables["fleet"].set_index("point")
    assert fleet["round"].loc[[0, 1, 133]].tolist() == [1.0, 4.0, 399.5]
    assert fleet["loss"].loc[[0, 1, 133]].tolist() == [6.0, 9.0, 404.5]
    assert fleet["virtual_time_s"].loc[[0, 1, 133]].tolist() == [2.0, 8.0, 799.0]
    figure = training_loss_figure(made(rounds[:200]))
    assert "A point is" not in figure.caption
    assert figure.tables["fleet"]["loss"].tolist() == [float(number) for number in range(200)]


def test_at_free_pace_a_point_is_of_a_span_of_time():
    """Rounds of 1 s and of 2 s, so a span lasts 1.5 s of 6, and device 1 ends no round in one."""
    rounds = [round_of(0, number, 1.0 + number, 1.0, loss=float(number)) for number in range(6)]
    rounds += [round_of(1, n, 2.0 + 2.0 * n, 2.0, loss=10.0 * n) for n in range(2)]
    figure = training_loss_figure(made(rounds, pace="free"))
    own = figure.tables["devices"]
    quick = own[own["device"] == 0]
    # Ends at 1 | 2 | 3, 4 | 5, 6; a round that ends with a span is of the next, but for the last.
    assert quick["loss"].tolist() == [0.0, 1.0, 2.5, 4.5]
    assert quick["virtual_time_s"].tolist() == [0.75, 2.25, 3.75, 5.25]
    assert own[own["device"] == 1]["point"].tolist() == [1, 2]
    fleet = figure.tables["fleet"]
    assert fleet["loss"].tolist() == [0.0, 0.5, 6.25, 4.5]
    assert fleet["devices"].tolist() == [1, 2, 2, 1]
    assert "A point is the mean over 1.5 s of virtual time." in figure.caption
    assert "A point of the fleet is over 1 to 2 of 2 devices, each" in figure.caption


def test_a_curve_of_charge_has_its_first_and_last_round():
    """Of 602 rounds each third and the last; of twelve batteries the ten emptiest."""
    rounds = [
        round_of(device, number, 1.0 + number, 1.0, charge_left_j=1000.0 - number + device)
        for device in range(12)
        for number in range(602)
    ]
    figure = charge_figure(made(rounds))
    table = figure.tables["charge"]
    assert table["device"].drop_duplicates().tolist() == list(range(10))
    assert table.query("device == 9")["round"].tolist() == [*range(0, 601, 3), 601]
    assert table["charge_left_j"].min() == 399.0
    assert figure.caption.endswith("Shown are the 10 emptiest of 12.")
    assert charge_figure(waiting_fleet()) is None


def test_parts_of_bytes_and_energy_by_device():
    run = waiting_fleet(names=["a", "b", "c"])
    sums = {"sent_value_bytes": 120, "sent_index_bytes": 50, "sent_overhead_bytes": 30}
    for column, number in sums.items():
        run.rounds[column] = number
    table = bytes_figure(run, device_table(run)).tables["parts"]
    assert {(part, name): number for name, part, number in table.itertuples(index=False)} == {
        **{("values", name): 240 for name in "abc"},
        **{("indices", name): 100 for name in "abc"},
        **{("scales and headers", name): 60 for name in "abc"},
        ("sent again", "a"): 70,
        ("sent again", "b"): 0,
        ("sent again", "c"): 0,
    }
    table = energy_figure(run, device_table(run)).tables["parts"]
    assert {(part, name): number for name, part, number in table.itertuples(index=False)} == {
        **{("computing", name): 4.0 for name in "abc"},
        **{("radio", name): 2.0 for name in "abc"},
        ("waiting", "a"): 5.0,
        ("waiting", "b"): 5.0,
        ("waiting", "c"): 0.0,
    }


@pytest.mark.parametrize(
    ("source", "used", "said"),
    [
        ("digits", None, "the test samples"),
        ("digits", 354, "354 of 355 test samples"),
        ("digits", 355, "the test samples"),
        ("cifar10", 500, "500 of 10,000 test samples"),
        ("image_folder", 500, "at most 500 test samples"),
    ],
)
def test_of_how_many_samples_an_evaluation_is(source, used, said):
    run = waiting_fleet(data={"source": source}, evaluation={"samples": used})
    assert samples_of(run) == said


@pytest.mark.parametrize(
    ("source", "used", "said"),
    [
        ("cifar10", None, "5,000 validation samples"),
        ("image_folder", None, "5,000 validation samples"),
        ("cifar10", 5000, "5,000 validation samples"),
        ("image_folder", 500, "500 of 5,000 validation samples"),
    ],
)
def test_samples_held_back_for_validation_are_told(source, used, said):
    data = {"source": source, "validation_samples": 5000}
    assert samples_of(waiting_fleet(data=data, evaluation={"samples": used})) == said


def several():
    """Three seeds of one fleet, the last of which is not finished, and another fleet."""
    found = []
    for seed, accuracy in ((1, 0.25), (2, 0.75), (3, 0.5)):
        rows = evaluation(2, accuracy, (accuracy, accuracy, accuracy + 0.03))
        run = waiting_fleet(evaluations=rows, seed=seed, missing=("summary",) if seed == 3 else ())
        run.rounds["virtual_time_s"] *= seed
        found.append(replace(run, label=f"a, seed {seed}", group="a"))
    return [*found, replace(waiting_fleet(), label="b", group="b")]


def test_means_and_deviations_over_seeds():
    """Of 25 and 75 % the deviation is 50 / sqrt(2) points; of 7 and 14 s it is 4.95 s."""
    runs = several()
    table = groups_table(runs, [device_table(run) for run in runs])
    assert table.columns == (
        *("", "runs", "averaged model", "devices", "loss", "sent", "messages", "virtual time"),
        "energy",
    )
    assert table.rows == (
        ("a", "2", "50 % +- 35.4 points", "51 % +- 35.4 points", "0.5 +- 0.3536",
         "1.4 kB +- 0 B", "12 +- 0", "10.5 s +- 4.95 s", "28 J +- 0 J"),
        ("b", "1", "25 %", "29.2 %", "0.75", "1.4 kB", "12", "7 s", "28 J"),
    )  # fmt: skip
    assert table.notes[2:] == ("a: 2 of 3 runs are finished; the others do not count.",)
    found = groups_table(runs[1:], [device_table(run) for run in runs[1:]])
    assert found.notes[2:] == ("a: 1 of 2 runs is finished; the others do not count.",)
    assert groups_table(runs[2:], [device_table(run) for run in runs[2:]]) is None


def target(seed, after, *, keep, epochs=1, **more):
    rows = evaluation(2, 0.5, after_gossip_accuracy=after)
    return waiting_fleet(
        evaluations=rows,
        **{
            "seed": seed,
            "paper": {"place": "Table 99", "accuracy": 50.0, "epochs": epochs},
            "training": {"optimizer": {}, "epochs": epochs},
            "gossip": {"algorithm": "choco", "compressor": {"keep": keep}},
            "data": {"source": "digits", "partition": {"kind": "skew", "skew": 0.5}},
            **more,
        },
    )


def test_a_row_of_the_paper_by_hand():
    """55 and 49 % are 52 % in the mean, 2 points above the paper's; rows go by what is left out."""
    eight_bits = {"name": "small_cnn", "precision": "int8", "norm": "range", "gate": "hard"}
    runs = [
        target(1, 0.49, keep=0.9),
        target(1, 0.55, keep=0.95, model=eight_bits),
        target(2, 0.49, keep=0.95, model=eight_bits),
        target(1, 0.5, keep=0.01, epochs=2),
    ]
    table = required_paper_table(runs)
    # An epoch is two rounds: 2 rounds are one epoch, and too few where two are wanted.
    assert [row[1:] for row in table.rows] == [
        ("CHOCO", "small_cnn", "0.5", "10 %", "50.00", "49.00", "-1.00", "50.00", "1", "1 of 1",
         "2"),
        ("CHOCO", "small_cnn", "0.5", "99 %", "50.00", "50.00", "cut", "50.00", "1", "1 of 2",
         "2"),
        ("LP-CHOCO, range, hard", "small_cnn", "0.5", "5 %", "50.00", "52.00 +- 4.24", "+2.00",
         "50.00 +- 0.00", "2", "1 of 1", "2"),
    ]  # fmt: skip
    assert any(note.startswith("Cut: ") for note in table.notes)
    assert "No scenario of scenarios/paper has this place" in table.notes[-1]
    unfinished = [*runs, replace(runs[0], run=replace(runs[0].run, missing=("summary",)))]
    unfinished[-1] = replace(unfinished[-1], settings={**runs[0].settings, "seed": 9})
    assert required_paper_table(unfinished).notes[-1] == "1 runs are not finished and not counted."


def test_a_curve_has_the_end_of_an_axis_in_its_unit():
    """Evaluations at seconds 90 and 180, after 2,500 and 5,000 bytes."""
    rows = [
        row | {"virtual_time_s": 90.0 * number, "total_sent_bytes": 2500 * number}
        for number in (1, 2)
        for row in evaluation(number, 0.5)
    ]
    figures = {figure.key: figure for figure in curve_figures([waiting_fleet(evaluations=rows)])}
    assert list(figures) == ["accuracy", "loss", "consensus-distance"]
    assert not any("ends early" in figure.caption for figure in figures.values())
    titles = [
        {part["encoding"]["x"]["title"] for part in view.spec["layer"]}
        for view in figures["loss"].views
    ]
    assert titles == [
        {"rounds"},
        {"virtual time (minutes)"},
        {"sent by the fleet until then (kB)"},
    ]
