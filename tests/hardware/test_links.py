"""What a link does to a message: losses and jitter are drawn for each message of each edge."""

from __future__ import annotations

import numpy as np
import pytest
from virtual_fleets import link

from edgesim.hardware.links import Passage, pass_over

NAME = {"seed": 1, "sender": 2, "receiver": 3, "sequence": 4}


@pytest.mark.parametrize("differs", NAME)
def test_every_message_of_every_edge_has_losses_and_jitter_of_its_own(differs):
    """500 packets of which half get lost: two draws hardly agree."""
    noisy = link(loss=0.5, jitter_s=1.0)
    one = pass_over(noisy, 500_000, **NAME)
    other = pass_over(noisy, 500_000, **{**NAME, differs: 9})
    assert one.delay_s != other.delay_s
    assert one.lost_packets != other.lost_packets


def test_jitter_and_losses_are_drawn_by_seed_and_message():
    """StreamPurpose 9; then jitter, losses of whole packets, tries of the rest, in this order."""
    entropy = np.random.SeedSequence(1, spawn_key=(9, 2, 4, 3))
    rng = np.random.Generator(np.random.PCG64(entropy))
    jitter_s, lost_whole = 2.0 * rng.random(), rng.negative_binomial(500, 0.5)
    lost_rest = rng.geometric(0.5) - 1
    passage = pass_over(link(loss=0.5, jitter_s=2.0, latency_s=1.0), 500_100, **NAME)
    assert passage.delay_s == 1.0 + jitter_s
    assert passage.lost_packets == lost_whole + lost_rest
    assert passage.lost_bytes == 1000 * lost_whole + 100 * lost_rest


def test_the_same_message_always_has_the_same_passage():
    noisy = link(loss=0.5, jitter_s=1.0)
    assert pass_over(noisy, 500_000, **NAME) == pass_over(noisy, 500_000, **NAME)


def test_a_link_without_loss_and_jitter_takes_air_time_and_latency():
    """2,500 bytes at 8 Mbit/s are 2.5 ms."""
    passage = pass_over(link(latency_s=0.25), 2500, **NAME)
    assert passage == Passage(air_s=2500 * 8 / 8e6, delay_s=0.25, lost_packets=0, lost_bytes=0)


def test_jitter_is_spread_evenly_beyond_the_latency():
    """Mean 0.5 + 0.3 / 2, standard deviation of a mean of 2,000: 0.3 / sqrt(12 x 2,000)."""
    delays = [
        pass_over(link(latency_s=0.5, jitter_s=0.3), 10, **{**NAME, "sequence": k}).delay_s
        for k in range(2000)
    ]
    assert 0.5 <= min(delays) < 0.51
    assert 0.79 < max(delays) <= 0.8
    assert np.mean(delays) == pytest.approx(0.65, abs=5 * 0.3 / (12 * 2000) ** 0.5)


@pytest.mark.parametrize(("num_bytes", "sizes"), [(3000, (1000,)), (400, (400,)), (0, ())])
def test_lost_bytes_are_those_of_whole_lost_packets(num_bytes, sizes):
    """Packets of 1,000 bytes; the rest of a message is a packet of its own size."""
    passages = [pass_over(link(loss=0.4), num_bytes, **{**NAME, "sequence": k}) for k in range(300)]
    for passage in passages:
        assert passage.lost_bytes == passage.lost_packets * (sizes[0] if sizes else 0)
        assert passage.air_s == pytest.approx((num_bytes + passage.lost_bytes) * 8 / 8e6)
        assert passage.delay_s == 0
    assert any(passage.lost_packets for passage in passages) == bool(sizes)
