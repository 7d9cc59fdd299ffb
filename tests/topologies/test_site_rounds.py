"""Exchanges of sites and leaders: who sends when, counted out by hand and against plain loops."""

from __future__ import annotations

from itertools import pairwise

import pytest

from topologies import (
    SiteRounds,
    TopologyError,
    build_schedule,
    check_schedule,
    even_sites,
    first_exchange,
    peer_ranks,
)

SITES = (0, 0, 0, 1, 1, 2)  # leaders 0, 3 and 5


def rounds_of(n, every=1, sites=None, peers="all"):
    return SiteRounds(build_schedule("complete", n, seed=0), every, sites, peers)


def edges(schedule, round_index):
    return {
        (sender, receiver): weight
        for sender in range(schedule.num_devices)
        for receiver, weight in schedule.out_edges(sender, round_index)
    }


def test_sites_send_up_then_leaders_exchange_then_they_send_down():
    schedule = rounds_of(6, sites=SITES, peers="ring")
    assert schedule.exchange_every == 3
    up, among, down = (edges(schedule, r) for r in range(3))
    assert up == {(1, 0): 1 / 3, (2, 0): 1 / 3, (4, 3): 1 / 2}
    leaders = [0, 3, 5]
    assert among == {(i, j): pytest.approx(1 / 3) for i in leaders for j in leaders if i != j}
    assert down == {(0, 1): 1, (0, 2): 1, (3, 4): 1}
    assert edges(schedule, 3) == up


@pytest.mark.parametrize("every", [1, 2, 4])
@pytest.mark.parametrize("sites", [None, SITES])
def test_the_first_step_of_every_h_is_followed_by_the_exchanges(every, sites):
    schedule = rounds_of(6, every, sites)
    exchanges = 1 if sites is None else 3
    steps = 0
    for cycle in range(3):
        for place in range(exchanges + every - 1):
            r = cycle * schedule.exchange_every + place
            takes_step = place == 0 or place >= exchanges
            assert schedule.takes_step(0, r) == takes_step
            assert schedule.steps_before(r) == steps
            if takes_step:
                steps += 1
            assert bool(edges(schedule, r)) == (place < exchanges)
            if place == 0:  # Bagua counts steps from 1
                assert (steps - 1) % every == 0
    assert steps == 3 * every
    assert schedule.step_share == every / (every + exchanges - 1)


@pytest.mark.parametrize("peers", ["ring", "all", "shift_one"])
@pytest.mark.parametrize("sites", [None, (0, 0, 1, 1, 2, 3)])
@pytest.mark.parametrize("every", [1, 3])
def test_senders_mirror_receivers_and_edges_are_possible_ones(peers, sites, every):
    schedule = rounds_of(6, every, sites, peers)
    active = {}
    for r in range(2 * schedule.period):
        there = edges(schedule, r)
        for device in range(6):
            assert schedule.in_neighbors(device, r) == tuple(
                sorted(sender for sender, receiver in there if receiver == device)
            )
        for edge in there:
            active.setdefault(edge, []).append(r)
        assert schedule.graph(r).number_of_edges() == len(there)
    for sender in range(6):
        assert set(schedule.possible_receivers(sender)) == {k for i, k in active if i == sender}
        assert set(schedule.possible_senders(sender)) == {i for i, k in active if k == sender}
        for receiver in range(6):
            rounds = active.get((sender, receiver), [])
            for first in range(schedule.period):
                for end in range(first, first + schedule.period + 1):
                    is_active = any(first <= r < end for r in rounds)
                    assert schedule.is_ever_active(sender, receiver, first, end) == is_active
            assert schedule.is_ever_active(sender, receiver) == bool(rounds)
    check_schedule(schedule)


def test_columns_sum_to_one_without_sites():
    for n in (2, 3, 5, 8):
        for peers in ("ring", "all", "shift_one"):
            if peers == "shift_one" and n % 2:
                continue
            schedule = rounds_of(n, peers=peers)
            own = {"ring": 1 / 3, "all": 1 / n, "shift_one": 1 / 2}[peers]
            for device in range(n):
                sent = sum(weight for _, weight in schedule.out_edges(device, 0))
                assert sent + own == pytest.approx(1)


@pytest.mark.parametrize("n", [2, 4, 8, 10])
def test_shift_one_pairs_ranks_and_meets_each_of_the_other_half_in_turn(n):
    met = {rank: [] for rank in range(n)}
    for step in range(n // 2):
        for rank in range(n):
            (peer,) = peer_ranks("shift_one", rank, n, step)
            assert peer_ranks("shift_one", peer, n, step) == (rank,)
            met[rank].append(peer)
    for rank, peers in met.items():
        other = range(n // 2, n) if rank < n // 2 else range(n // 2)
        assert sorted(peers) == list(other)
    assert met[0] == list(range(n // 2, n))  # rank 0 begins with n / 2 and goes up


def test_two_on_a_ring_are_left_and_right_of_each_other_at_once():
    assert peer_ranks("ring", 0, 2, 0) == (1,)
    assert peer_ranks("ring", 0, 1, 0) == ()
    assert peer_ranks("ring", 0, 5, 0) == (4, 1)
    assert dict(rounds_of(2, peers="ring").out_edges(0, 0)) == {1: pytest.approx(2 / 3)}


def test_a_schedule_names_its_first_exchange():
    assert first_exchange(rounds_of(6, 4)) == 0
    assert first_exchange(rounds_of(6, 4, SITES)) == 1


def test_equal_sites_hold_consecutive_devices():
    assert even_sites(6, 2) == (0, 0, 0, 1, 1, 1)
    assert even_sites(3, 3) == (0, 1, 2)
    assert all(a <= b for a, b in pairwise(even_sites(12, 4)))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: even_sites(6, 4), "6 devices can't be divided among 4 equal sites"),
        (lambda: rounds_of(6, sites=(0, 1)), "sites of 2 devices; there are 6"),
        (lambda: rounds_of(2, sites=(0, 2)), "have the numbers 0, 2; must be 0, 1, 2"),
        (lambda: rounds_of(5, peers="shift_one"), "shift_one pairs devices; 5 are odd"),
        (lambda: rounds_of(6, sites=SITES, peers="shift_one"), "pairs sites; 3 are odd"),
        (
            lambda: SiteRounds(build_schedule("ring", 6, seed=0), 1, SITES, "ring"),
            "device 0 has to send to device 2, and there is no such link; use kind: complete",
        ),
        (
            lambda: SiteRounds(build_schedule("directed_ring", 6, seed=0), 1, None, "ring"),
            "device 0 has to send to device 5, and there is no such link; use kind: ring",
        ),
        (
            lambda: SiteRounds(build_schedule("random_matching", 6, seed=0), 1, None, "ring"),
            "choose a fixed graph",
        ),
        (lambda: SiteRounds(build_schedule("complete", 1, seed=0), 1, None, "ring"), "one device"),
    ],
)
def test_what_does_not_fit_is_refused(make, said):
    with pytest.raises(TopologyError, match=said):
        make()
