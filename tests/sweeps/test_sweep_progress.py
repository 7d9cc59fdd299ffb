"""What a sweep shows of its progress, by a clock of the test's own."""

import io
import json
from dataclasses import dataclass

import pytest
from rich.console import Console

from edgesim.fleet.recording.fleet_state import FleetFacts, FleetState
from edgesim.fleet.transport.progress import DeviceProgress
from edgesim.sweeps.pool import Event
from edgesim.sweeps.progress import LINE_INTERVAL_S, RestOfSweep, shown_progress
from edgesim.sweeps.run import read_sweep
from edgesim.sweeps.worker import Events


@dataclass
class Clock:
    """Seconds that the test sets."""

    now_s: float = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def swept(tmp_path, clock):
    """A sweep of two cells that goes on: its display, and where it writes."""
    planned = read_sweep("quickstart", {"grid": {"seed": [1, 2]}})
    out = io.StringIO()
    with shown_progress(planned, Console(file=out, width=200), str(tmp_path / "s"), clock) as tell:
        yield tell, out


def progress(share, cell="seed=1"):
    return Event(cell, "progress", {"share": share})


def test_time_left_is_that_of_the_pace_since_each_cells_first_progress():
    rest = RestOfSweep(2)
    rest.see(Event("seed=1", "begun"), 0.0)
    assert rest.said() == "seed=1 0%"
    rest.see(progress(0.2), 50.0)  # what a cell that goes on had done, after its start
    rest.see(progress(0.4), 60.0)
    rest.see(progress(0.1, "seed=2"), 65.0)  # so had this one
    assert rest.share_done == pytest.approx(0.25)
    assert rest.said() == "about 112.5 s left; seed=1 40%, seed=2 10%"  # 0.2 cells in 15 s
    rest.see(Event("seed=1", "failed", {"text": "no"}), 70.0)
    assert rest.share_done == pytest.approx(0.55)
    assert rest.said() == "about 22.5 s left; seed=2 10%"
    rest.see(Event("seed=2", "done", {"summary": {}}), 80.0)
    assert rest.share_done == 1.0


def test_a_cell_that_goes_on_is_first_heard_of_when_all_its_devices_are():
    out = io.StringIO()
    events, facts = Events(out), FleetFacts(num_devices=2, num_rounds=10)
    devices = {}
    events.update(FleetState(facts, devices))
    for device in range(2):
        devices[device] = DeviceProgress(device, rounds_done=6)
        events.update(FleetState(facts, devices))
    assert [json.loads(line) for line in out.getvalue().splitlines()] == [
        {"event": "progress", "share": 0.6}
    ]


def test_a_pause_of_the_machine_does_not_count():
    rest = RestOfSweep(1)
    for seconds in range(1, 6):
        rest.see(progress(seconds / 100), float(seconds))
    rest.see(progress(0.06), 10_000.0)
    assert rest.said() == "about 94.0 s left; seed=1 6%"


def test_without_a_terminal_there_is_a_line_a_minute_and_one_a_result(swept, clock):
    tell, out = swept
    tell(Event("seed=1", "begun"))
    tell(progress(0.01))
    assert out.getvalue() == ""
    clock.now_s += LINE_INTERVAL_S + 1
    tell(progress(0.11))
    assert out.getvalue() == "6% done, about 19.2 min left; seed=1 11%\n"
    tell(progress(0.12))
    tell(Event("seed=1", "warning", {"text": "hot"}))
    summary = {"consensus_accuracy": 0.5, "warnings": ["models move apart"]}
    tell(Event("seed=1", "done", {"summary": summary}))
    assert out.getvalue().splitlines()[1:] == [
        "seed=1: hot",
        "1/2 seed=1: accuracy 0.5000",
        "seed=1: models move apart",
    ]
