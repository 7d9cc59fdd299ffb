"""What is said at the end of a run of those who died, or never had a model."""

from __future__ import annotations

from edgesim.fleet.departures import describe


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
        "device 0, 1, 2, 3, 4, 5, 6, 7 and 1 more: no message brought a model before the end"
    )
