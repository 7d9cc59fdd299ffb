"""Free pace is exact: whatever the network does, a fleet does what one event loop would."""

from __future__ import annotations

import asyncio
from asyncio import create_task
from collections import Counter
from math import inf

import numpy as np
import pytest
from free_fleets import PAYLOAD, Disorder, DisorderlyFleet, StuckError, is_drained
from free_loop import EventLoop, FreeFleet
from hypothesis import given
from hypothesis import strategies as st

from edgesim.compression.wire import Message
from edgesim.device.mail import Arrival, LifeSign, TimeBound
from edgesim.fleet.host.reliable_sender import ReliableSender
from edgesim.fleet.transport.time_bounds import BrokenBoundError, Inbox
from edgesim.hardware.duty_cycle import ALWAYS_AWAKE, DutyCycle
from edgesim.hardware.links import Link
from edgesim.hardware.profiles import DeviceProfile, Radio
from edgesim.hardware.timeline import Hardware, Stamp

RADIO = Radio(
    name="test radio",
    bandwidth_bps=8e6,
    send_j_per_byte=1e-7,
    receive_j_per_byte=5e-8,
    is_half_duplex=False,
)
NO_TIME_BPS = 1e40  # a message of this bandwidth takes so little time that no clock moves


def profile(macs_per_s: float) -> DeviceProfile:
    return DeviceProfile(
        name="test",
        description="a device for tests",
        int8_macs_per_s=macs_per_s,
        bits16_macs_per_s=macs_per_s,
        fp32_macs_per_s=macs_per_s,
        memory_bytes=2**30,
        memory_bandwidth=1e12,
        idle_power_w=1.0,
        active_power_w=3.0,
        radio=RADIO,
    )


def random_fleet(seed: int, duplex: str, *, equal_times: bool, sleeps: bool) -> FreeFleet:
    """Mixed speeds and links on changing graphs; `equal_times`: all times are quarter seconds."""
    rng = np.random.default_rng([seed, len(duplex), equal_times, sleeps])

    def one_of(*values: float) -> float:
        return float(rng.choice(values))

    num = int(rng.integers(2, 7))
    rounds = tuple(int(r) for r in rng.integers(3, 10, num))
    density = one_of(0.3, 0.6, 1.0)
    possible = rng.random((num, num)) < one_of(0.4, 1.0)
    keys = [(i, r) for i in range(num) for r in range(rounds[i])]

    def link() -> Link:
        if equal_times:
            return Link(
                bandwidth_bps=one_of(8e6, NO_TIME_BPS),
                latency_s=one_of(0.0, 0.0, 0.25, 1.0),
                jitter_s=0.0,
                loss=0.0,
                packet_bytes=1000,
            )
        return Link(
            bandwidth_bps=10 ** rng.uniform(5.5, 8),
            latency_s=one_of(0.0, rng.uniform(0, 1)),
            jitter_s=one_of(0.0, 2.0),
            loss=one_of(0.0, 0.2),
            packet_bytes=100_000,
        )

    def cycle() -> DutyCycle:
        if not sleeps or rng.random() < 0.4:
            return ALWAYS_AWAKE
        if equal_times:
            return DutyCycle(period_s=2.0, awake_s=0.75, offset_s=one_of(0.0, 0.5))
        period = rng.uniform(0.5, 5)
        return DutyCycle(
            period_s=period, awake_s=period * rng.uniform(0.2, 0.9), offset_s=rng.uniform(-9, 9)
        )

    hardware = tuple(
        Hardware(
            profile=profile(one_of(1e9, 1e9, 2e9, 1e8)),
            links={k: link() for k in range(num) if k != i},
            is_half_duplex=duplex == "half" or (duplex == "mixed" and i % 2 == 0),
            compute_jitter=0.0 if equal_times else one_of(0.0, 0.3),
            duty_cycle=cycle(),
        )
        for i in range(num)
    )
    return FreeFleet(
        hardware=hardware,
        receivers={
            (i, r): tuple(
                k for k in range(num) if k != i and possible[i, k] and rng.random() < density
            )
            for i, r in keys
        },
        rounds=rounds,
        macs={
            key: int(rng.choice([0, 250, 500, 500]) if equal_times else rng.integers(1, 999))
            * 10**6
            for key in keys
        },
        message_bytes={
            key: int(rng.choice([250_000, 500_000]) if equal_times else rng.integers(1, 10**6))
            for key in keys
        },
        absorb_macs=int(rng.choice([0, 250_000_000] if equal_times else [0, 12_345_678])),
        seed=seed,
        horizon_s=one_of(inf, 4.0),
    )


@pytest.mark.parametrize("sleeps", [False, True], ids=["awake", "sleeping"])
@pytest.mark.parametrize("equal_times", [False, True], ids=["any times", "equal times"])
@pytest.mark.parametrize("duplex", ["full", "half", "mixed"])
def test_a_disorderly_fleet_does_what_one_event_loop_does(duplex, equal_times, sleeps):
    """Delays, reordering, repetition, small windows: no bit of any round changes, nobody is stuck.

    25 fleets each, 300 in all; every round's times, messages, their order and their sum.
    """
    seen = Counter()
    for seed in range(25):
        fleet = random_fleet(seed, duplex, equal_times=equal_times, sleeps=sleeps)
        want = EventLoop(fleet).run()
        run = DisorderlyFleet(fleet, Disorder(seed, window=1 + seed % 3, slots=1 + seed % 2))
        assert run.run() == want, f"seed {seed}"
        assert all(is_drained(node.inbox) for node in run.nodes)
        seen += activity(fleet, want)
        seen["turned away"] += run.turned_away
    # The fleets do what they are drawn for.
    assert seen["messages"] > 500
    assert seen["absorbed several"] > 50
    assert seen["absorbed none"] > 50
    assert seen["turned away"] > 0
    if equal_times:
        assert seen["arrived in the instant of another's step end"] > 20


def activity(fleet, rounds_of_devices):
    seen = Counter()
    ends = {r.step_end_s for rounds in rounds_of_devices for r in rounds}
    for rounds in rounds_of_devices:
        for r in rounds:
            seen["messages"] += len(r.sent)
            seen["absorbed none"] += not r.absorbed
            seen["absorbed several"] += len(r.absorbed) > 1
            seen["arrived in the instant of another's step end"] += sum(
                arrival_s in ends for _, _, arrival_s, _ in r.sent
            )
    return seen


@pytest.mark.parametrize("duplex", ["full", "half", "mixed"])
def test_devices_that_crash_and_go_on_from_a_checkpoint_do_the_same(duplex):
    crashes = 0
    for seed in range(30):
        fleet = random_fleet(seed, duplex, equal_times=seed % 2 == 0, sleeps=seed % 3 == 0)
        want = EventLoop(fleet).run()
        run = DisorderlyFleet(fleet, Disorder(seed, window=1 + seed % 2, slots=1, crashes=5))
        assert run.run() == want, f"seed {seed}"
        crashes += 5 - run.crashes
    assert crashes > 50


def test_without_time_bounds_from_waiting_devices_half_duplex_fleets_get_stuck():
    """The test above can fail: two radios that listen first wait for each other."""
    fleet = FreeFleet(
        hardware=tuple(
            Hardware(
                profile=profile(1e9),
                links={
                    1 - i: Link(
                        bandwidth_bps=8e6, latency_s=0.0, jitter_s=0.0, loss=0.0, packet_bytes=1000
                    )
                },
                is_half_duplex=True,
            )
            for i in range(2)
        ),
        receivers={(i, r): (1 - i,) for i in range(2) for r in range(3)},
        rounds=(3, 3),
        macs={(i, r): 10**9 for i in range(2) for r in range(3)},
        message_bytes={(i, r): 1000 for i in range(2) for r in range(3)},
        absorb_macs=0,
        seed=1,
    )
    run = DisorderlyFleet(fleet, Disorder(1))
    for node in run.nodes:
        node.announce = lambda edges, alive_until_s: None
    with pytest.raises(StuckError, match=r"\(1, 0\)"):
        run.run()


def arrival(sender: int, sequence: int, first_bit_s: float, bound_s: float = 0.0) -> Arrival:
    stamp = Stamp(first_bit_s, first_bit_s, first_bit_s + 1, 1.0, 0, 0, first_bit_s, bound_s)
    return Arrival(Message("choco", sender, 9, sequence, 0, 0.5, 1.0, PAYLOAD), stamp)


def test_a_time_bound_counts_when_all_messages_before_it_are_here():
    box = Inbox(9, [(1, 9)])
    box.advance(3.0)
    assert box.take_bound(TimeBound((1, 9), 2, 10.0))
    assert box.put(arrival(1, 1, first_bit_s=2.0, bound_s=5.0))
    assert not box.is_ready()
    assert box.waiting_for() == [(1, 9)]
    assert box.put(arrival(1, 0, first_bit_s=1.0, bound_s=2.0))
    assert box.is_ready()
    assert [m.key for m in box.within_reach()] == [(1, 9, 0), (1, 9, 1)]
    assert not box.take_bound(TimeBound((1, 9), 1, 7.0)), "less than is known"
    assert not box.take_bound(TimeBound((1, 9), 2, 10.0)), "the bound of before still counts"
    assert box.take_bound(TimeBound((1, 9), 2, 10.5))


def test_time_begins_at_zero():
    """A time bound of 0.5 s keeps no device waiting that has not yet computed."""
    box = Inbox(9, [(1, 9)])
    box.take_bound(TimeBound((1, 9), 0, 0.5))
    assert box.is_ready()


def test_equal_times_are_decided_by_the_devices_numbers():
    """A message at t from a lower number is in time for t, one from a higher number is not."""
    for sender, is_in_time in ((1, True), (12, False)):
        box = Inbox(9, [(sender, 9)])
        box.advance(3.0)
        box.take_bound(TimeBound((sender, 9), 0, 3.0))
        assert box.is_ready() is not is_in_time
        box.put(arrival(sender, 0, first_bit_s=3.0, bound_s=8.0))
        assert [m.key for m in box.within_reach()] == [(sender, 9, 0)] * is_in_time


def test_a_device_that_ends_waits_until_nobody_will_send():
    box = Inbox(9, [(1, 9), (12, 9)])
    box.advance(inf)
    box.put(arrival(12, 0, first_bit_s=50.0, bound_s=inf))
    assert not box.is_ready()
    assert box.waiting_for() == [(1, 9)]
    box.take_bound(TimeBound((1, 9), 0, inf))
    assert box.is_ready()
    assert not is_drained(box)
    box.take([m.key for m in box.within_reach()])
    assert is_drained(box)


def test_a_message_that_comes_again_still_brings_its_time_bound():
    """A device that has restarted asks for what it lacks, and has lost all time bounds."""
    box = Inbox(9, [(1, 9)])
    box.take_over({(1, 9): 3})
    box.advance(5.0)
    assert not box.is_ready()
    assert box.put(arrival(1, 2, first_bit_s=4.0, bound_s=6.0))
    assert box.is_ready()
    assert box.within_reach() == []
    assert not box.put(arrival(1, 2, first_bit_s=4.0, bound_s=6.0))


def test_a_message_before_its_time_bound_is_told():
    box = Inbox(9, [(1, 9)])
    box.take_bound(TimeBound((1, 9), 0, 4.0))
    with pytest.raises(BrokenBoundError, match=r"message 0 of edge 1 -> 9 .* 4.0 s"):
        box.put(arrival(1, 0, first_bit_s=3.0))


def test_a_time_bound_holds_to_the_last_bit_of_its_time():
    """Times are the same floats at both ends, so the smallest deviation breaks the time bound."""
    box = Inbox(9, [(1, 9)])
    box.take_bound(TimeBound((1, 9), 0, 4.0))
    with pytest.raises(BrokenBoundError):
        box.put(arrival(1, 0, first_bit_s=float(np.nextafter(4.0, 0.0))))
    box = Inbox(9, [(1, 9)])
    box.take_bound(TimeBound((1, 9), 0, 4.0))
    assert box.put(arrival(1, 0, first_bit_s=4.0))


def test_a_window_turns_away_senders_that_are_ahead_and_nobody_else():
    box = Inbox(9, [(1, 9), (2, 9)])
    box.advance(3.0)
    box.take_bound(TimeBound((1, 9), 0, 4.0))
    late = arrival(1, 2, first_bit_s=7.0).stamp
    assert box.has_room((1, 9), 1, late, window=2)
    assert not box.has_room((1, 9), 2, late, window=2)
    behind = arrival(1, 2, first_bit_s=3.0).stamp
    assert box.has_room((1, 9), 2, behind, window=2), "its sender may be the last of all"
    assert box.has_room((2, 9), 2, late, window=2), "this edge is waited for"


@given(st.permutations([(s, q) for s in (1, 2) for q in range(4)] * 2))
def test_any_order_and_repetition_gives_each_message_once(order):
    """Message q of sender s reaches the device at 10 q + s; its time bound is that of the next."""
    box, taken = Inbox(9, [(1, 9), (2, 9)]), []
    box.advance(25.0)
    came = set()
    for sender, sequence in order:
        at_s = 10.0 * sequence + sender
        is_new = (sender, sequence) not in came
        assert box.put(arrival(sender, sequence, at_s, at_s + 10)) is is_new
        came.add((sender, sequence))
        if box.is_ready():
            keys = [m.key for m in box.within_reach()]
            taken += [(a.message.sender, a.message.sequence) for a in box.take(keys)]
    assert taken == [(s, q) for q in range(3) for s in (1, 2)]
    assert box.next_sequences == {(1, 9): 3, (2, 9): 3}
    assert len(box) == 2


def test_a_successor_takes_over_edges_with_what_came_for_them_before_it_knew():
    """Mail for an address that is not the device's is kept, and counts once it is."""
    box = Inbox(9, [(1, 9)])
    box.take_bound(TimeBound((1, 9), 0, inf))
    for sequence in (3, 4, 5):
        stamp = arrival(1, sequence, 1.0, bound_s=2.0 if sequence == 5 else 1.0).stamp
        message = Message("choco", 1, 7, sequence, 0, 0.5, 1.0, PAYLOAD)
        assert box.has_room((1, 7), sequence, stamp, window=1)
        box.put(Arrival(message, stamp))
    box.advance(1.5)
    assert box.is_ready()
    assert box.within_reach() == []
    box.take_over({(1, 7): 4, (2, 7): 0})
    assert box.waiting_for() == [(2, 7)]
    box.take_bound(TimeBound((2, 7), 0, 2.0))
    assert [m.key for m in box.within_reach()] == [(1, 7, 4), (1, 7, 5)]
    assert [a.message.sequence for a in box.empty()] == [4, 5]


def test_a_time_bound_is_said_again_while_an_answer_of_the_receivers_former_life_is_late():
    class Late:
        def __init__(self):
            self.said, self.answer = [], asyncio.Event()

        async def take_announcement(self, announcement):
            self.said.append(announcement)
            await self.answer.wait()

    async def conduct():
        network, tasks = Late(), []
        sender = ReliableSender(network)
        sender.announce([TimeBound((0, 1), 0, 1.5)], lambda work: tasks.append(create_task(work)))
        await asyncio.sleep(0)
        assert len(network.said) == 1, "to a receiver that dies before its answer is here"
        sender.announce_again((0, 1), lambda work: tasks.append(create_task(work)))
        network.answer.set()
        await asyncio.gather(*tasks)
        assert network.said == [TimeBound((0, 1), 0, 1.5)] * 2

    asyncio.run(conduct())


@pytest.mark.parametrize(
    ("announcement", "is_repeated"),
    [
        (TimeBound((0, 1), 3, 0.0), False),  # as of messages in lockstep, whose receivers take none
        (TimeBound((0, 1), 3, 0.5), True),
        (LifeSign((0, 1), 0.0, has_died=False), False),
        (LifeSign((0, 1), 0.5, has_died=False), True),
        (LifeSign((0, 1), 0.0, has_died=True), True),
    ],
)
def test_what_says_nothing_is_not_repeated(announcement, is_repeated):
    class Heard:
        def __init__(self):
            self.said = []

        async def take_announcement(self, announcement):
            self.said.append(announcement)

    async def conduct():
        network, tasks = Heard(), []
        sender = ReliableSender(network)
        for say in (sender.announce, sender.announce_again):
            what = [announcement] if say == sender.announce else (0, 1)
            say(what, lambda work: tasks.append(create_task(work)))
            await asyncio.gather(*tasks)
        assert network.said == [announcement] * (1 + is_repeated)

    asyncio.run(conduct())
