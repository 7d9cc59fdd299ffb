"""Clocks of fleets in lockstep against periods worked out by hand."""

import pytest

from edgesim.hardware.awake_times import AwakeTimes
from edgesim.hardware.duty_cycle import ALWAYS_AWAKE, DutyCycle
from edgesim.hardware.links import Link
from edgesim.hardware.profiles import DeviceProfile, Radio
from edgesim.hardware.timeline import Hardware
from edgesim.hardware.work import Work
from edgesim.study.rounds import steady_state
from edgesim.study.rounds.steady_state import find_steady_state
from topologies import Intermittent, build_schedule

MESSAGE_BYTES = 1000
WORK = Work(macs_fp32=1_000_000)


def device(num_devices, compute_s, *, air_s=0.1, latency_s=0.05, half_duplex=False, cycle=None):
    """A device that takes `compute_s` for WORK, and `air_s` for a message."""
    radio = Radio(
        name="radio",
        bandwidth_bps=1.0,
        send_j_per_byte=0.0,
        receive_j_per_byte=0.0,
        is_half_duplex=half_duplex,
    )
    profile = DeviceProfile(
        name="made-up",
        description="",
        int8_macs_per_s=1.0,
        bits16_macs_per_s=1.0,
        fp32_macs_per_s=WORK.macs_fp32 / compute_s,
        memory_bytes=1,
        memory_bandwidth=1.0,
        idle_power_w=0.0,
        active_power_w=1.0,
        radio=radio,
    )
    link = Link(
        bandwidth_bps=8 * MESSAGE_BYTES / air_s,
        latency_s=latency_s,
        jitter_s=0.0,
        loss=0.0,
        packet_bytes=1500,
    )
    return Hardware(
        profile=profile,
        links=dict.fromkeys(range(num_devices), link),
        is_half_duplex=half_duplex,
        duty_cycle=cycle or ALWAYS_AWAKE,
    )


def run(hardware, kind="directed_ring"):
    schedule = build_schedule(kind, len(hardware), seed=1)
    return find_steady_state(
        hardware, schedule, lambda device, r: WORK, lambda *_: MESSAGE_BYTES, seed=1
    )


def test_equal_devices_take_step_air_and_latency():
    found = run([device(4, 1.0)] * 4)
    assert found.is_settled
    assert found.period_s == pytest.approx(1.0 + 0.1 + 0.05, abs=1e-9)
    for place, own in enumerate(found.devices):
        assert own.period_s == pytest.approx(1.15, abs=1e-9)
        assert own.compute_s == pytest.approx(1.0)
        assert own.wait_s == pytest.approx(0.15)
        assert own.air_s == pytest.approx(0.1)
        assert own.utilisation == pytest.approx(1 / 1.15)
        assert own.waits_for == (place - 1) % 4
        assert own.sleep_s == 0


def test_a_slow_device_sets_the_pace_and_waits_for_nobody():
    """A ring's mean of a cycle, (5 + 1 + 1) / 3 + 0.15, is shorter than the slow device's step."""
    found = run([device(3, 5.0), device(3, 1.0), device(3, 1.0)])
    assert found.period_s == pytest.approx(5.0, abs=1e-9)
    assert found.busiest == 0
    assert [own.waits_for for own in found.devices] == [None, 0, 1]
    assert [own.utilisation for own in found.devices] == pytest.approx([1.0, 0.2, 0.2])
    assert found.devices[2].wait_s == pytest.approx(4.0)


def test_unequal_devices_on_slow_links_share_the_cycle():
    """Where messages take long, the period is the mean over the ring, and nobody is always busy."""
    hardware = [device(3, step_s, latency_s=2.0) for step_s in (3.0, 1.0, 1.0)]
    found = run(hardware)
    # Once around the ring is three rounds.
    assert found.period_s == pytest.approx((3 + 1 + 1) / 3 + 0.1 + 2.0, abs=1e-9)
    assert found.is_settled


def test_a_half_duplex_radio_sends_before_it_listens():
    found = run([device(4, 1.0, half_duplex=True, latency_s=0.0)] * 4)
    assert found.period_s == pytest.approx(1.0 + 0.1 + 0.1, abs=1e-9)


def test_two_messages_share_the_air():
    found = run([device(5, 1.0)] * 5, kind="ring")
    assert found.period_s == pytest.approx(1.0 + 2 * 0.1 + 0.05, abs=1e-9)
    assert found.devices[0].air_s == pytest.approx(0.2)


def test_sleep_stretches_the_round():
    """Awake for 5 of 10 s, all together: a round of 0.15 awake seconds takes twice as long."""
    cycle = DutyCycle(period_s=10.0, awake_s=5.0, offset_s=0.0)
    hardware = [device(3, 0.1, air_s=0.05, latency_s=0.0, cycle=cycle)] * 3
    found = run(hardware)
    assert found.num_rounds > 300  # several nights
    assert found.period_s == pytest.approx(0.3, rel=0.06)
    assert found.devices[0].compute_s == pytest.approx(0.1)
    assert found.devices[0].sleep_s == pytest.approx(0.15, rel=0.1)


def test_a_fleet_that_could_not_settle_says_so(monkeypatch):
    """A slow device stops those behind it one after the other, a round each."""
    monkeypatch.setattr(steady_state, "_MOST_EVENTS", 2 * 20 * 12)
    hardware = [device(20, 10.0), *[device(20, 1.0)] * 19]
    assert not run(hardware).is_settled
    monkeypatch.undo()
    found = run(hardware)
    assert found.is_settled
    assert found.period_s == pytest.approx(10.0)


@pytest.mark.parametrize(("kind", "every"), [("ring", 50), ("random_matching", 7)])
def test_with_local_steps_messages_count_as_often_as_they_are_sent(kind, every):
    hardware = [device(6, 1.0)] * 6
    schedule = Intermittent(build_schedule(kind, 6, seed=1), every)
    found = find_steady_state(
        hardware, schedule, lambda device, r: WORK, lambda *_: MESSAGE_BYTES, seed=1
    )
    air_s = 0.1 * (2 if kind == "ring" else 1)  # of an exchange
    assert found.is_settled
    assert found.num_rounds % every == 0
    assert found.period_s == pytest.approx(1.0 + (air_s + 0.05) / every, abs=1e-9)
    assert found.devices[0].air_s == pytest.approx(air_s / every)


def test_a_large_fleet_with_many_local_steps_is_seen_for_whole_exchanges(monkeypatch):
    monkeypatch.setattr(steady_state, "_MOST_EVENTS", 4 * 60 * 10)
    hardware = [device(10, 1.0)] * 10
    schedule = Intermittent(build_schedule("directed_ring", 10, seed=1), 60)
    found = find_steady_state(
        hardware, schedule, lambda device, r: WORK, lambda *_: MESSAGE_BYTES, seed=1
    )
    assert found.num_rounds % 60 == found.warm_up_rounds % 60 == 0
    assert found.devices[0].air_s == pytest.approx(0.1 / 60)


def test_a_lonely_device_only_computes():
    found = run([device(1, 2.0)])
    assert found.period_s == pytest.approx(2.0)
    assert found.devices[0].waits_for is None
    assert found.devices[0].utilisation == pytest.approx(1.0)


def test_absences_by_a_plan_are_no_part_of_the_steady_state():
    cycle = DutyCycle(period_s=10.0, awake_s=5.0, offset_s=0.0)
    plain = [device(2, 1.0, cycle=cycle), device(2, 2.0)]
    away = AwakeTimes(cycle=cycle, next_absence=lambda time_s: (3.0, 1e6))
    absent = [device(2, 1.0, cycle=away), device(2, 2.0)]
    schedule = build_schedule("ring", 2, seed=0)
    first, second = (
        find_steady_state(fleet, schedule, lambda *_: WORK, lambda *_: MESSAGE_BYTES, 1)
        for fleet in (plain, absent)
    )
    assert first == second
