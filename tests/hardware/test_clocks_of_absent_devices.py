"""Devices that come back, alone or together, have not waited while they were away."""

from __future__ import annotations

import numpy as np
import pytest
from virtual_fleets import link, profile

from edgesim.hardware.timeline import OF_FLEET, Hardware, Timeline
from edgesim.hardware.work import Work

STEP = Work(macs_fp32=10**9)  # 1 s of `profile()`
MESSAGE = 10_000  # bytes, 10 ms on the air
ON_AIR_S = 0.3  # more than messages and their order in a ring can add to a round


def run(is_there, out_edges, slow=()):
    """Clocks of a fleet in lockstep; their waits, shape (rounds, devices), NaN where absent.

    Args:
        is_there: presence, shape (rounds, devices).
        out_edges: receivers of each device.
        slow: devices whose steps take 3 s.
    """
    rounds, n = is_there.shape
    clocks = [
        Timeline(
            Hardware(
                profile=profile(), links={j: link() for j in out_edges[i]}, is_half_duplex=False
            ),
            1,
            i,
        )
        for i in range(n)
    ]
    waits = np.full((rounds, n), np.nan)
    for r in range(rounds):
        inboxes = [[] for _ in clocks]
        for i, clock in enumerate(clocks):
            if not is_there[r, i]:
                clock.be_absent(r * n + i)
                continue
            clock.step(STEP * (3 if i in slow else 1), r)
            for j in out_edges[i]:
                if is_there[r, j]:
                    inboxes[j].append((i, clock.send((i, j), MESSAGE, r)))
        for i in np.flatnonzero(is_there[r]):
            waits[r, i] = clocks[i].end_round(inboxes[i]).wait_s
    return clocks, waits


def ring(n):
    return [((i - 1) % n, (i + 1) % n) for i in range(n)]


@pytest.mark.parametrize("away", [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4, 5]])
def test_neighbours_that_come_back_together_have_waited_for_nobody(away):
    is_there = np.ones((40, 7), bool)
    is_there[2:22, away] = False
    clocks, waits = run(is_there, ring(7))
    assert np.nanmax(waits) < ON_AIR_S
    assert all(clock.reckoning == OF_FLEET for clock in clocks)
    assert all(39 < clock.now_s < 40 + 40 * ON_AIR_S for clock in clocks)


def test_joint_joiners_have_waited_for_nobody():
    is_there = np.ones((60, 6), bool)
    is_there[:50, [1, 2]] = False
    clocks, waits = run(is_there, ring(6))
    assert np.nanmax(waits) < ON_AIR_S
    assert all(clock.now_s > 59 for clock in clocks)


@pytest.mark.parametrize("seed", range(20))
def test_dense_absences_of_equal_devices_are_no_waiting(seed):
    """Nobody may be there always, so that at times nobody has the fleet's time."""
    rng = np.random.default_rng(seed)
    n, rounds = int(rng.integers(3, 10)), 120
    changes = rng.random((rounds, n)) < rng.uniform(0.02, 0.5)
    is_there = np.logical_xor.accumulate(changes, axis=0)
    _, waits = run(is_there, ring(n))
    # Parts of the ring that were cut off for long differ by the messages that they sent meanwhile.
    assert np.nanmax(waits, initial=0.0) < 1


@pytest.mark.parametrize("seed", range(5))
def test_who_is_back_and_told_waits_for_a_slow_device(seed):
    """All talk with device 0 alone, whose steps take 3 s: 2 s a round, but not in the first."""
    rng = np.random.default_rng(seed)
    n, rounds = 6, 80
    is_there = np.logical_xor.accumulate(rng.random((rounds, n)) < 0.2, axis=0)
    is_there[:, 0] = True
    star = [range(1, n), *([0] for _ in range(1, n))]
    _, waits = run(is_there, star, slow={0})
    was_there = np.vstack([np.zeros(n, bool), is_there[:-1]])
    is_back = is_there & ~was_there
    is_back[0] = False  # who begins with the fleet was nowhere else
    stays = is_there & ~is_back
    assert np.nanmax(waits[is_back]) < ON_AIR_S
    fast = stays.copy()
    fast[:, 0] = False
    assert (abs(waits[fast] - 2) < ON_AIR_S).all()
    assert np.nanmax(waits[:, 0]) < ON_AIR_S


@pytest.mark.parametrize("seed", range(20))
def test_where_nobody_has_the_fleets_time_waits_are_counted_again(seed):
    """All come back in one round, from as many times, and stay; steps differ, so that they wait."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 9))
    edges = [[(i + 1) % n] for i in range(n)]
    steps = rng.uniform(1, 3, (150, n))
    clocks = [
        Timeline(
            Hardware(profile=profile(), links={edges[i][0]: link()}, is_half_duplex=False), 1, i
        )
        for i in range(n)
    ]
    for i, clock in enumerate(clocks):
        clock.now_s = rng.uniform(0, 50)
        clock.be_absent(int(rng.integers(100)) * n + i)
    for r in range(150):
        for i, clock in enumerate(clocks):
            clock.step(Work(macs_fp32=int(1e9 * steps[r, i])), r)
        ends = [clock.now_s for clock in clocks]
        stamps = [clock.send((i, edges[i][0]), MESSAGE, r) for i, clock in enumerate(clocks)]
        for i, clock in enumerate(clocks):
            sender = (i - 1) % n
            wait_s = clock.end_round([(sender, stamps[sender])]).wait_s
            if r >= 60:
                assert wait_s == pytest.approx(max(stamps[sender].arrival_s - ends[i], 0))


def test_devices_that_nobody_tells_the_time_wait_for_each_other():
    """Two that came back at 10 s and 50 s are alone: the first round tells, then both are there."""
    clocks = [
        Timeline(Hardware(profile=profile(), links={1 - i: link()}, is_half_duplex=False), 1, i)
        for i in (0, 1)
    ]
    for clock, now_s, reckoning in zip(clocks, (10.0, 50.0), (7, 3), strict=True):
        clock.now_s = now_s
        clock.be_absent(reckoning)
    waits = []
    for r in range(3):
        for i, clock in enumerate(clocks):
            clock.step(STEP * (1 + 2 * i), r)
        first, second = (clocks[i].send((i, 1 - i), MESSAGE, r) for i in (0, 1))
        waits.append((clocks[0].end_round([(1, second)]), clocks[1].end_round([(0, first)])))
    assert [round(mine.wait_s, 3) for mine, _ in waits] == [0.01, 2.0, 2.0]
    assert all(theirs.wait_s == 0.0 for _, theirs in waits)
    assert [clock.reckoning for clock in clocks] == [3, 3]
