"""The live display on a terminal: legible at 80 columns, complete, and never larger than it."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from edgesim.fleet.recording.device_lines import device_lines, duration
from edgesim.fleet.recording.fleet_state import FleetFacts, FleetState
from edgesim.fleet.recording.terminal_view import TerminalView, _in_lines, make_view
from edgesim.fleet.recording.view import PlainView
from edgesim.fleet.transport.progress import DeviceProgress

NAMES = ("gateway", "attic", "cellar", "field-station-north", "barn", "well")


def named_fleet(**more):
    """Six devices, each in another state."""
    facts = FleetFacts(
        title="farm (seed 1): 6 devices",
        num_devices=6,
        num_rounds=6000,
        names=NAMES,
        capacities_j=(None, None, None, 10.0, 10.0, 10.0),
    )
    figures = {"virtual_time_s": 0.25, "loss": 0.5, "staleness_s": 75.0, "sent_bytes": 1000}
    devices = {
        0: DeviceProgress(device=0, rounds_done=4, **figures, energy_j=2.0),
        1: DeviceProgress(device=1, rounds_done=3, waits_for=(0, 3), **figures),
        2: DeviceProgress(device=2, rounds_done=6000, end="finished", **figures),
        3: DeviceProgress(device=3, rounds_done=2, charge_left_j=2.5, **figures),
        4: DeviceProgress(device=4, rounds_done=1, charge_left_j=-0.1, end="died", **figures),
    }
    return FleetState(facts, devices, absent=frozenset({3}), **more)


def large_fleet(num_devices=200, **of_last):
    """The last device is the slowest, and all wait for it."""
    last = num_devices - 1
    devices = {
        device: DeviceProgress(
            device=device, rounds_done=100 + device, loss=1.0, waits_for=(last, device - 1)
        )
        for device in range(1, last)
    }
    devices[last] = DeviceProgress(device=last, rounds_done=7, loss=3.0, **of_last)
    return FleetState(FleetFacts(num_devices=num_devices, num_rounds=1000), devices)


def test_each_device_of_a_small_fleet_has_a_line_with_what_it_waits_for_and_its_charge():
    assert device_lines(named_fleet(), 80, 19) == [
        "device        round      clock     loss  staleness  charge  waits for",
        "gateway           4     250 ms   0.5000     75.0 s       -  (computes)",
        "attic             3     250 ms   0.5000     75.0 s       -  gateway and 1 more",
        "cellar         6000     250 ms   0.5000     75.0 s       -  (finished)",
        "field-stati~      2     250 ms   0.5000     75.0 s    25 %  (lost, restarts)",
        "barn              1     250 ms   0.5000     75.0 s   empty  (died: no energy)",
        "well              -          -        -          -   100 %  (starts)",
    ]


def test_a_wide_terminal_has_room_for_all_names_and_more_figures():
    lines = device_lines(named_fleet(restarts={3: 2}), 120, 19)
    assert lines[0].split() == [
        *("device", "round", "clock", "loss", "staleness", "charge", "mailbox", "restarts"),
        *("waits", "for"),
    ]
    assert lines[2].endswith("gateway, field-station-north")
    assert lines[4].startswith("field-station-north  ")


@pytest.mark.parametrize("fleet", [named_fleet(), large_fleet()], ids=["small", "large"])
@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("height", [1, 2, 5, 6, 10, 19, 35])
def test_lines_fit_the_terminal(fleet, width, height):
    lines = device_lines(fleet, width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)


def test_a_large_fleet_shows_counts_ranges_the_slowest_and_those_waited_for():
    lines = device_lines(large_fleet(), 80, 19)
    assert lines[0] == "devices: 1 compute, 198 wait, 1 start"
    least, mean, greatest = (next(x for x in lines if x.startswith(w)) for w in WORDS)
    assert (least.split()[1], greatest.split()[1]) == ("7", "298")
    assert mean.split()[1] == str(round((7 + sum(range(101, 299))) / 199))
    slowest = lines.index(next(line for line in lines if line.startswith("slowest")))
    assert lines[slowest + 1].split()[:2] == ["199", "7"]
    waited_for = lines.index(next(line for line in lines if line.startswith("most waited for")))
    assert lines[waited_for + 1].startswith("199 ")
    assert lines[waited_for + 1].endswith("(computes), 198 wait for it")


WORDS = ("least", "mean", "greatest")


def test_at_free_pace_a_large_fleet_shows_the_most_stale():
    lines = device_lines(large_fleet(staleness_s=12.0), 80, 19)
    stale = lines.index(next(line for line in lines if line.startswith("most stale")))
    assert lines[stale + 1].split()[0] == "199"
    assert "12.0 s" in lines[stale + 1]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 s"),
        (0.0401, "40.1 ms"),
        (9.24, "9.2 s"),
        (119.0, "119.0 s"),
        (250.0, "4.2 min"),
        (11_100.0, "3.1 h"),
        (200_000.0, "2.3 d"),
    ],
)
def test_times_have_units_that_a_person_reads(seconds, text):
    assert duration(seconds) == text


def shown(view, said):
    """What a terminal shows: the text since the last erased line, without colours."""
    view._live.refresh()
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said.getvalue().rpartition("\x1b[2K")[2])
    return [line.rstrip() for line in text.lstrip("\r").splitlines()]


@pytest.fixture
def terminal():
    """A view on a terminal of 80 columns and 24 lines, and what is written to it."""
    said = io.StringIO()
    console = Console(file=said, force_terminal=True, width=80, height=24, color_system=None)
    view = make_view(console)
    assert isinstance(view, TerminalView)
    yield view, said
    view.close()


def test_before_the_fleet_trains_it_says_what_is_being_started(terminal):
    view, said = terminal
    assert re.search(r". starting \(", said.getvalue()), "at once"
    view.stage("starting Ray on this machine")
    assert re.fullmatch(r"[-|/\\] starting Ray on this machine \(.*\)", shown(view, said)[-1])


def test_while_the_fleet_trains_it_shows_all_of_it(terminal):
    view, said = terminal
    row = {"round": 3, "epoch": 1.0, "accuracy": 0.75, "loss": 0.5, "consensus_distance": 2.0}
    view.evaluated([row])
    view.update(named_fleet(restarts={3: 2}, evaluation=row))
    lines = shown(view, said)
    assert lines[0] == "farm (seed 1): 6 devices"
    assert re.match(r". \[#{6}\.{24}\] 20 %  ", lines[1])
    figures = "round 2/6000  loss 0.5  accuracy 0.7500  sent 5.0 kB  energy 2 J  clock 250 ms"
    assert lines[2] == figures
    assert lines[3:5] == ["restarts 2", "starting: 1 of 6 devices are not there yet"]
    assert len(lines) <= 24
    assert "epoch 1 (round 3): consensus accuracy 0.7500" in said.getvalue()


def test_a_fleet_that_ends_by_the_clock_shows_how_far_the_clock_is(terminal):
    view, said = terminal
    facts = FleetFacts(num_devices=1, num_rounds=60, horizon_s=20.0)
    view.update(FleetState(facts, {0: DeviceProgress(0, rounds_done=3, virtual_time_s=5.0)}))
    assert "clock 5.0 s of 20.0 s" in shown(view, said)[2]


def test_figures_that_do_not_fit_one_line_go_on_in_the_next():
    figures = ["round 123/720", "loss 0.311", "accuracy 0.8958", "sent 11.0 MB", "energy 10.45 J"]
    assert _in_lines([*figures, "clock 301 ms"], 80) == ["  ".join(figures), "clock 301 ms"]


def test_an_evaluation_that_takes_long_is_shown(terminal):
    view, said = terminal
    view.update(named_fleet())
    view.evaluating("evaluated 3/7 models")
    assert "evaluated 3/7 models" in shown(view, said)


def test_it_is_taken_away_in_the_end(terminal):
    view, said = terminal
    view.update(named_fleet())
    view.close()
    view.close()
    assert said.getvalue().endswith("\x1b[2K")


@pytest.mark.parametrize("settings", [{}, {"force_terminal": True, "quiet": True}])
def test_where_nobody_sees_a_display_there_are_lines(settings):
    assert isinstance(make_view(Console(file=io.StringIO(), **settings)), PlainView)


def test_a_cell_of_a_notebook_that_passes_for_a_terminal_gets_lines(monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"})
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    assert isinstance(make_view(console), TerminalView)
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    assert isinstance(make_view(console), PlainView)
