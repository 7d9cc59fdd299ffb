"""In lockstep on a contact trace a round k lasts until the second (k + 1) S of the trace."""

from __future__ import annotations

import pytest
from virtual_fleets import link, profile

from edgesim.hardware.duty_cycle import ALWAYS_AWAKE, DutyCycle
from edgesim.hardware.timeline import NOBODY, OF_FLEET, Hardware, Timeline
from edgesim.hardware.work import Work

STEP = Work(macs_fp32=10**9)  # 1 s of `profile()`
MESSAGE = 1_000_000  # bytes, 1 s on the air


def clock(device, round_s=10.0, cycle=ALWAYS_AWAKE, half_duplex=False):
    return Timeline(
        Hardware(
            profile=profile(),
            links={peer: link() for peer in range(3)},
            is_half_duplex=half_duplex,
            duty_cycle=cycle,
            round_s=round_s,
        ),
        seed=1,
        device=device,
    )


def test_a_device_waits_until_the_seconds_of_its_round_are_over():
    """For nobody: its step takes 1 s, and the message is there after 2 s."""
    for half_duplex in (False, True):
        alone, fed = (clock(device, half_duplex=half_duplex) for device in (0, 1))
        for one in (alone, fed):
            one.step(STEP, 0)
        stamp = alone.send((0, 1), MESSAGE, 0)
        for ended in (alone.end_round([]), fed.end_round([(0, stamp)])):
            assert (ended.end_s, ended.compute_s, ended.wait_s) == (10.0, 1.0, 9.0)
            assert ended.waited_for == NOBODY


def test_a_round_that_takes_longer_ends_late_and_the_next_ones_are_shorter():
    one, other = clock(0, round_s=2.5), clock(1, round_s=2.5)
    ends = []
    for r in range(4):
        one.step(STEP, r)
        other.step(STEP, r)
        sent = [(0, one.send((0, 1), 3 * MESSAGE, 0))] if r == 0 else []
        one.end_round([])
        ends.append(other.end_round(sent))
    assert [ended.end_s for ended in ends] == [4.0, 5.0, 7.5, 10.0]
    assert [ended.waited_for for ended in ends] == [0, NOBODY, NOBODY, NOBODY]
    assert [ended.wait_s for ended in ends] == [3.0, 0.0, 1.5, 1.5]


def test_ends_of_rounds_are_products_and_no_sums():
    one = clock(0, round_s=0.1)
    for r in range(1000):
        one.step(Work(macs_fp32=1), r)
        assert one.end_round([]).end_s == (r + 1) * 0.1


def test_a_device_that_sleeps_when_its_round_ends_waits_for_its_awake_seconds():
    one = clock(0, cycle=DutyCycle(period_s=20.0, awake_s=4.0, offset_s=0.0))
    one.step(STEP, 0)
    first = one.end_round([])
    assert (first.end_s, first.compute_s, first.wait_s) == (10.0, 1.0, 3.0)
    one.step(STEP, 1)  # it wakes up at 20 s
    assert one.end_round([]).end_s == 21.0
    one.step(STEP, 2)
    third = one.end_round([])
    assert (third.end_s, third.wait_s) == (30.0, 2.0)


@pytest.mark.parametrize("is_told", [False, True])
def test_a_device_that_comes_back_is_there_from_the_begin_of_its_round(is_told):
    """It was away in rounds 1 to 4: it takes its step at 50 s, sends, and waits; told or not."""
    back, stayed = clock(0), clock(1)
    for r in range(6):
        stayed.step(STEP, r)
        sent = [(1, stayed.send((1, 0), MESSAGE, r))] if is_told else []
        stayed.end_round([])
        if 0 < r < 5:
            back.be_absent(r * 3)
            continue
        back.step(STEP, r)
        own = back.send((0, 1), MESSAGE, r)
        ended = back.end_round(sent)
    assert (own.start_s, own.arrival_s) == (51.0, 52.0)
    assert (ended.end_s, ended.compute_s, ended.wait_s) == (60.0, 1.0, 9.0)
    assert back.reckoning == OF_FLEET


def test_a_device_that_comes_back_waits_in_full_for_a_late_message():
    """Neighbours told it the time with their first bits, and shortened its wait until then."""
    back, slow = clock(0, round_s=2.0), clock(1, round_s=2.0)
    back.be_absent(0)
    slow.step(Work(macs_fp32=7 * 10**9), 0)
    slow.end_round([])
    slow.step(STEP, 1)
    back.step(STEP, 1)
    ended = back.end_round([(1, slow.send((1, 0), MESSAGE, 0))])
    assert (ended.end_s, ended.wait_s, ended.waited_for) == (9.0, 6.0, 1)


def test_the_first_step_after_an_absence_waits_for_the_device_to_be_awake():
    back = clock(0, cycle=DutyCycle(period_s=20.0, awake_s=4.0, offset_s=0.0))
    back.be_absent(0)
    back.step(STEP, 1)  # from 10 s on; it wakes up at 20 s
    assert back.now_s == 21.0
