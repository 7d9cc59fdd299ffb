"""What rounds take their time for, against fleets whose slowest cycle is worked out by hand."""

import pytest
from test_steady_state import device, run

from edgesim.hardware.duty_cycle import DutyCycle
from edgesim.study.rounds.critical_path import seconds_by_kind


def parts_of(found):
    """Seconds by kind, device and receiver; all parts together are the cycle time."""
    assert sum(limit.seconds for limit in found.limits) == pytest.approx(found.period_s)
    return {(limit.kind, limit.device, limit.receiver): limit.seconds for limit in found.limits}


def test_a_slow_device_alone_limits_those_that_wait_for_it():
    """As in the test of its pace: 5 s a round, and no message takes part in them."""
    found = run([device(3, 5.0), device(3, 1.0), device(3, 1.0)])
    assert parts_of(found)["computing", 0, None] == pytest.approx(5.0, rel=0.01)


def test_round_a_ring_of_slow_links_all_steps_and_links_count():
    """Three rounds go once around: steps of 3 + 1 + 1 s, three messages of 0.1 s and 2 s late."""
    found = run([device(3, step_s, latency_s=2.0) for step_s in (3.0, 1.0, 1.0)])
    by_kind = seconds_by_kind(found.limits)
    assert by_kind["computing"] == pytest.approx(5 / 3, rel=0.02)
    assert by_kind["latency"] == pytest.approx(2.0, rel=0.02)
    assert by_kind["sending"] == pytest.approx(0.1, rel=0.02)
    assert list(by_kind) == ["latency", "computing", "sending"]


def test_messages_that_queue_for_one_radio_count_one_after_the_other():
    """In a ring of links both ways a radio sends two messages of 0.1 s; the second one is late."""
    by_kind = seconds_by_kind(run([device(5, 1.0)] * 5, kind="ring").limits)
    # Where two messages arrive at the same time but for rounding, the path may follow either.
    assert by_kind["computing"] == pytest.approx(1.0, rel=0.01)
    assert by_kind["sending"] == pytest.approx(0.2, rel=0.01)
    assert by_kind["latency"] == pytest.approx(0.05, rel=0.01)


def test_a_half_duplex_radio_sends_then_receives():
    """A message arrives while the receiver sends its own: both take their time on the air."""
    hardware = [device(4, 1.0, half_duplex=True, latency_s=0.0)] * 4
    by_kind = seconds_by_kind(run(hardware).limits)
    assert by_kind == {
        "computing": pytest.approx(1.0),
        "sending": pytest.approx(0.2),
    }


def test_sleep_is_a_part_of_its_own():
    """Awake for 5 of 10 s: half of the time that rounds take is sleep."""
    cycle = DutyCycle(period_s=10.0, awake_s=5.0, offset_s=0.0)
    found = run([device(3, 0.1, air_s=0.05, latency_s=0.0, cycle=cycle)] * 3)
    by_kind = seconds_by_kind(found.limits)
    assert sum(by_kind.values()) == pytest.approx(found.period_s)
    assert by_kind["computing"] == pytest.approx(0.1, rel=0.02)
    assert by_kind["sending"] == pytest.approx(0.05, rel=0.02)
    assert by_kind["sleep"] == pytest.approx(0.15, rel=0.06)


def test_a_lonely_device_computes():
    assert seconds_by_kind(run([device(1, 2.0)]).limits) == {"computing": pytest.approx(2.0)}
