"""A real fleet beside its prediction: profiles of shares, scenarios, orders, and what is left."""

from __future__ import annotations

import os
import subprocess
import sys
from math import inf
from pathlib import Path

import pytest
import reality_calibration
import yaml
from arrival_order import compare_orders, offsets
from confinement import (
    ConfinedFleet,
    ConfinementError,
    CpuGroups,
    check,
    cores_of,
    cpu_groups,
    quota,
    remove_leftovers,
    shaping,
)
from predicted_rounds import ends_in_turn, predict
from process_trees import wait_for
from reality import arguments_of, judge, read_times
from reality_scenario import SHAPES, Seat, Shape, machine_profile, of_share, write_scenario

from edgesim.assembly.equipment import device_hardware, device_profiles
from edgesim.assembly.preparation import prepare
from edgesim.errors import ScenarioError
from edgesim.hardware.work import LayerTally, Work
from edgesim.scenario import load_scenario

PROFILE = {
    "name": "whole",
    "based_on": "raspberry-pi-5",
    "fp32_gmacs_per_s": 40.0,
    "bits16_gmacs_per_s": 4.0,
    "int8_gmacs_per_s": 100.0,
    "memory_gbytes_per_s": 20.0,
    "elementwise_gops_per_s": 4.0,
    "memory_mib": 1000.0,
    "layer_times": [{"layer": "linear_fp32", "call_us": 100.0, "ps_per_mac": 30.0}],
}
TWO = Shape((Seat(0.5, 8.0), Seat(0.25, 2.0)), "small_cnn", batch=4, keep=1, reach=(1,))


def profiles(shape):
    return [of_share(PROFILE, seat.share) for seat in shape.seats]


def written(folder, shape=TWO):
    return load_scenario(write_scenario(shape, profiles(shape), folder, precision="fp32"))


def test_a_share_takes_every_time_that_much_longer(tmp_path):
    """0.1 ms of a linear layer's call, and 40 MB at 20 GB/s beside it: 2.1 ms; at a half, 4.2."""
    tally = LayerTally(
        kind="linear_fp32", calls=1, macs=0, entries=0, far_entries=0, weights=0, work=Work()
    )
    work = Work(traffic_bytes=40_000_000, layers=(tally,))
    half, quarter = device_profiles(written(tmp_path))
    assert half.compute_s(work) == pytest.approx(2 * 2.1e-3)
    assert quarter.compute_s(work) == pytest.approx(4 * 2.1e-3)
    assert half.memory_bytes == 1000 * 2**20, "a share of the time, not of the memory"


def test_the_profile_of_a_whole_core_is_the_machines():
    whole = of_share(PROFILE, 1.0)
    assert {**whole, "name": "whole", "radio": None} == {**PROFILE, "radio": None}


def test_links_have_the_rates_of_their_senders(tmp_path):
    scenario = written(tmp_path)
    hardware = device_hardware(scenario, prepare(scenario).schedule)
    assert [hardware[0].links[1].bandwidth_bps, hardware[1].links[0].bandwidth_bps] == [8e6, 2e6]


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_fit_two_cores_and_their_scenarios_can_be_read(name, tmp_path):
    shape = SHAPES[name]
    cores_of([seat.share for seat in shape.seats], [0, 1])
    assert written(tmp_path, shape).fleet.num_devices == len(shape.seats)


def test_a_file_without_times_of_layers_is_refused(tmp_path):
    path = tmp_path / "machine.yaml"
    path.write_text(yaml.safe_dump({"name": "x", "hardware": {"profiles": []}}))
    with pytest.raises(ScenarioError, match=r"edgesim calibrate --out FILE|is missing"):
        machine_profile(path)


def test_a_quota_is_at_least_a_millisecond():
    assert quota(0.25) == (2_500, 10_000)
    assert quota(0.05) == (1_000, 20_000)


def test_shares_go_to_the_core_with_most_left():
    assert cores_of([0.2, 0.5, 0.4, 0.1], [2, 3]) == [3, 2, 3, 2]
    with pytest.raises(ConfinementError, match=r"below 0\.95"):
        cores_of([0.5, 0.5, 0.5], [0])


def test_the_controller_is_found_in_both_versions_of_cgroups(tmp_path):
    first = "cgroup /groups/cpuacct cgroup rw,cpuacct 0 0\ncgroup /groups/cpu cgroup rw,cpu 0 0\n"
    (tmp_path / "cgroup.controllers").write_text("memory cpu io\n")
    second = f"cgroup2 {tmp_path} cgroup2 rw 0 0\n"
    assert cpu_groups(first + second) == CpuGroups(Path("/groups/cpu"), 1)
    assert cpu_groups(second) == CpuGroups(tmp_path, 2)
    assert CpuGroups(tmp_path, 2).limits(0.25) == {"cpu.max": "2500 10000"}
    assert cpu_groups("proc /proc proc rw 0 0\n") is None


def test_an_uplink_carries_its_rate_of_payload():
    """1448 bytes of payload take 1514 on the wire."""
    assert shaping(1.448)[:2] == ["rate", "1514000bit"]


def test_pieces_of_messages_leave_in_turn():
    """64 of the first, 64 of the second, 36, 36; without pieces one after the other."""
    assert ends_in_turn([100, 100], 64) == [64 + 64 + 36, 200]
    assert ends_in_turn([100, 50, 100], 64) == [214, 114, 250]
    assert ends_in_turn([100, 50], inf) == [100, 150]


def test_lines_of_a_process_are_its_rounds_and_a_cut_one_is_left_out():
    times = read_times("a 3 0.25\nr 0 1.0 1.5 3.0 0.125 0.5\na 3 2.5\nr 1 3.0 3.5")
    assert (times.starts_s, times.rounds_s, times.steps_s) == ([1.0], [2.0], [0.5])
    assert (times.step_s, times.processor_s) == ([0.125], [0.5])
    assert times.arrivals_s == {3: [0.25, 2.5]}


EDGES = a, b, c = (0, 1), (1, 2), (2, 0)


def test_offsets_are_medians_after_the_first_arrival_of_each_round():
    found = offsets({a: [5.0, 15.0, 25.0], b: [4.0, 14.0, 25.5], c: [6.0, 19.0, 27.0]})
    assert list(found.items()) == [(b, 0.0), (a, 1.0), (c, 2.0)]


def test_orders_are_compared_pair_by_pair_and_ties_are_left_out():
    """Predicted a, then b and c nearly together. b came first once, in two rounds."""
    predicted = {a: [0.0], b: [1.0], c: [1.01]}
    measured = {a: [10.0, 21.0], b: [11.0, 20.0], c: [12.0, 22.0]}
    found = compare_orders(predicted, measured, tie_s=0.05)
    assert (found.num_pairs, found.num_agreeing, found.num_ties) == (4, 3, 2)
    assert found.share == 0.75


def test_steps_that_are_given_replace_those_of_the_profile(tmp_path):
    """A ring of two in one direction: half of both steps and messages, or the longer step."""
    path = write_scenario(TWO, profiles(TWO), tmp_path, precision="fp32")
    found = predict(path, 3, [0.125, 0.5])
    air_s = [8 * found.message_bytes / rate for rate in (8e6, 2e6)]
    assert found.round_s == pytest.approx(max(0.5, (0.625 + sum(air_s)) / 2), rel=1e-6)
    assert found.compute_s == (0.125, 0.5)
    assert {edge: len(times) for edge, times in found.arrivals.items()} == {(0, 1): 3, (1, 0): 3}


def test_what_was_measured_stands_beside_what_was_predicted(tmp_path):
    """Rounds of 2 s with 0.1 s of processor time, which two shares stretch to 0.2 and 0.4 s."""
    path = write_scenario(TWO, profiles(TWO), tmp_path, precision="fp32")
    rounds = [f"r {r} {2.0 * r} {2.0 * r + 1} {2.0 * r + 2} 0.05 0.1\n" for r in range(9)]
    arrivals = [[f"a {other} {2.0 * r + 1 + other}\n" for r in range(9)] for other in (1, 0)]
    times = [read_times("".join(rounds + own)) for own in arrivals]
    outcome = judge(TWO, path, times)
    assert outcome.round_s == 2.0
    assert outcome.processor_s == [0.1, 0.1]
    assert outcome.given_steps.compute_s == (0.2, 0.4)
    assert outcome.deviation == outcome.predicted.round_s / 2 - 1


@pytest.fixture
def groups():
    try:
        return check()
    except ConfinementError as error:
        pytest.skip(str(error))


def left(tag):
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return [name for name in names.stdout.split() if name.startswith(tag)]


PROGRAM = """
import socket, sys
if sys.argv[1] == "0":
    server = socket.create_server((sys.argv[2], 7000))
    print("ready", flush=True)
    print(server.accept()[0].recv(5).decode(), flush=True)
else:
    socket.create_connection((sys.argv[2], 7000)).sendall(b"hello")
"""


def test_a_fleet_confines_its_processes_and_leaves_nothing(groups, tmp_path):
    """One reaches the other by its address; both are held to their shares."""
    tag = f"reality-{os.getpid()}"
    python = [sys.executable, "-c", PROGRAM]
    logs = [tmp_path / "log-0", tmp_path / "log-1"]
    fleet = ConfinedFleet([0.25, 0.05], [8.0, 2.0])
    try:
        fleet.open()
    except ConfinementError as error:
        pytest.skip(str(error))
    try:
        assert sorted(left(tag)) == [f"{tag}-0", f"{tag}-1", f"{tag}-switch"]
        for name, value in groups.limits(0.05).items():
            assert (fleet.entrance(1).parent / name).read_text().strip() == value
        fleet.start(0, [*python, "0", fleet.address(0)], logs[0])
        wait_for(lambda: "ready" in logs[0].read_text(), None)
        fleet.start(1, [*python, "1", fleet.address(0)], logs[1])
        wait_for(lambda: "hello" in logs[0].read_text(), None)
    finally:
        fleet.close()
    assert left(tag) == []
    assert not fleet.entrance(0).parents[1].exists()


def test_what_a_killed_process_left_is_removed(groups):
    ended = subprocess.Popen(["true"])
    ended.wait()
    tag = f"reality-{ended.pid}"
    if subprocess.run(["ip", "netns", "add", f"{tag}-0"], check=False).returncode:
        pytest.skip("no network namespaces here")
    (groups.root / tag / "device-0").mkdir(parents=True)
    remove_leftovers(groups)
    assert left(tag) == []
    assert not (groups.root / tag).exists()


class FleetWithoutQuotas:
    """Its processes end at once, and leave the profile of a calibration, or nothing."""

    def __init__(self, shares, uplinks_mbps):
        self.commands = []
        MADE.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    entrance = staticmethod(lambda device: Path(f"entrance-{device}"))
    core = staticmethod(lambda device: device % 2)

    def start(self, device, command, log, **environment):
        self.commands.append(command[-1])
        log.write_text("10 %: linear\nno clock\n")
        found = {"name": "found", "hardware": {"profiles": [PROFILE]}}
        if not (FAILS and device == 1):
            (log.parent / f"profile-{device}.yaml").write_text(yaml.safe_dump(found | REST))

    def ended(self):
        return list(range(len(self.commands)))


MADE, FAILS = [], []
REST = {
    "topology": {"kind": "ring"},
    "data": {"source": "digits", "partition": {"kind": "iid"}, "batch_size": 16},
    "model": {"name": "small_cnn"},
    "training": {"epochs": 1, "optimizer": {"lr": 0.05}},
    "fleet": {"devices": 4, "profile": "whole"},
    "gossip": {"algorithm": "gradient_push"},
}


@pytest.fixture
def without_quotas(monkeypatch):
    MADE.clear()
    FAILS.clear()
    monkeypatch.setattr(reality_calibration, "ConfinedFleet", FleetWithoutQuotas)


def test_devices_that_measure_themselves_have_profiles_of_their_shares(without_quotas, tmp_path):
    found = reality_calibration.calibrate_in_place(TWO, tmp_path, 2)
    assert [profile["name"] for profile in found] == ["device-0", "device-1"]
    assert [p["layer_times"][0]["call_us"] for p in found] == [100 / 0.5, 100 / 0.25]
    ((half, quarter),) = (fleet.commands for fleet in MADE)
    assert "--median --rounds 4 " in half
    assert "--median --rounds 2 " in quarter
    assert "echo $$ > entrance-1 && exec taskset -c 1 " in quarter


def test_a_device_that_was_not_measured_ends_the_fleet_with_what_it_said(without_quotas, tmp_path):
    FAILS.append(True)
    with pytest.raises(ConfinementError, match="device 1 was not calibrated: no clock"):
        reality_calibration.calibrate_in_place(TWO, tmp_path, 1)


def test_fewer_turns_than_one_are_refused(capsys):
    with pytest.raises(SystemExit):
        arguments_of(["--calibrate", "0"])
    assert "--calibrate 0: must be at least 1" in capsys.readouterr().err


def test_a_calibration_says_how_far_it_is():
    assert reality_calibration.percent("0 %: loading torch\n10 %: linear\n") == 10
    assert reality_calibration.percent("") == 0
