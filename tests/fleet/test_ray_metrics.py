"""Values that are given to Ray's metrics; no Ray is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from edgesim.assembly.preparation import prepare
from edgesim.fleet.on_ray import metrics
from edgesim.fleet.on_ray.metrics import PREFIX, RayMetrics
from edgesim.fleet.recording.fleet_state import FleetFacts, FleetState
from edgesim.fleet.run import run_scenario
from edgesim.fleet.transport.progress import DeviceProgress
from edgesim.results.metrics import (
    DEVICE_METRICS,
    EVALUATION_METRICS,
    FLEET_METRICS,
    WAITS_FOR,
)
from edgesim.scenario import load_scenario

WATCHED = Path(__file__).parents[1] / "dashboards" / "watched.yaml"


class Recorded:
    """Stands for Ray's gauges and counters."""

    values: dict[tuple[str, ...], float]

    def __init__(self, name, description, tag_keys):
        assert description
        self.name, self.tag_keys = name, tag_keys

    def set(self, value, tags):
        assert tuple(tags) == self.tag_keys
        self.values[self.name, *tags.values()] = value

    def inc(self, value, tags):
        assert value > 0, "Ray refuses others"
        key = self.name, *tags.values()
        self.values[key] = self.values.get(key, 0) + value


@pytest.fixture
def told(monkeypatch):
    monkeypatch.setattr(Recorded, "values", {}, raising=False)
    monkeypatch.setattr(metrics, "Gauge", Recorded)
    monkeypatch.setattr(metrics, "Counter", Recorded)
    return Recorded.values


def fleet(**of_first):
    devices = {
        0: DeviceProgress(device=0, rounds_done=1, **of_first),
        1: DeviceProgress(device=1, rounds_done=2),
    }
    return FleetState(FleetFacts(num_devices=2, num_rounds=10), devices)


def test_values_have_the_run_and_the_device_as_labels(told):
    RayMetrics("run-1", 100).update(fleet(loss=0.5))
    assert told["edgesim_rounds_done", "run-1", "1"] == 2
    assert told["edgesim_loss", "run-1", "0"] == 0.5
    assert told["edgesim_fleet_rounds_done", "run-1", "mean"] == 1.5


def test_labels_are_ascii(told):
    """Ray exports no metric at all as soon as one label has another letter."""
    facts = FleetFacts(num_devices=2, num_rounds=10, names=("Küche", "a\u2028"))
    devices = {number: DeviceProgress(number, rounds_done=1) for number in range(2)}
    RayMetrics("köln", 100).update(FleetState(facts, devices))
    assert told["edgesim_rounds_done", r"k\xf6ln", r"K\xfcche"] == 1
    assert told["edgesim_rounds_done", r"k\xf6ln", r"a\u2028"] == 1
    assert all(text.isascii() for labels in told for text in labels)


def test_what_is_counted_again_after_a_crash_is_not_added_twice(told):
    ray = RayMetrics("run-1", 100)
    for sent in (10, 30, 20, 35):
        ray.update(fleet(sent_bytes=sent))
    assert told["edgesim_sent_bytes", "run-1", "0"] == 35
    assert told["edgesim_fleet_sent_bytes", "run-1"] == 35


def test_a_device_that_waits_no_more_has_a_zero(told):
    ray = RayMetrics("run-1", 100)
    ray.update(fleet(waits_for=(1,)))
    assert told["edgesim_waits_for", "run-1", "0", "1"] == 1
    ray.update(fleet())
    assert told["edgesim_waits_for", "run-1", "0", "1"] == 0


def test_a_running_fleet_has_a_value_for_each_metric(told, tmp_path):
    """The fleet that test_running_fleet.py watches; of devices in one process, none waits."""
    settings = ("training={rounds: 1000, virtual_time_s: 0.02, optimizer: {lr: 0.05}}",)
    scenario = load_scenario(WATCHED, ("model={name: small_cnn}", *settings))
    sinks = [RayMetrics("run", 100)]
    console = Console(quiet=True)
    run_scenario(prepare(scenario), tmp_path / "run", inline=True, console=console, sinks=sinks)
    every = {metric.name for metric in (*DEVICE_METRICS, *FLEET_METRICS, *EVALUATION_METRICS)}
    found = {name.removeprefix(PREFIX) for name, *_ in told}
    assert found - {WAITS_FOR.name} == every
