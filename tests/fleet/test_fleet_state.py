"""What sinks are told of a fleet: shares, metrics of devices and of the fleet."""

from __future__ import annotations

from math import nan

import pytest

from edgesim.fleet.recording.fleet_state import FleetFacts, FleetState, samples
from edgesim.fleet.transport.progress import DeviceProgress, Progress
from edgesim.results.metrics import DEVICE_METRICS, EVALUATION_METRICS, FLEET_METRICS, WAITS_FOR


def device(index, done, **more):
    return DeviceProgress(device=index, rounds_done=done, **more)


def state(*devices, facts=None, **more):
    facts = facts or FleetFacts(num_devices=len(devices), num_rounds=10)
    return FleetState(facts, {progress.device: progress for progress in devices}, **more)


def by_name(fleet, most_devices=100):
    return {(s.metric.name, *s.labels): s.value for s in samples(fleet, most_devices)}


def test_a_host_owes_no_rounds_of_devices_that_have_ended():
    progress = Progress(10, (device(0, 4), device(1, 2, end="died"), device(2, 10, end="finished")))
    assert progress.rounds_done == 4 + 10 + 10


@pytest.mark.parametrize(
    ("devices", "horizon_s", "share"),
    [
        ([], None, 0.0),
        ([device(0, 5)], None, (0.5 + 0) / 2),  # of the other one nothing is known
        ([device(0, 5), device(1, 1, end="died")], None, 0.5),
        ([device(0, 5), device(1, 5, end="finished")], None, (0.5 + 1) / 2),
        ([device(0, 5, end="left"), device(1, 1, end="died")], None, 1.0),
        ([device(0, 1, virtual_time_s=8.0), device(1, 9, virtual_time_s=2.0)], 10, (0.8 + 0.9) / 2),
        ([device(0, 1, virtual_time_s=11.0), device(1, 10)], 10, 1.0),
    ],
)
def test_the_share_that_is_done_goes_by_rounds_or_by_the_clock(devices, horizon_s, share):
    facts = FleetFacts(num_devices=2, num_rounds=10, horizon_s=horizon_s)
    assert state(*devices, facts=facts).share_done == pytest.approx(share)


def test_the_slowest_is_the_slowest_of_those_that_train():
    assert state().slowest_round is None
    assert state(device(0, 4), device(1, 2, end="died")).slowest_round == 4
    assert state(device(0, 10, end="finished")).slowest_round == 10


@pytest.mark.parametrize(("losses", "mean"), [((1, 2), 1.5), ((1, nan), 1), ((nan, nan), None)])
def test_the_loss_is_the_mean_of_those_that_have_one(losses, mean):
    assert state(*(device(i, 1, loss=loss) for i, loss in enumerate(losses))).mean_loss == mean


def test_metrics_are_told_of_each_device_by_name_and_of_the_fleet():
    facts = FleetFacts(num_devices=2, num_rounds=10, names=("attic", "hall"))
    told = by_name(
        state(
            device(0, 3, loss=1.0, sent_bytes=30, charge_left_j=nan, waits_for=(1,)),
            device(1, 5, loss=nan, sent_bytes=50, charge_left_j=2.5, energy_j=0.25),
            facts=facts,
            restarts={1: 2},
            evaluation={"round": 3, "accuracy": 0.5, "loss": nan, "consensus_distance": 4.0},
            evaluated={0: {"accuracy": 0.75}},
            distances={0: 1.0, 1: 3.0},
        )
    )
    expected = {
        ("rounds_done", "attic"): 3,
        ("rounds_done", "hall"): 5,
        ("fleet_rounds_done", "min"): 3,
        ("fleet_rounds_done", "mean"): 4,
        ("fleet_rounds_done", "max"): 5,
        ("loss", "attic"): 1,
        ("fleet_loss", "mean"): 1,
        ("fleet_sent_bytes",): 80,
        ("charge_left_j", "hall"): 2.5,
        ("energy_j", "hall"): 0.25,
        ("fleet_energy_j",): 0.25,
        ("awaited_messages", "attic"): 1,
        ("waits_for", "attic", "hall"): 1,
        ("actor_restarts", "attic"): 0,
        ("actor_restarts", "hall"): 2,
        ("accuracy", "attic"): 0.75,
        ("consensus_distance", "hall"): 3,
        ("fleet_consensus_distance", "max"): 3,
        ("evaluation_round",): 3,
        ("evaluation_accuracy",): 0.5,
        ("evaluation_consensus_distance",): 4,
    }
    assert expected.items() <= told.items()
    unknown = [("loss", "hall"), ("charge_left_j", "attic"), ("evaluation_loss",)]
    assert not any(key in told for key in (*unknown, ("virtual_time_s", "attic")))


def test_devices_that_left_or_died_count_in_sums_alone():
    told = by_name(
        state(
            device(0, 4, loss=1.0, sent_bytes=10),
            device(1, 6, loss=3.0, sent_bytes=20, end="finished"),
            device(2, 1, loss=50.0, sent_bytes=40, end="left"),
            device(3, 2, loss=70.0, sent_bytes=80, end="died"),
            evaluated={2: {"accuracy": 0.1}, 0: {"accuracy": 0.9}},
        )
    )
    assert [told["fleet_rounds_done", which] for which in ("min", "mean", "max")] == [4, 5, 6]
    assert told["fleet_loss", "mean"] == 2
    assert told["fleet_accuracy", "min"] == 0.9
    assert told["fleet_sent_bytes",] == 150
    assert told["rounds_done", "2"] == 1
    assert state(device(0, 1, loss=1.0), device(1, 1, loss=9.0, end="left")).mean_loss == 1


def test_a_large_fleet_has_metrics_of_the_fleet_alone():
    fleet = state(*(device(i, i, waits_for=(0,)) for i in range(3)))
    names = {metric.name for metric in (*FLEET_METRICS, *EVALUATION_METRICS)}
    assert {s.metric.name for s in samples(fleet, most_devices=2)} <= names
    of_devices = {metric.name for metric in (*DEVICE_METRICS, WAITS_FOR)}
    assert {"loss", "waits_for", "sent_bytes"} < of_devices
    assert {s.metric.name for s in samples(fleet, most_devices=3)} & of_devices


def test_measures_of_a_task_of_ones_own_are_told():
    facts = FleetFacts(num_devices=1, num_rounds=10, measures={"mae": "mean absolute error"})
    assert by_name(state(facts=facts, evaluation={"mae": 0.5})) == {("evaluation_mae",): 0.5}
