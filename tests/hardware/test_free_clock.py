"""The clock at free pace: cases computed by hand; fleets of them are in tests/fleet."""

from __future__ import annotations

import json
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_fleets import link, profile

from edgesim.hardware.duty_cycle import ALWAYS_AWAKE, DutyCycle
from edgesim.hardware.free_clock import FreeClock, Incoming
from edgesim.hardware.links import Link
from edgesim.hardware.meter import Meter
from edgesim.hardware.timeline import Hardware, RoundTime, Stamp, Timeline
from edgesim.hardware.work import Work

SECOND = Work(macs_fp32=10**9)  # of `profile()`
MEGABYTE = 10**6  # a second on the air of `link()`


def clock(
    links: dict[int, Link], *, is_half_duplex: bool = False, device: int = 5, **options: object
) -> FreeClock:
    hardware = Hardware(profile=profile(), links=links, is_half_duplex=is_half_duplex, **options)
    return FreeClock(Timeline(hardware, 1, device))


def incoming(sender: int, sequence: int, first_bit_s: float, air_s: float = 1.0) -> Incoming:
    """A message to device 5 over a link without latency."""
    stamp = Stamp(first_bit_s, first_bit_s, first_bit_s + air_s, air_s, 0, 0)
    return Incoming((sender, 5, sequence), stamp)


def test_a_device_goes_on_without_waiting():
    """Steps of 1 s; a message absorbed takes 0.5 s; one that comes at 1.25 waits for 2.5."""
    free, due = clock({}), [incoming(1, 0, 0.0), incoming(2, 0, 0.25)]
    free.step(SECOND, 0)
    assert free.arrived(due) == [(1, 5, 0)]
    half = Work(macs_fp32=5 * 10**8)
    assert free.absorb(half) == RoundTime(end_s=1.5, compute_s=1.5, wait_s=0.0)
    free.step(SECOND, 1)
    assert free.arrived(due[1:]) == [(2, 5, 0)]
    assert free.absorb(half) == RoundTime(end_s=3.0, compute_s=1.5, wait_s=0.0)


def test_arrivals_are_absorbed_in_the_order_of_time_and_sender():
    """At 4 s device 5 has what arrived by then, at 4 s itself only from lower numbers."""
    free = clock({})
    free.step(SECOND * 4, 0)
    late, in_time = incoming(6, 0, 3.0), incoming(4, 0, 3.0)
    early = [incoming(7, 1, 1.0), incoming(7, 0, 1.0), incoming(3, 2, 1.0), incoming(9, 0, 0.5)]
    assert free.arrived([late, in_time, *early]) == [
        (9, 5, 0),
        (3, 5, 2),
        (7, 5, 0),
        (7, 5, 1),
        (4, 5, 0),
    ]
    free.absorb(Work())
    free.step(SECOND, 1)
    assert free.arrived([late]) == [(6, 5, 0)]


def test_a_time_bound_is_the_end_of_the_next_step_and_the_links_latency():
    free = clock({1: link(latency_s=0.25), 2: link(latency_s=0.5)})
    free.foresee(SECOND * 3, 0)
    assert free.bound_s((5, 1)) == 3.25
    free.step(SECOND * 3, 0)
    assert free.bound_s((5, 2)) == 3.5  # what leaves now
    free.foresee(SECOND * 4, 1)
    stamp = free.send((5, 1), MEGABYTE, 0)
    assert (stamp.start_s, stamp.first_bit_s, stamp.arrival_s) == (3.0, 3.25, 4.25)
    assert (stamp.handed_s, stamp.bound_s) == (3.0, 7.25)
    assert free.bound_s((5, 2)) == 7.5


def test_a_busy_radio_puts_time_bounds_off():
    """Two messages of 4 s after a step of 1 s, then a step of 1 s: the radio is free at 9 s."""
    free = clock({1: link(latency_s=0.25), 2: link()})
    free.step(SECOND, 0)
    free.foresee(SECOND, 1)
    assert free.send((5, 1), 4 * MEGABYTE, 0).bound_s == 5.25
    assert free.send((5, 2), 4 * MEGABYTE, 0).bound_s == 9.0
    assert free.bound_s((5, 1)) == 9.25


def test_after_the_last_step_the_time_bound_is_infinite():
    free = clock({1: link()})
    free.step(SECOND, 0)
    free.foresee(None, 1)
    assert free.send((5, 1), MEGABYTE, 0).bound_s == inf
    assert free.bound_s((5, 1)) == inf
    free.await_rest([])
    free.absorb(Work())
    restored = clock({1: link()})
    restored.restore(json.loads(json.dumps(free.state(), allow_nan=False)))
    assert restored.bound_s((5, 1)) == inf


def test_a_clock_that_goes_on_from_a_checkpoint_has_no_bound_beyond_its_next_step():
    free = clock({1: link(latency_s=0.25)})
    free.step(SECOND * 2, 0)
    restored = clock({1: link(latency_s=0.25)})
    restored.restore(free.state())
    assert restored.bound_s((5, 1)) == 2.25, "the step may be of no work at all"


def test_the_end_of_a_step_is_told_before_it_is_done():
    """3 s of work begun at 1 s by a device that is awake 2 s of 10 s: 1 to 2, 10 to 12."""
    cycle = DutyCycle(period_s=10.0, awake_s=2.0, offset_s=0.0)
    free = clock({}, duty_cycle=cycle, compute_jitter=0.3)
    free.step(SECOND, 0)
    end_s = [free.end_of_step_s(SECOND * 3, round_index) for round_index in (1, 2)]
    assert end_s[0] != end_s[1], "each round has a factor of its own"
    free.step(SECOND * 3, 1)
    assert free.now_s == end_s[0]
    awake = clock({})
    awake.step(SECOND, 0)
    assert awake.end_of_step_s(SECOND * 3, 1) == 4.0


CYCLES = st.one_of(
    st.just(ALWAYS_AWAKE),
    st.builds(
        lambda period, part, offset: DutyCycle(
            period_s=period, awake_s=period * part, offset_s=offset
        ),
        st.floats(1e-3, 100),
        st.floats(0.01, 1.0),
        st.floats(-1e4, 1e4),
    ),
)


@given(CYCLES, st.integers(0, 2**32 - 1), st.booleans())
def test_time_bounds_hold_and_messages_do_not_overtake(cycle, seed, is_half_duplex):
    """Whatever the work, losses, jitter, sleep, and what is received and absorbed in between."""
    rng = np.random.default_rng(seed)
    links = {
        k: link(latency_s=float(rng.choice([0, 0.1])), jitter_s=5.0 * rng.integers(2), loss=0.2)
        for k in (1, 2)
    }
    free = clock(
        links, is_half_duplex=is_half_duplex, compute_jitter=0.3, duty_cycle=cycle, device=5
    )
    least = Work(macs_fp32=int(rng.integers(1, 10**9)))
    bounds, before = {1: 0.0, 2: 0.0}, {1: 0.0, 2: 0.0}
    for r in range(12):
        free.foresee(least, r)
        bounds = {k: max(bounds[k], free.bound_s((5, k))) for k in links}
        free.step(least + Work(macs_fp32=int(rng.integers(0, 10) * 10**8)), r)
        bounds = {k: max(bounds[k], free.bound_s((5, k))) for k in links}
        due = [incoming(1, r, free.now_s - rng.random()), incoming(9, r, free.now_s - 0.01)]
        free.listen(due)
        free.foresee(least, r + 1)
        for k in links:
            stamp = free.send((5, k), int(rng.integers(1, MEGABYTE)), r)
            assert stamp.first_bit_s >= bounds[k]
            assert stamp.first_bit_s >= before[k]
            assert stamp.bound_s >= stamp.arrival_s >= stamp.first_bit_s
            bounds[k], before[k] = stamp.bound_s, stamp.arrival_s
        keys = free.arrived(due)
        free.absorb(Work(macs_fp32=10**7 * len(keys)))


def test_time_bounds_hold_where_sums_of_periods_round_down():
    """Falling asleep just before the step or just in it: more work can end an ulp earlier."""
    rng, rounded = np.random.default_rng(1), 0
    attoseconds = profile(fp32_macs_per_s=1e18)
    for _ in range(400):
        period = rng.uniform(0.5, 1.0)
        awake = rng.uniform(0.05, period)
        cycle = DutyCycle(period_s=period, awake_s=awake, offset_s=0.0)
        left_s = rng.choice([1e-15, 1e-14, 1e-13])
        least = Work(macs_fp32=int(rng.uniform(5, 200) * 1e18))
        more = Work(macs_fp32=int(left_s * rng.uniform(0.5, 2) * 1e18))
        hardware = Hardware(
            profile=attoseconds, links={1: link()}, is_half_duplex=False, duty_cycle=cycle
        )
        free = FreeClock(Timeline(hardware, 1, 5, now_s=period + awake - left_s))
        rounded_up = cycle.after(free.now_s, attoseconds.compute_s(least))
        free.foresee(least, 0)
        bound_s = free.bound_s((5, 1))
        free.work_more(more)
        free.step(least, 0)
        rounded += free.now_s < rounded_up
        assert free.send((5, 1), MEGABYTE, 0).first_bit_s >= bound_s
    assert rounded > 0


@pytest.mark.parametrize("offset_s", [0.0, -1e6, 1e6])
def test_a_time_bound_of_one_that_sleeps_is_just_below_the_end_of_its_step(offset_s):
    """Sums of periods are blurred by some 1e-10 s a million seconds from where they begin."""
    free = clock({1: link()}, duty_cycle=DutyCycle(period_s=10.0, awake_s=2.0, offset_s=offset_s))
    free.foresee(SECOND * 3, 0)
    bound_s = free.bound_s((5, 1))
    free.step(SECOND * 3, 0)
    blur_s = np.spacing(abs(offset_s) + free.now_s)
    assert 4 * blur_s < free.now_s - bound_s < 1e-2


def test_a_reception_that_was_handed_out_is_forgotten():
    free = clock({}, is_half_duplex=True)
    free.step(SECOND * 2, 0)
    due = [incoming(1, 0, 0.0), incoming(8, 0, 1.5)]
    free.listen(due)
    assert free.arrived(due) == [(1, 5, 0)]
    assert free.state()["receptions"] == [[8, 5, 0, 2.5]], "has begun, and is not over"


def test_a_reception_that_has_begun_is_over_before_anything_is_sent():
    """Half duplex, steps end at 2 s. From 9: 1.5 to 3.5; ours 3.5 to 4.5; then from 1: 4.5 to 5."""
    free = clock({3: link()}, is_half_duplex=True)
    free.step(SECOND * 2, 0)
    due = [incoming(1, 0, 1.75, 0.5), incoming(9, 0, 1.5, 2.0)]
    free.listen(due)
    assert free.send((5, 3), MEGABYTE, 0).start_s == 3.5
    assert free.arrived(due) == []
    assert free.absorb(Work()) == RoundTime(end_s=2.0, compute_s=2.0, wait_s=0.0)
    free.step(SECOND * 3, 1)
    free.listen(due)
    assert free.arrived(due) == [(9, 5, 0), (1, 5, 0)]
    assert free.send((5, 3), MEGABYTE, 1).start_s == 5.0


def test_a_reception_begins_in_the_instant_of_sending_if_its_bit_came_before():
    """The radio is free at 2 s, when the step ends; a bit at 2 s itself counts by number."""
    for sender, starts_s in ((4, 3.0), (6, 2.0)):
        free = clock({3: link()}, is_half_duplex=True)
        free.step(SECOND * 2, 0)
        known = [incoming(sender, 0, 2.0)] if sender < 5 else []
        free.listen(known)
        assert free.send((5, 3), MEGABYTE, 0).start_s == starts_s
    free = clock({3: link()}, is_half_duplex=True)
    free.step(SECOND * 2, 0)
    due = [incoming(6, 0, 1.0), incoming(6, 1, 1.5)]
    free.listen(due)  # 1 to 2, 2 to 3
    assert free.send((5, 3), MEGABYTE, 0).start_s == 3.0
    assert free.arrived(due) == [], "from a higher number, at 2 s itself"


def test_at_the_end_a_device_waits_for_all_that_is_on_its_way():
    """Its last step ends at 1 s; messages come until 4.5 s; it sleeps from 2 s to 4 s."""
    cycle = DutyCycle(period_s=4.0, awake_s=2.0, offset_s=0.0)
    free = clock({}, duty_cycle=cycle)
    free.step(SECOND, 0)
    free.foresee(None, 1)
    due = [incoming(8, 0, 3.5), incoming(1, 0, 0.0)]
    assert free.await_rest(due) == [(1, 5, 0), (8, 5, 0)]
    # Awake without computing from 1 to 2 and from 4 to 4.5, then 1 s of absorbing.
    assert free.absorb(SECOND) == RoundTime(5.5, compute_s=2.0, wait_s=1.5, waited_for=8)


def test_at_the_end_a_half_duplex_radio_takes_one_message_after_the_other():
    """Ours leaves from 1 to 2; those of 1.0 and 1.25 s come from 2 to 3 and from 3 to 4."""
    free = clock({3: link()}, is_half_duplex=True)
    free.step(SECOND, 0)
    free.listen([])
    free.foresee(None, 1)
    free.send((5, 3), MEGABYTE, 0)
    assert free.await_rest([incoming(1, 0, 1.25), incoming(8, 0, 1.0)]) == [(8, 5, 0), (1, 5, 0)]
    assert free.absorb(Work()) == RoundTime(4.0, compute_s=1.0, wait_s=3.0, waited_for=1)


def test_energy_of_a_free_round_is_that_of_its_computing_and_its_bytes():
    """3 W for step and absorbing, no idle time, however long the messages take; 1 W at the end."""
    free = clock({3: link(latency_s=9.0)})
    meter = Meter(free, None)
    meter.step(SECOND, 0)
    free.foresee(SECOND, 1)
    meter.send((5, 3), MEGABYTE, 0)
    due = [incoming(1, 0, 0.0), incoming(8, 0, 2.0)]
    assert free.arrived(due) == [(1, 5, 0)]
    meter.end_round(free.absorb(SECOND), 2 * MEGABYTE, SECOND)
    costs = meter.settle()
    assert (costs.end_s, costs.compute_s, costs.wait_s) == (2.0, 2.0, 0.0)
    assert costs.energy.compute_j == 6.0
    assert costs.energy.idle_j == 0.0
    # 1e6 bytes sent at 1e-7 J, 2e6 received at 5e-8 J
    assert costs.energy.radio_j == pytest.approx(0.2, rel=1e-12)
    meter.step(Work(macs_fp32=10**8), 1)
    free.foresee(None, 2)
    assert free.await_rest(due[1:]) == [(8, 5, 0)]
    meter.end_round(free.absorb(Work()), 0)
    last = meter.settle()
    assert last.end_s == 3.0
    assert last.energy.idle_j == pytest.approx(3.0 - 2.1, rel=1e-12)
    assert meter.spent_j == costs.energy.total_j + last.energy.total_j


@pytest.mark.parametrize("is_half_duplex", [False, True])
def test_a_meter_goes_on_from_its_state_as_if_nothing_had_been(is_half_duplex):
    """State between two rounds through JSON, to the bit; messages not absorbed are known again."""

    def round_of(meter: Meter, r: int, due: list[Incoming]) -> tuple[object, ...]:
        free = meter.timeline
        meter.step(SECOND, r)
        free.listen(due)
        free.foresee(SECOND, r + 1)
        stamp = meter.send((5, 3), MEGABYTE // 3, r)
        keys = free.arrived(due)
        work = Work(macs_fp32=10**7 * len(keys))
        meter.end_round(free.absorb(work), MEGABYTE, work)
        due[:] = [message for message in due if message.key not in keys]
        return stamp, keys, meter.settle()

    def new() -> Meter:
        cycle = DutyCycle(period_s=0.7, awake_s=0.3, offset_s=0.1)
        links = {3: link(jitter_s=3.0, loss=0.1)}
        free = clock(links, is_half_duplex=is_half_duplex, duty_cycle=cycle, compute_jitter=0.1)
        return Meter(free, None)

    due = [incoming(1, q, 0.9 * q, 0.8) for q in range(9)]
    meter = new()
    for r in range(3):
        round_of(meter, r, due)
    state, left = json.dumps(meter.state(), allow_nan=False), list(due)
    restored = new()
    restored.restore(json.loads(state))
    for r in range(3, 6):
        assert round_of(meter, r, due) == round_of(restored, r, left)
    assert restored.spent_j == meter.spent_j
    assert restored.costliest_j == meter.costliest_j
    assert json.dumps(restored.state()) == json.dumps(meter.state())


def test_a_lockstep_meter_goes_on_from_its_state_as_if_nothing_had_been():
    def new() -> Meter:
        links = {3: link(jitter_s=3.0, loss=0.1)}
        hardware = Hardware(profile=profile(), links=links, is_half_duplex=True)
        return Meter(Timeline(hardware, 1, 5), None)

    def round_of(meter: Meter, r: int) -> tuple[object, ...]:
        meter.step(SECOND, r)
        stamp = meter.send((5, 3), MEGABYTE // 3, r)
        meter.end_round(meter.timeline.end_round([(1, incoming(1, r, r + 0.7).stamp)]), MEGABYTE)
        return stamp, meter.settle()

    meter, restored = new(), new()
    for r in range(3):
        round_of(meter, r)
    restored.restore(json.loads(json.dumps(meter.state(), allow_nan=False)))
    for r in range(3, 6):
        assert round_of(meter, r) == round_of(restored, r)
    assert (restored.spent_j, restored.costliest_j) == (meter.spent_j, meter.costliest_j)
