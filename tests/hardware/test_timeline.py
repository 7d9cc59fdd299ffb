"""The virtual clock: cases computed by hand, and against an independent event simulation."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from virtual_fleets import VirtualFleet, link, profile, run_timelines, simulate

from edgesim.hardware.duty_cycle import ALWAYS_AWAKE, DutyCycle
from edgesim.hardware.links import Link
from edgesim.hardware.timeline import Hardware, RoundTime, Timeline
from edgesim.hardware.work import Work
from topologies import graphs

SECOND = Work(macs_fp32=10**9)  # of `profile()`


def hardware(
    links: dict[int, Link], *, is_half_duplex: bool = False, **options: object
) -> Hardware:
    return Hardware(profile=profile(), links=links, is_half_duplex=is_half_duplex, **options)


def test_a_step_takes_the_longer_of_arithmetic_and_memory():
    """1e9 fp32 MAC at 1e9/s plus 4e9 int8 MAC at 4e9/s are 2 s; 3e12 bytes at 1e12/s are 3 s."""
    work = Work(macs_fp32=10**9, macs_int8=4 * 10**9)
    assert profile().compute_s(work) == 2.0
    assert profile().compute_s(work + Work(traffic_bytes=3 * 10**12)) == 3.0
    assert profile().compute_s(Work(macs_16bit=2 * 10**9)) == 1.0


def test_messages_leave_one_after_the_other_and_arrive_a_latency_later():
    """1 MB at 8 Mbit/s is 1 s on the air; the second message waits for the first."""
    clock = Timeline(hardware({1: link(latency_s=0.25), 2: link(latency_s=0.5)}), 1, 0)
    clock.step(SECOND, 0)
    first = clock.send((0, 1), 10**6, 0)
    second = clock.send((0, 2), 2 * 10**6, 0)
    assert (first.start_s, first.air_s, first.arrival_s) == (1.0, 1.0, 2.25)
    assert (second.start_s, second.air_s, second.arrival_s) == (2.0, 2.0, 4.5)
    assert second.sent_s == 4.0, "the last bit leaves before the latency"


def test_two_devices_of_unequal_speed_wait_for_each_other():
    """Steps of 1 s and 3 s, 1 s on the air, no latency: rounds take 4 s; the fast one waits 3 s."""
    fast = Timeline(hardware({1: link()}), 1, 0)
    slow = Timeline(hardware({0: link()}), 1, 1)
    for r in range(3):
        fast.step(SECOND, r)
        slow.step(SECOND * 3, r)
        to_slow, to_fast = fast.send((0, 1), 10**6, r), slow.send((1, 0), 10**6, r)
        fast_round = fast.end_round([(1, to_fast)])
        slow_round = slow.end_round([(0, to_slow)])
        # The slow device never waits: the other's message is there when its step ends.
        assert slow_round == RoundTime(end_s=3.0 * (r + 1), compute_s=3.0, wait_s=0.0)
        starts_s = 0.0 if r == 0 else 3.0 * r + 1.0
        ends_s = 3.0 * (r + 1) + 1.0
        wait_s = ends_s - starts_s - 1.0
        assert fast_round == RoundTime(ends_s, compute_s=1.0, wait_s=wait_s, waited_for=1)


def test_a_busy_uplink_delays_the_next_round_but_not_the_computing():
    """2 s on the air and 1 s of computing: the k-th message leaves at 1 + 2 k, steps go on."""
    clock = Timeline(hardware({1: link()}), 1, 0)
    for r in range(4):
        clock.step(SECOND, r)
        assert clock.send((0, 1), 2 * 10**6, r).start_s == 1.0 + 2.0 * r
        assert clock.end_round([]).end_s == 1.0 + r


def test_a_half_duplex_radio_sends_first_and_then_listens_to_one_at_a_time():
    """Both neighbours' messages could come at 0 and 0.5; our own 1 s of sending ends at 2."""
    radio = hardware({3: link()}, is_half_duplex=True)
    clock = Timeline(radio, 1, 0)
    early = Timeline(hardware({0: link()}), 1, 1)
    late = Timeline(hardware({0: link(latency_s=0.5)}), 1, 2)
    arrived = [(2, late.send((2, 0), 10**6, 0)), (1, early.send((1, 0), 2 * 10**6, 0))]
    clock.step(SECOND, 0)
    clock.send((0, 3), 10**6, 0)
    # free at 2; the first bit of device 1 came first: 2 to 4; then device 2: 4 to 5
    assert clock.end_round(arrived) == RoundTime(5.0, compute_s=1.0, wait_s=4.0, waited_for=2)
    clock.step(SECOND, 1)
    assert clock.send((0, 3), 10**6, 1).start_s == 6.0


def test_a_half_duplex_radio_that_is_free_receives_while_the_other_sends():
    clock = Timeline(hardware({}, is_half_duplex=True), 1, 0)
    sender = Timeline(hardware({0: link(latency_s=0.25)}), 1, 1)
    sender.step(SECOND * 2, 0)
    stamp = sender.send((1, 0), 10**6, 0)
    clock.step(SECOND, 0)
    assert clock.end_round([(1, stamp)]).end_s == stamp.arrival_s == 3.25


@pytest.mark.parametrize("is_half_duplex", [False, True])
def test_a_device_that_was_absent_has_not_waited_for_the_first_bit(is_half_duplex):
    """It steps for 1 s; the message of the fleet, which stands at 100 s, is on the air for 1 s."""
    own = hardware({0: link(), 1: link()}, is_half_duplex=is_half_duplex)
    other, back = Timeline(own, 1, 1), Timeline(own, 1, 0)
    back.be_absent(8)
    other.now_s = 100.0
    back.step(SECOND, 8)
    silent = back.end_round([])
    assert silent == RoundTime(end_s=1.0, compute_s=1.0, wait_s=0.0)
    resumed = Timeline(own, 1, 0)
    resumed.restore(back.state())
    for clock in (back, resumed):
        stamp = replace(other.send((1, 0), 10**6, 0), first_bit_s=100.0, arrival_s=101.0)
        clock.step(SECOND, 9)
        again = clock.end_round([(1, stamp)])
        assert again == RoundTime(end_s=101.0, compute_s=1.0, wait_s=1.0, waited_for=1)
        clock.step(SECOND, 10)
        later = clock.end_round([(1, replace(stamp, first_bit_s=110.0, arrival_s=111.0))])
        assert later.wait_s == 9.0, "now it is there, and waits"


def test_messages_of_one_link_do_not_overtake_each_other():
    """Jitter of up to 100 s on messages a second apart would reorder nearly all of them."""
    clock = Timeline(hardware({1: link(jitter_s=100.0)}), 1, 0)
    arrivals = []
    for r in range(50):
        clock.step(SECOND, r)
        arrivals.append(clock.send((0, 1), 1000, r).arrival_s)
        clock.end_round([])
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] - arrivals[0] > 10


def test_lost_packets_cost_bytes_and_time():
    """10.5 packets; with loss p each is sent 1/(1-p) times in the mean."""
    clock = Timeline(hardware({1: link(loss=0.2)}), 1, 0)
    stamps = [clock.send((0, 1), 10_500, sequence) for sequence in range(2000)]
    for stamp in stamps:
        assert stamp.air_s == pytest.approx((10_500 + stamp.lost_bytes) / 1e6, rel=1e-12)
        assert stamp.lost_bytes in {
            1000 * stamp.lost_packets - 500 * last for last in range(stamp.lost_packets + 1)
        }
    mean = np.mean([stamp.lost_bytes for stamp in stamps])
    # mean 0.25 x 10,500 = 2,625; standard deviation of a mean of 2,000: about 40
    assert abs(mean - 2625) < 200


def test_compute_times_scatter_with_median_one_and_do_not_depend_on_order():
    def factors(order: list[int]) -> dict[int, float]:
        clock = Timeline(hardware({}, compute_jitter=0.3), 5, 2)
        found = {}
        for r in order:
            clock.step(SECOND, r)
            found[r] = clock.end_round([]).compute_s
        return found

    forwards = factors(list(range(400)))
    assert forwards == factors(list(reversed(range(400))))
    logs = np.log(list(forwards.values()))
    assert abs(np.median(logs)) < 0.06
    assert abs(logs.std() - 0.3) < 0.04


def test_the_factor_of_a_step_is_drawn_by_seed_device_and_round():
    """StreamPurpose 10; exp(0.3 n) for a normal n. Numbers of purposes are part of every result."""
    for device, round_index in ((0, 0), (2, 0), (0, 7), (2, 7)):
        entropy = np.random.SeedSequence(5, spawn_key=(10, device, round_index))
        n = np.random.Generator(np.random.PCG64(entropy)).standard_normal()
        clock = Timeline(hardware({}, compute_jitter=0.3), 5, device)
        clock.step(SECOND, round_index)
        assert clock.end_round([]).compute_s == pytest.approx(np.exp(0.3 * n), rel=1e-12)


@pytest.mark.parametrize(
    ("period_s", "offset_s", "number"), [(0.84, -4.8, 1), (6.29, -2.3, 15), (10.0, 4.0, 3)]
)
def test_a_period_begins_with_its_first_instant(period_s, offset_s, number):
    """The quotient of the first two comes out below the number of the period."""
    cycle = DutyCycle(period_s=period_s, awake_s=period_s / 2, offset_s=offset_s)
    start_s = offset_s + number * period_s
    assert cycle.awakening(start_s) == start_s
    assert cycle.after(start_s, period_s / 4) == pytest.approx(start_s + period_s / 4)
    assert cycle.awake_between(start_s, start_s + period_s / 4) == pytest.approx(period_s / 4)


def test_work_goes_on_when_a_device_wakes_up():
    """Awake 2 s of 10 s: 5 s of work begun at 1 end at 1 + 1, 10..12, 20..22: at 22."""
    cycle = DutyCycle(period_s=10.0, awake_s=2.0, offset_s=0.0)
    assert cycle.after(1.0, 1.0) == 2.0
    assert cycle.after(1.0, 5.0) == 22.0
    assert cycle.after(1.0, 5.5) == 30.5
    assert cycle.after(5.0, 0.5) == 10.5
    assert cycle.awakening(3.0) == 10.0
    assert cycle.awakening(11.0) == 11.0
    assert cycle.awakening(2.0) == 10.0, "asleep from that instant on"
    assert cycle.awake_between(1.0, 22.0) == 5.0
    assert cycle.awake_between(3.0, 9.0) == 0.0
    shifted = DutyCycle(period_s=10.0, awake_s=2.0, offset_s=4.0)
    assert shifted.awakening(0.0) == 4.0
    assert shifted.awake_between(0.0, 5.0) == 1.0
    assert ALWAYS_AWAKE.after(0.1, 0.2) == 0.1 + 0.2


GRAPHS = {
    "ring": graphs.ring(5),
    "directed ring": graphs.directed_ring(6),
    "torus": graphs.torus(12),
    "complete": graphs.complete(4),
    "star": graphs.star(5),
    "digraph 1": graphs.erdos_renyi(8, probability=0.4, seed=1),
    "digraph 2": graphs.erdos_renyi(9, probability=0.3, seed=2),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("radio", ["full duplex", "half duplex", "mixed"])
@pytest.mark.parametrize("with_sleep", [False, True])
def test_clocks_equal_an_event_simulation(name: str, radio: str, with_sleep: bool):
    """Heterogeneous devices and links, losses, jitter: every round of every device."""
    key = [list(GRAPHS).index(name), len(radio), radio == "mixed", with_sleep]
    rng = np.random.default_rng(key)
    fleet = random_fleet(GRAPHS[name], radio, with_sleep, rng)
    np.testing.assert_allclose(run_timelines(fleet), simulate(fleet), rtol=1e-9, atol=0)


def random_fleet(
    graph: nx.DiGraph[int], radio: str, with_sleep: bool, rng: np.random.Generator
) -> VirtualFleet:
    rounds, num = 12, len(graph)
    devices = []
    for i in range(num):
        links = {
            j: link(
                bandwidth_bps=rng.uniform(1e6, 2e7),
                latency_s=rng.uniform(0, 0.5),
                jitter_s=rng.choice([0.0, 0.3]),
                loss=rng.choice([0.0, 0.1]),
            )
            for j in graph.successors(i)
        }
        cycle = ALWAYS_AWAKE
        if with_sleep and rng.random() < 0.6:
            period = rng.uniform(1, 6)
            awake = period * rng.uniform(0.2, 0.9)
            cycle = DutyCycle(period_s=period, awake_s=awake, offset_s=rng.uniform(0, period))
        devices.append(
            Hardware(
                profile=profile(fp32_macs_per_s=10 ** rng.uniform(8, 9.5)),
                links=links,
                is_half_duplex=radio == "half duplex" or (radio == "mixed" and i % 2 == 0),
                duty_cycle=cycle,
            )
        )
    keys = [(i, r) for i in range(num) for r in range(rounds)]
    macs = {key: int(rng.integers(10**7, 10**9)) for key in keys}
    sizes = {key: int(rng.integers(10**3, 10**6)) for key in keys}
    return VirtualFleet(graph, tuple(devices), rounds, macs, sizes)
