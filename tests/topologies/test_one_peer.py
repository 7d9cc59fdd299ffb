from collections import Counter

import networkx as nx
import numpy as np
import pytest
from graph_strategies import is_doubly_stochastic, period_gap
from hypothesis import given
from hypothesis import strategies as st

from topologies import (
    ROTATING_PERMUTATIONS,
    OnePeerExponential,
    RandomMatching,
    RotatingPermutations,
    TopologyError,
    mixing_matrix,
    spectral_gap,
)


def matrices(schedule, num_rounds):
    return [mixing_matrix(schedule.graph(t)) for t in range(num_rounds)]


@given(
    schedule=st.one_of(
        st.builds(OnePeerExponential, st.integers(1, 20), st.just(1)),
        st.builds(RotatingPermutations, st.just(1)),
        st.builds(RandomMatching, st.integers(1, 15), st.integers(0, 99), st.just(1)),
    ),
    round_index=st.integers(0, 1000),
)
def test_every_round_is_doubly_stochastic_with_halves(schedule, round_index):
    W = mixing_matrix(schedule.graph(round_index))
    assert is_doubly_stochastic(W)
    assert set(W.ravel()) <= {0.0, 0.5, 1.0}


class TestRotatingPermutations:
    def test_are_the_six_of_the_reference(self):
        """reference.md, section 3.8, written out once more: i + 1, i - 1, and the four that are
        listed."""
        expected = (
            tuple((i + 1) % 8 for i in range(8)),
            tuple((i - 1) % 8 for i in range(8)),
            (2, 5, 4, 6, 7, 3, 0, 1),
            (6, 7, 0, 5, 2, 1, 3, 4),
            (3, 4, 7, 1, 6, 0, 2, 5),
            (5, 3, 6, 0, 1, 7, 4, 2),
        )
        assert expected == ROTATING_PERMUTATIONS

    def test_come_in_this_order_each_held_and_then_again(self):
        schedule = RotatingPermutations(hold=3)
        for t in range(40):
            permutation = ROTATING_PERMUTATIONS[t // 3 % 6]
            sent = [schedule.out_edges(device, t) for device in range(8)]
            assert sent == [((receiver, 0.5),) for receiver in permutation]
        assert schedule.period == 18

    def test_each_is_one_directed_ring(self):
        """So each has the gap of the directed ring of 8, reference.md, section 3.8: .0761."""
        schedule = RotatingPermutations(hold=1)
        for t in range(6):
            assert nx.is_strongly_connected(schedule.graph(t))
            assert spectral_gap(mixing_matrix(schedule.graph(t))) == pytest.approx(0.0761, rel=1e-3)

    def test_every_second_one_runs_the_one_before_backwards(self):
        for forth, back in zip(
            ROTATING_PERMUTATIONS[::2], ROTATING_PERMUTATIONS[1::2], strict=True
        ):
            assert [back[forth[i]] for i in range(8)] == list(range(8))

    def test_mix_faster_in_turn_than_any_one_alone(self):
        schedule = RotatingPermutations(hold=1)
        first, *_ = rounds = matrices(schedule, 6)
        assert period_gap(rounds) > period_gap([first] * 6)


class TestOnePeerExponential:
    @pytest.mark.parametrize("power", range(1, 6))
    def test_a_period_averages_exactly_for_a_power_of_two(self, power):
        """Ying et al. (2021): the product is J/n; all its numbers are exact in binary."""
        n = 2**power
        product = np.linalg.multi_dot([np.eye(n), *matrices(OnePeerExponential(n, 1), power)])
        np.testing.assert_array_equal(product, np.full((n, n), 1 / n))

    def test_does_not_average_exactly_for_other_sizes(self):
        schedule = OnePeerExponential(6, hold=1)
        assert 0 < period_gap(matrices(schedule, schedule.period)) < 1

    def test_goes_through_the_powers_of_two(self):
        schedule = OnePeerExponential(6, hold=2)
        receivers = [schedule.out_edges(3, t)[0][0] for t in range(8)]
        assert receivers == [4, 4, 5, 5, 1, 1, 4, 4]  # 3 + 1, 3 + 2, 3 + 4 modulo 6
        assert schedule.period == 6

    def test_of_two_devices_never_changes(self):
        assert OnePeerExponential(2, hold=7).is_static

    def test_a_lone_device_has_nobody_to_send_to(self):
        assert OnePeerExponential(1, hold=1).out_edges(0, 5) == ()

    def test_no_devices_are_refused(self):
        with pytest.raises(TopologyError, match="0 devices: needs at least 1"):
            OnePeerExponential(0, hold=1)


class TestRandomMatching:
    @given(n=st.integers(1, 30), seed=st.integers(0, 2**63 - 1), round_index=st.integers(0, 10**9))
    def test_pairs_everybody_but_one_of_an_odd_number(self, n, seed, round_index):
        schedule = RandomMatching(n, seed, hold=1)
        resting = 0
        for device in range(n):
            match schedule.out_edges(device, round_index):
                case ((partner, weight),):
                    assert weight == 0.5
                    assert schedule.out_edges(partner, round_index) == ((device, 0.5),)
                case ():
                    resting += 1
        assert resting == n % 2

    def test_every_pairing_is_equally_likely(self):
        """Of 4 devices there are 3; 3,000 rounds give 1,000 each, deviation 26 = sqrt(3000 2/9)."""
        schedule = RandomMatching(4, seed=1, hold=1)
        partners_of_0 = Counter(schedule.out_edges(0, t)[0][0] for t in range(3000))
        assert partners_of_0.keys() == {1, 2, 3}
        assert all(abs(count - 1000) < 5 * 26 for count in partners_of_0.values())

    def test_everybody_rests_equally_often(self):
        schedule = RandomMatching(3, seed=1, hold=1)
        rests = Counter(d for t in range(3000) for d in range(3) if not schedule.out_edges(d, t))
        assert all(abs(rests[device] - 1000) < 5 * 26 for device in range(3))

    def test_pairs_stay_for_hold_rounds(self):
        schedule = RandomMatching(20, seed=1, hold=4)
        pairs = [tuple(schedule.out_edges(d, t) for d in range(20)) for t in range(12)]
        assert pairs[0:4] == [pairs[0]] * 4
        assert len(set(pairs)) == 3

    def test_depends_on_the_seed(self):
        one, other = (RandomMatching(20, seed, 1).graph(0) for seed in (1, 2))
        assert set(one.edges) != set(other.edges)

    def test_memory_stays_bounded_and_the_answer_the_same(self):
        schedule = RandomMatching(6, seed=1, hold=1)
        first = schedule.out_edges(0, 0)
        for t in range(500):
            schedule.out_edges(0, t)
        assert len(schedule._recent) <= 64
        assert schedule.out_edges(0, 0) == first

    def test_no_devices_are_refused(self):
        with pytest.raises(TopologyError, match="0 devices: needs at least 1"):
            RandomMatching(0, seed=1, hold=1)
