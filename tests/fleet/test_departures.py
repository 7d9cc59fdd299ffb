"""What is said at the end of a run of those who died, or never had a model."""

from __future__ import annotations

from types import SimpleNamespace

from small_fleets import prepared

from edgesim.cli.answers import result_table
from edgesim.fleet.recording.departures import departures, describe


def summary(dead=0, without=0, lost=0, devices=20):
    ends = {"rounds": 3, "virtual_time_s": 1.5, "push_weight": 0.75}
    return {
        "devices": devices,
        "dead_devices": {str(device): ends for device in range(dead)},
        "messages_lost": lost,
        "push_weight_lost": 0.125,
        "without_model": list(range(without)),
    }


def test_nothing_is_said_if_everybody_was_there_at_the_end():
    assert describe(summary()) == []
    assert describe({"devices": 3}) == [], "in lockstep"


def test_the_dead_are_named_with_what_they_kept_and_what_was_lost():
    assert describe(summary(dead=1, lost=4)) == [
        "device 0 died of an empty battery after 3 rounds, at 1.5 s, with a push weight of 0.75",
        "4 messages to dead devices were lost, with a push weight of 0.125",
    ]
    assert describe(summary(dead=2, devices=2))[-1].startswith("all 2 devices have died; the aver")


def test_of_many_some_are_named():
    lines = describe(summary(dead=11, without=9))
    assert lines[8] == "and so did 3 more devices, see summary.json"
    assert lines[9] == (
        "devices 0, 1, 2, 3, 4, 5, 6, 7 and 1 more got no model: no message reached them before "
        "the run ended"
    )


def test_one_of_a_kind_is_singular():
    one = summary(dead=9, lost=1, without=1)
    one["dead_devices"]["0"] = {"rounds": 1, "virtual_time_s": 1.5, "push_weight": 0.75}
    lines = describe(one)
    assert "after 1 round, at" in lines[0]
    assert lines[8] == "and so did 1 more device, see summary.json"
    assert lines[9].startswith("1 message to dead devices was lost, with")
    assert lines[10] == "device 0 got no model: no message reached it before the run ended"


def test_at_free_pace_who_left_did_so_by_plan(tmp_path):
    end = {"u": 1.0, "rounds_done": 9, "virtual_time_s": 1.0}
    ends = [SimpleNamespace(device=d, gone=g, **end) for d, g in enumerate(["left", "died", None])]
    found = departures(prepared(tmp_path).scenario, ends, 0, 0)
    assert found["left_after_round"] == {"0": 8}
    assert found["left_because"] == {"0": "plan"}


def closing(**more):
    figures = dict.fromkeys(
        (
            "consensus_accuracy",
            "device_accuracy_min",
            "device_accuracy_mean",
            "device_accuracy_max",
            "consensus_distance",
            "epochs",
            "wall_s",
        ),
        0.5,
    )
    counts = dict.fromkeys(
        (
            "sent_bytes",
            "messages_sent",
            "sent_value_bytes",
            "sent_index_bytes",
            "sent_overhead_bytes",
            "rounds",
        ),
        5,
    )
    base = {"name": "n", "seed": 1, "left_after_round": {}, "left_because": {}}
    return dict(result_table({**base, **figures, **counts, **more}, "x").rows)


def test_the_closing_table_names_who_left_and_who_died_in_short_rows():
    names = [f"board-{device}" for device in range(20)]
    left = {str(device): 3 for device in range(10, 15)}
    rows = closing(
        **{**summary(dead=10), "device_names": names, "device_models_evaluated": 5},
        left_after_round=left,
        left_because=dict.fromkeys(left, "plan"),
    )
    assert rows["died"] == "device 0 (board-0); device 1 (board-1); device 2 (board-2); and 7 more"
    assert rows["left"].startswith("device 10 (board-10) after 4 rounds, by plan; device 11 (board")
    assert rows["left"].endswith("; and 2 more")
    assert max(len(row) for row in rows.values()) < 150


def test_the_closing_table_says_whose_accuracies_these_are():
    def label(evaluated, **of):
        rows = closing(**summary(**of), device_models_evaluated=evaluated)
        return next(row for row in rows if row.startswith("accuracy of") and "averaged" not in row)

    assert label(4, devices=4) == "accuracy of single devices"
    assert label(2, devices=4) == "accuracy of 2 of 4 devices"
    one = label(1, dead=2, without=1, devices=4)
    assert one == "accuracy of the 1 device still there (2 died, 1 without a model)"
    assert label(3, dead=4, devices=9) == "accuracy of 3 of the 5 devices still there (4 died)"
    assert label(4, dead=4, devices=4) == "accuracy of single devices", "of what all ended with"
