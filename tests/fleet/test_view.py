"""What is shown of a run while it goes on, in a pipe."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from edgesim.fleet.recording import view
from edgesim.fleet.recording.fleet_state import FleetFacts, FleetState
from edgesim.fleet.recording.view import PlainView
from edgesim.fleet.transport.progress import DeviceProgress

ROW = {"round": 5, "epoch": 2.5, "accuracy": 0.75, "loss": 0.5, "consensus_distance": 0.125}


def fleet_of(done, *, num_rounds=20, **more):
    """Of one device."""
    facts = FleetFacts(num_devices=1, num_rounds=num_rounds)
    return FleetState(facts, {0: DeviceProgress(device=0, rounds_done=done, **more)})


def test_a_line_of_progress_says_what_is_left_once_that_can_be_known(monkeypatch):
    """A round each 10 s, and 20 in all; a line soon, and then after more than the interval."""
    now_s = [0.0]
    monkeypatch.setattr(view, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(view, "LINE_INTERVAL_S", 10.0)
    said = io.StringIO()
    plain = PlainView(Console(file=said, width=200))
    for done in (1, 2, 3, 4, 5):
        now_s[0] = 10.0 * done
        plain.update(fleet_of(done, loss=0.5, sent_bytes=7))
    assert said.getvalue().splitlines() == [
        "round 2/20, loss 0.500, sent 7 bytes",
        "round 4/20, loss 0.500, sent 7 bytes, about 2.7 min left",
    ]


def test_without_a_loss_and_an_estimate_a_line_says_so(monkeypatch):
    monkeypatch.setattr(view, "FIRST_LINE_S", -1.0)
    said = io.StringIO()
    plain = PlainView(Console(file=said, width=200))
    plain.update(fleet_of(5))
    assert said.getvalue() == "round 5/20, loss -, sent 0 bytes\n"


@pytest.mark.parametrize(
    ("rounds_at_s", "now_s", "said"),
    [
        ({0: 1, 1: 2, 2: 2}, 15.0, ""),
        ({0: 1, 1: 2, 2: 2}, 16.0, "no round has ended for 15.0 s"),
        ({0: 1, 40: 2, 41: 2}, 119.0, ""),  # its rounds take 40 s
        ({0: 1, 40: 2, 41: 2}, 120.0, "no round has ended for 80.0 s"),
        ({0: 1, 1: 20}, 100.0, "no round has ended for 99.0 s"),
    ],
)
def test_a_standstill_is_told(rounds_at_s, now_s, said):
    standstill = view.Standstill()
    for at_s, done in rounds_at_s.items():
        standstill.see(fleet_of(done), at_s)
    assert standstill.text(now_s) == said
    standstill.see(fleet_of(20, end="finished"), now_s)  # the last evaluation may take long
    assert standstill.text(now_s + 1) == ""


@pytest.mark.parametrize(("interval_s", "num_lines"), [(-1.0, 3), (3600.0, 0)])
def test_lines_of_progress_are_printed_at_intervals(monkeypatch, interval_s, num_lines):
    monkeypatch.setattr(view, "FIRST_LINE_S", interval_s)
    monkeypatch.setattr(view, "LINE_INTERVAL_S", interval_s)
    said = io.StringIO()
    plain = PlainView(Console(file=said, width=200))
    plain.stage("starting Ray")
    for _ in range(3):
        plain.update(fleet_of(5))
    plain.evaluating("evaluated 3/7 models")
    assert said.getvalue().count("round 5/20") == len(said.getvalue().splitlines()) == num_lines


def test_a_warning_is_printed_as_it_is_however_long_and_whatever_the_terminal():
    said = io.StringIO()
    console = Console(file=said, width=20, force_terminal=True, color_system="standard")
    PlainView(console).warn("gossip.averaging_rate [bold] 0.25 is too much")
    assert said.getvalue() == "warning: gossip.averaging_rate [bold] 0.25 is too much\n"


def test_an_evaluation_is_told_in_a_line():
    said = io.StringIO()
    PlainView(Console(file=said, width=200)).evaluated([ROW, {**ROW, "device": 0}])
    assert said.getvalue() == (
        "epoch 2.5 (round 5): consensus accuracy 0.7500, loss 0.5000, consensus distance 0.125\n"
    )


def test_a_task_without_accuracy_is_told_without():
    said = io.StringIO()
    PlainView(Console(file=said, width=200)).evaluated([{**ROW, "accuracy": None}])
    assert said.getvalue() == "epoch 2.5 (round 5): loss 0.5000, consensus distance 0.125\n"


def test_at_virtual_time_an_evaluation_says_the_clock():
    said = io.StringIO()
    PlainView(Console(file=said, width=200)).evaluated([{**ROW, "virtual_time_s": 0.0125}])
    assert said.getvalue().startswith("epoch 2.5 (round 5, clock 12.5 ms): consensus accuracy")


@pytest.mark.parametrize(
    ("states", "left_s"),
    [
        (((0.0, 0), (50.0, 2), (60.0, 7)), 26.0),  # 5 rounds in 10 s after 50 s of start-up
        (((0.0, 8), (3.0, 10), (13.0, 15)), 10.0),  # gone on with from round 8
        (((0.0, 8), (3.0, 8), (13.0, 8)), None),
        (((0.0, 0), (3.0, 2)), None),
        # A wait of an hour between rounds of a second; and rounds that take a minute each.
        ((*((float(n), n) for n in range(6)), (3605.0, 6), (3606.0, 7)), 13.0),
        (tuple((60.0 * n, n) for n in range(7)), 60.0 * 14),
        # While it waits.
        ((*((float(n), n) for n in range(6)), (3605.0, 5)), 15.0),
        # It goes back to a checkpoint.
        (((0.0, 8), (3.0, 10), (13.0, 15), (20.0, 9), (22.0, 10), (24.0, 12)), 8.0),
    ],
)
def test_what_is_left_is_reckoned_from_the_first_progress_of_this_attempt(states, left_s):
    estimate = view.Estimate()
    for seen_s, done in states:
        estimate.see(fleet_of(done), seen_s)
    _, last = states[-1]
    assert estimate.seconds_left(fleet_of(last).share_done) == pytest.approx(left_s)


def test_rounds_that_devices_end_in_bursts_are_no_pauses():
    """Eight devices end rounds of a minute within ten seconds, looked at every two."""
    estimate, facts = view.Estimate(), FleetFacts(num_devices=8, num_rounds=100)
    for seen_s in range(0, 1210, 2):
        done = (max(0, int((seen_s - 10 * d / 8) // 60)) for d in range(8))
        devices = {d: DeviceProgress(device=d, rounds_done=n) for d, n in enumerate(done)}
        estimate.see(FleetState(facts, devices), float(seen_s))
    assert estimate.seconds_left(0.2) == pytest.approx(80 * 60.0, rel=0.02)


def test_what_is_left_waits_for_all_devices():
    """Of a run that is gone on with, whose devices appear one by one with what they have done."""
    estimate, facts = view.Estimate(), FleetFacts(num_devices=2, num_rounds=20)
    first, second = (DeviceProgress(device=device, rounds_done=10) for device in (0, 1))
    half, whole = (
        FleetState(facts, {own.device: own for own in there})
        for there in ((first,), (first, second))
    )
    for seen_s, state in ((0.0, half), (1.0, whole), (2.0, whole)):
        estimate.see(state, seen_s)
    assert estimate.seconds_left(whole.share_done) is None
