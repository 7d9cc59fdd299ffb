"""Clocks of fleets in lockstep against periods worked out by hand."""

from dataclasses import astuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgesim.hardware.awake_times import AwakeTimes
from edgesim.hardware.duty_cycle import ALWAYS_AWAKE, DutyCycle
from edgesim.hardware.links import Link
from edgesim.hardware.profiles import DeviceProfile, Radio
from edgesim.hardware.timeline import Hardware
from edgesim.hardware.work import Work
from edgesim.study import steady_state
from edgesim.study.critical_path import seconds_by_kind
from edgesim.study.steady_state import find_steady_state
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


FLEETS = st.tuples(
    st.sampled_from(["directed_ring", "ring", "star", "exponential", "one_peer_exponential"]),
    st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=4, max_size=10),
    st.booleans(),
    st.sampled_from([0.1, 1.5]),
    st.sampled_from([1, 3]),
)


@given(fleet=FLEETS)
@settings(max_examples=40, deadline=None)
def test_a_fleet_that_repeats_itself_equals_one_whose_rounds_are_all_run(fleet):
    kind, compute_s, half_duplex, air_s, every = fleet
    schedule = build_schedule(kind, len(compute_s), seed=1)
    schedule = Intermittent(schedule, every) if every > 1 else schedule
    hardware = [
        device(len(compute_s), own_s, air_s=air_s, half_duplex=half_duplex) for own_s in compute_s
    ]
    found, expected = [], []
    for states in (found, expected):
        with pytest.MonkeyPatch.context() as patch:
            if states is expected:
                patch.setattr(steady_state, "is_repeatable", lambda *_: False)
            for most_events in (None, 500):  # whole periods, and parts of them
                states.append(
                    find_steady_state(
                        hardware,
                        schedule,
                        lambda *_: WORK,
                        lambda *_: MESSAGE_BYTES,
                        1,
                        most_events,
                    )
                )
    for own, other in zip(found, expected, strict=True):
        assert (own.warm_up_rounds, own.num_rounds) == (other.warm_up_rounds, other.num_rounds)
        for mine, theirs in zip(own.devices, other.devices, strict=True):
            if theirs.wait_s > 1e-9:  # rounding lets devices wait, too
                assert mine.waits_for == theirs.waits_for
            times, other_times = astuple(mine)[:-1], astuple(theirs)[:-1]
            assert times == pytest.approx(other_times, rel=1e-8, abs=1e-9)
        kinds, other_kinds = seconds_by_kind(own.limits), seconds_by_kind(other.limits)
        assert kinds == pytest.approx(other_kinds, rel=1e-8, abs=1e-9)


def test_a_fleet_that_repeats_itself_is_run_for_a_few_rounds_alone():
    rounds = []
    schedule = build_schedule("directed_ring", 50, seed=1)
    find_steady_state(
        [device(50, 1.0)] * 50,
        schedule,
        lambda device, r: rounds.append(r) or WORK,
        lambda *_: MESSAGE_BYTES,
        seed=1,
    )
    assert len(rounds) <= 5 * 50  # it settles in the first round, or the second
