"""What a device's rounds take, and whether its battery lasts, against sums by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from virtual_fleets import link, profile

from edgesim.hardware.energy_tables import EnergyTable
from edgesim.hardware.free_clock import FreeClock, Incoming
from edgesim.hardware.links import pass_over
from edgesim.hardware.meter import Meter
from edgesim.hardware.timeline import Hardware, RoundTime, Timeline
from edgesim.hardware.work import Work

SECOND, HALF_SECOND = Work(macs_fp32=10**9), Work(macs_fp32=5 * 10**8)  # of the device below
MB = 2**20  # as long on the air, and it costs the sender 1 J and the receiver 1/2 J
# All numbers are sums of powers of two, so that sums of them are exact.
POWERS = replace(
    profile(),
    idle_power_w=1.0,
    active_power_w=4.0,
    radio=replace(profile().radio, send_j_per_byte=2.0**-20, receive_j_per_byte=2.0**-21),
)
PRICES = EnergyTable(
    name="prices",
    citation="none",
    int8_mul_pj=0.0,
    int8_add_pj=0.0,
    int32_add_pj=0.0,
    fp16_mul_pj=0.0,
    fp16_add_pj=0.0,
    fp32_mul_pj=1500.0,
    fp32_add_pj=500.0,  # 2 nJ for a multiply-accumulate: 2 J for `SECOND`
    dram_pj_per_byte=0.0,
    sram_pj_per_byte=0.0,
)


def meter(
    battery_j: float | None = None,
    *,
    worst_loss: float = 0.0,
    loss: float = 0.0,
    table: EnergyTable | None = None,
    is_free: bool = False,
) -> Meter:
    device = Hardware(
        profile=replace(POWERS, battery_j=battery_j),
        links={1: link(bandwidth_bps=8.0 * MB, loss=loss), 2: link(bandwidth_bps=8.0 * MB)},
        is_half_duplex=False,
        worst_loss=worst_loss,
    )
    clock = Timeline(device, 1, 0)
    return Meter(FreeClock(clock) if is_free else clock, table)


def do_round(one: Meter, work: Work = SECOND, *, sent: int = 0, received: int = 0) -> None:
    """Up to its end, not settled; what is received is there already."""
    one.step(work, 0)
    if sent:
        one.send((0, 1), sent, 0)
    one.end_round(one.timeline.end_round([]), received)


def test_a_round_costs_its_computing_its_waiting_and_its_messages():
    """1 s of step at 4 W; then a message that comes 2 s later, at 1 W; 3 MB sent, 2 MB received."""
    one, sender = meter(), meter()
    sender.step(SECOND * 2, 0)
    stamp = sender.send((0, 1), MB, 0)  # on the air from 2 s to 3 s
    one.step(SECOND, 0)
    one.send((0, 1), MB, 0)
    one.send((0, 2), 2 * MB, 0)
    one.end_round(one.timeline.end_round([(1, stamp)]), 2 * MB)
    costs = one.settle()
    assert (costs.end_s, costs.compute_s, costs.wait_s) == (3.0, 1.0, 2.0)
    assert (costs.lost_packets, costs.lost_bytes) == (0, 0)
    energy = costs.energy
    assert (energy.compute_j, energy.idle_j, energy.radio_j) == (4.0, 2.0, 3.0 + 1.0)
    assert one.spent_j == energy.total_j == 10.0
    assert one.now_s == 3.0
    do_round(one)
    assert one.settle().energy.total_j == 4.0, "nothing is left of the round before"
    assert one.spent_j == 14.0


def test_packets_that_were_sent_again_are_counted_and_paid_for():
    one = meter(loss=0.5)
    one.step(SECOND, 0)
    names = {"seed": 1, "sender": 0, "receiver": 1}
    lost = [
        pass_over(one.timeline.hardware.links[1], 20_000, sequence=k, **names) for k in range(3)
    ]
    for sequence in range(3):
        one.send((0, 1), 20_000, sequence)
    one.end_round(one.timeline.end_round([]), 0)
    costs = one.settle()
    assert costs.lost_packets == sum(passage.lost_packets for passage in lost) > 10
    assert costs.lost_bytes == sum(passage.lost_bytes for passage in lost) > 10_000
    assert costs.energy.radio_j == pytest.approx((60_000 + costs.lost_bytes) / MB)
    assert costs.columns["retransmissions"] == costs.lost_packets
    assert costs.columns["retransmitted_bytes"] == costs.lost_bytes


def test_work_after_the_messages_of_a_round_is_part_of_it():
    """As of leaving: 2 s more of computing, at prices 4 J, and the end of the round 2 s later."""
    for table, compute_j in ((None, 4.0 * 3), (PRICES, 2.0 * 3)):
        one = meter(table=table)
        do_round(one)
        one.work_more(SECOND * 2)
        costs = one.settle()
        assert (costs.end_s, costs.compute_s, costs.wait_s) == (3.0, 3.0, 0.0)
        assert costs.energy.compute_j == pytest.approx(compute_j, rel=1e-12)


@pytest.mark.parametrize(("table", "compute_j"), [(None, 4.0 * 3), (PRICES, 2.0 * 3)])
def test_at_free_pace_a_round_has_the_work_of_absorbing_too(table, compute_j):
    one = meter(table=table, is_free=True)
    sender = meter(is_free=True)
    sender.step(SECOND, 0)
    stamp = sender.send((0, 1), MB // 2, 0)
    one.step(SECOND * 2, 0)
    assert one.timeline.arrived([Incoming((0, 1, 0), stamp)]) == [(0, 1, 0)]
    one.end_round(one.timeline.absorb(SECOND), MB // 2, SECOND)
    costs = one.settle()
    assert (costs.end_s, costs.compute_s, costs.wait_s) == (3.0, 3.0, 0.0)
    assert costs.energy.compute_j == pytest.approx(compute_j, rel=1e-12)
    assert costs.energy.radio_j == 0.25


@pytest.mark.parametrize("is_free", [False, True])
def test_a_device_that_ends_is_awake_until_its_radio_has_sent_all(is_free):
    """A step of 1 s, then 3 MB on the air: 3 s at 1 W beside the radio's energy."""
    one = meter(is_free=is_free)
    one.step(SECOND, 0)
    one.send((0, 1), MB, 0)
    clock = one.timeline
    one.end_round(clock.absorb(Work()) if is_free else clock.end_round([]), 0)
    one.send((0, 2), 2 * MB, 0)
    one.await_radio()
    costs = one.settle()
    assert (costs.end_s, costs.compute_s, costs.wait_s) == (4.0, 1.0, 3.0)
    assert costs.energy.idle_j == 3.0
    one.begin_round(Work())
    one.end_round(RoundTime(clock.now_s, 0.0, 0.0), 0)
    one.await_radio()  # nothing was sent
    assert one.settle().wait_s == 0.0


@pytest.mark.parametrize("worst_loss", [0.0, 0.5, 0.75])
def test_a_battery_is_kept_for_last_messages_and_the_packets_of_them_that_get_lost(worst_loss):
    """With loss p, each packet is sent 1 / (1 - p) times in the mean; 1 J and 1 s at 1 W a MB."""
    round_j = 4.0 + 1.0
    need_j = round_j + 2 * round_j + 16 * 2 / (1 - worst_loss)  # this one, two more, the messages
    for battery_j, is_enough in ((need_j, True), (need_j - 2.0**-20, False)):
        one = meter(battery_j, worst_loss=worst_loss)
        do_round(one, sent=MB)
        assert one.lasts(2, 0, last_bytes=16 * MB) is is_enough


def test_what_is_kept_are_rounds_like_the_costliest_so_far_and_silent_ones_likewise():
    """Rounds of 8 + 1, 4, 2 and 4 + 1/2 J; those of 4 and 2 J are without messages."""
    need_j = 9.0 + 4.0 + 2.0 + 4.5 + 3 * 9.0 + 2 * 4.0
    for battery_j, is_enough in ((need_j, True), (need_j - 2.0**-20, False)):
        one = meter(battery_j)
        for work, sent, received in ((SECOND * 2, MB, 0), (SECOND, 0, 0), (HALF_SECOND, 0, 0)):
            do_round(one, work, sent=sent, received=received)
            one.settle()
        do_round(one, SECOND, received=MB)
        assert one.lasts(3, 2, last_bytes=0) is is_enough


def test_the_round_that_has_just_ended_may_be_the_costliest_with_messages_or_without():
    need_j = 4.0 + 8.0 + 2 * 8.0 + 1 * 8.0
    for battery_j, is_enough in ((need_j, True), (need_j - 2.0**-20, False)):
        one = meter(battery_j)
        do_round(one)
        one.settle()
        do_round(one, SECOND * 2)
        assert one.lasts(2, 1, last_bytes=0) is is_enough


def test_nothing_is_kept_for_silent_rounds_before_there_was_one():
    one = meter(5.0 + 5.0)
    do_round(one, sent=MB)
    assert one.lasts(1, 10, last_bytes=0)


def test_a_device_that_is_plugged_in_lasts_for_ever():
    one = meter()
    do_round(one)
    assert one.lasts(10**9, 10**9, last_bytes=10**18)


def test_a_meter_goes_on_from_what_it_knew():
    """Clock, energy spent and the costliest rounds: the battery then lasts for as long."""
    one = meter(100.0)
    do_round(one, SECOND * 2, sent=MB)
    one.settle()
    do_round(one, SECOND)
    one.settle()
    again = meter(100.0)
    again.restore(one.state())
    assert (again.now_s, again.spent_j) == (3.0, 9.0 + 4.0)
    assert (again.costliest_j, again.costliest_silent_j) == (9.0, 4.0)
    assert again.state() == one.state()
