"""Of runs of a few rows: who missed rounds, left or died, what was lost, and how far a run came."""

from __future__ import annotations

import pytest
from hand_made_runs import (
    evaluation,
    made,
    message,
    round_of,
    short,
    waiting_fleet,
    wrong,
)

from edgesim.report.ends import device_table, join_rounds, rounds_missed
from edgesim.report.summary import device_rows
from edgesim.report.troubles import troubles


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
