import itertools
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from graph_strategies import (
    churns,
    contact_traces,
    digraphs,
    is_doubly_stochastic,
    symmetric_graphs,
)
from hypothesis import given
from hypothesis import strategies as st

from topologies import (
    EVERYONE,
    FOREVER,
    Absence,
    Churn,
    ContactTrace,
    Cycle,
    Joining,
    Leaving,
    RandomAbsence,
    RandomMatching,
    Static,
    TopologyError,
    WithPresence,
    build_churn,
    check_schedule,
    column_stochastic,
    complete,
    directed_ring,
    is_column_stochastic,
    metropolis,
    mixing_matrix,
    ring,
)

RING = Static(column_stochastic(ring(4)))


def is_away(churn, device, t):
    """By the entries, one after the other."""
    absent = any(
        a.device == device and a.from_round <= t and (a.until_round is None or t < a.until_round)
        for a in churn.absences
    )
    return absent or any(j.device == device and t < j.round for j in churn.joins)


class TestChurn:
    @given(churn=churns(4, with_chance=False), t=st.integers(0, 200))
    def test_devices_are_there_unless_absent_or_yet_to_join(self, churn, t):
        for device in range(4):
            assert churn.is_present(device, t) == (not is_away(churn, device, t))

    @given(churn=churns(4), t=st.integers(0, 200))
    def test_chance_brings_nobody_back_who_is_absent_as_planned(self, churn, t):
        assert not any(churn.is_present(d, t) and is_away(churn, d, t) for d in range(4))

    @given(churn=churns(3), t=st.integers(0, 200))
    def test_somebody_is_there_in_every_round(self, churn, t):
        """Somebody who has not left: a leaver's edges are its successor's."""
        left = {leave.device for leave in churn.leaves if leave.round <= t}
        assert any(churn.is_present(device, t) for device in set(range(3)) - left)

    @given(churn=churns(4, with_chance=False))
    def test_spans_are_the_rounds_in_which_a_device_is_there(self, churn):
        for device in range(4):
            spans = churn.spans(device)
            rounds = {t for start, end in spans for t in range(start, min(end, 200))}
            assert rounds == {t for t in range(200) if churn.is_present(device, t)}
            assert all(end < start for (_, end), (start, _) in itertools.pairwise(spans))

    def test_joins_and_leaves_are_told(self):
        churn = Churn(4, joins=(Joining(1, 30),), leaves=(Leaving(2, 50),))
        assert [churn.join_round(device) for device in range(4)] == [0, 30, 0, 0]
        assert [churn.leave_round(device) for device in range(4)] == [None, None, 50, None]

    def test_a_leaver_stays_present_since_its_successor_answers_for_it(self):
        chance = RandomAbsence(0.6, 5, seed=1)
        leave_round = next(
            t for t in range(10, 99) if chance.is_absent(2, t - 1) and chance.is_absent(2, t)
        )
        churn = Churn(4, leaves=(Leaving(2, leave_round),), chance=chance)
        assert not churn.is_present(2, leave_round - 1)
        assert all(churn.is_present(2, t) for t in range(leave_round, 500))

    def test_one_who_has_just_left_is_not_the_somebody_who_is_there(self):
        """Of two devices, the other stays from the very round in which the first is to leave."""
        chance = RandomAbsence(0.6, 5, seed=1)
        leave_round = next(
            t for t in range(1, 99) if chance.is_absent(0, t) and not chance.is_absent(1, t)
        )
        assert not Churn(2, chance=chance).is_present(0, leave_round)
        churn = Churn(2, leaves=(Leaving(1, leave_round),), chance=chance)
        assert churn.is_present(0, leave_round)

    def test_is_built_from_words(self):
        churn = build_churn(
            6,
            seed=3,
            absent=[{"device": 3, "from_round": 10, "until_round": 20}],
            joins=[{"device": 5, "round": 30}],
            leaves=[{"device": 2, "round": 50}],
            random={"absence_probability": 0.05, "mean_absence_rounds": 5},
        )
        assert churn == Churn(
            6,
            (Absence(3, 10, 20),),
            (Joining(5, 30),),
            (Leaving(2, 50),),
            RandomAbsence(0.05, 5, seed=3),
        )

    @pytest.mark.parametrize(
        ("entries", "complaint"),
        [
            (
                {"absences": [Absence(1, 10, 20), Absence(1, 19, 30)]},
                "until round 20 and is absent from round 19 until round 30: the two overlap",
            ),
            (
                {"absences": [Absence(1, 3)], "leaves": [Leaving(1, 9)]},
                "device 1 is absent from round 3 for ever and leaves in round 9: the two overlap",
            ),
            (
                {"absences": [Absence(1, 0, 2)], "joins": [Joining(1, 9)]},
                "device 1 joins in round 9 and is absent from round 0 until round 2: the two over",
            ),
            ({"joins": [Joining(1, 9), Joining(1, 4)]}, "joins in round 9 and joins in round 4"),
            ({"leaves": [Leaving(1, 9), Leaving(1, 4)]}, "leaves in round 4 and leaves in round 9"),
            (
                {"joins": [Joining(1, 9)], "leaves": [Leaving(1, 4)]},
                "device 1 joins in round 9 and leaves in round 4: the two overlap",
            ),
            (
                {"joins": [Joining(1, 9)], "leaves": [Leaving(1, 9)]},
                "device 1 leaves in round 9, when it joins",
            ),
            ({"absences": [Absence(1, 0)]}, "from round 0 for ever, so it is never there"),
            (
                {"absences": [Absence(1, 9)], "joins": [Joining(1, 9)]},
                "device 1 joins in round 9, so it is never there; let it come back, or remove it",
            ),
            ({"absences": [Absence(3, 1, 2)]}, "no such device; there are 0 to 2"),
            ({"joins": [Joining(-1, 1)]}, "device -1 joins in round 1, but there is no such"),
            ({"absences": [Absence(1, 9, 9)]}, "from round 9 until round 9; absences must end"),
            ({"absences": [Absence(1, -1, 2)]}, "device 1 is absent from round -1"),
            ({"joins": [Joining(1, 0)]}, "joins in round 0; .* be in round 1 or later"),
            ({"leaves": [Leaving(1, 0)]}, "leaves in round 0; .* be in round 1 or later"),
            (
                {"absences": [Absence(0, 5, 8), Absence(1, 7, 9)], "joins": [Joining(2, 8)]},
                "all 3 devices are absent or have left in round 7; one must be there",
            ),
            (
                {"leaves": [Leaving(0, 5), Leaving(1, 9)], "absences": [Absence(2, 20, 21)]},
                "all 3 devices are absent or have left in round 20",
            ),
            ({"leaves": [Leaving(d, 5 + d) for d in range(3)]}, "have left in round 7"),
        ],
    )
    def test_entries_that_do_not_go_together_are_refused(self, entries, complaint):
        entries = {key: tuple(value) for key, value in entries.items()}
        with pytest.raises(TopologyError, match=complaint):
            Churn(3, **entries)

    def test_one_may_come_back_in_the_round_in_which_the_last_other_goes(self):
        churn = Churn(2, absences=(Absence(0, 5, 8), Absence(1, 8, 9), Absence(0, 9, 10)))
        assert [churn.is_present(0, t) for t in (7, 8, 9)] == [False, True, False]


class TestRandomAbsence:
    def test_follows_from_seed_and_device_in_whatever_order_one_asks(self):
        questions = [(d, t) for d in range(3) for t in range(0, 3000, 7)]
        rng = np.random.default_rng(1)
        answers = []
        for order in (range(len(questions)), rng.permutation(len(questions))):
            absence = RandomAbsence(0.3, 4, seed=5)
            found = {questions[k]: absence.is_absent(*questions[k]) for k in order}
            answers.append([found[question] for question in questions])
        assert answers[0] == answers[1]

    def test_is_the_same_for_many_threads_at_once(self):
        absence = RandomAbsence(0.3, 4, seed=5)
        rounds = range(0, 20000, 37)
        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(lambda: [absence.is_absent(0, t) for t in rounds])] * 8
            answers = [future.result() for future in asked]
        alone = RandomAbsence(0.3, 4, seed=5)
        assert all(found == [alone.is_absent(0, t) for t in rounds] for found in answers)

    def test_devices_and_seeds_differ(self):
        def rounds(device, seed):
            return [RandomAbsence(0.5, 5, seed=seed).is_absent(device, t) for t in range(200)]

        assert rounds(0, 1) != rounds(1, 1)
        assert rounds(0, 1) != rounds(0, 2)

    @pytest.mark.parametrize(("p", "L"), [(0.05, 5.0), (0.2, 5.0), (0.7, 3.0)])
    def test_share_and_length_of_absences_are_those_asked_for(self, p, L):
        """Within five standard errors.

        The chain's rounds are correlated by lambda^k with lambda = 1 - 1/L - p / ((1 - p) L), so
        the mean of N rounds has the variance p (1 - p) (1 + lambda) / ((1 - lambda) N). A length
        is geometric with mean L: its variance is L (L - 1).
        """
        absence = RandomAbsence(p, L, seed=7)
        rounds = np.array([[absence.is_absent(d, t) for t in range(500)] for d in range(200)])
        back = 1 - 1 / L - p / ((1 - p) * L)
        error = (p * (1 - p) * (1 + back) / ((1 - back) * rounds.size)) ** 0.5
        assert rounds.mean() == pytest.approx(p, abs=5 * error)
        # Share in the first round alone: the chain begins as it goes on.
        assert rounds[:, 0].mean() == pytest.approx(p, abs=5 * (p * (1 - p) / 200) ** 0.5)
        changes = [np.flatnonzero(np.diff(row.astype(int))) for row in rounds]
        lengths = np.concatenate(
            [
                np.diff(c)[0 if row[c[0] + 1] else 1 :: 2]
                for row, c in zip(rounds, changes, strict=True)
                if len(c) > 1
            ]
        )
        # Absences cut off by the 500 rounds are not seen; long ones are cut more often.
        assert lengths.mean() == pytest.approx(L, abs=5 * (L * (L - 1) / len(lengths)) ** 0.5 + 0.1)

    @pytest.mark.parametrize(
        ("p", "L", "complaint"),
        [
            (0.0, 5.0, "absence_probability is 0; must be above 0 and below 1"),
            (1.0, 5.0, "absence_probability is 1; must be above 0 and below 1"),
            (float("nan"), 5.0, "absence_probability is nan"),
            (0.5, 0.5, "mean_absence_rounds is 0.5; must be at least 1"),
            (0.5, float("inf"), "mean_absence_rounds is inf"),
            (0.8, 3.9, "mean_absence_rounds is 3.9; must be at least 4 for absence_prob.*: 0.8"),
        ],
    )
    def test_figures_that_no_chain_has_are_refused(self, p, L, complaint):
        with pytest.raises(TopologyError, match=complaint):
            RandomAbsence(p, L, seed=1)

    @pytest.mark.parametrize(("p", "L"), [(0.8, 4), (0.9, 9), (0.95, 19), (0.5, 1)])
    def test_the_shortest_absences_are_allowed_though_floats_are_not_exact(self, p, L):
        """Then a device is back for one round between two absences."""
        away = [RandomAbsence(p, L, seed=1).is_absent(0, t) for t in range(400)]
        assert any(away)
        assert not any(not a and not b for a, b in pairwise(away))

    def test_almost_no_absences_are_drawn_at_once(self):
        assert not RandomAbsence(1e-15, 1, seed=1).is_absent(0, 10**6)


BASES = st.one_of(
    digraphs(max_devices=5).map(lambda graph: Static(column_stochastic(graph))),
    symmetric_graphs(max_devices=5).map(lambda graph: Static(metropolis(graph))),
    contact_traces(),
    st.builds(RandomMatching, st.just(5), st.integers(0, 99), st.just(2)),
)
CHURNED = BASES.flatmap(
    lambda base: st.builds(WithPresence, st.just(base), churns(base.num_devices))
)


class TestWithPresence:
    @given(schedule=CHURNED, t=st.integers(0, 200))
    def test_has_the_edges_whose_ends_are_there_with_the_weights_they_had(self, schedule, t):
        base, is_present = schedule.schedule, schedule.presence.is_present
        expected = {
            (j, i): weight
            for j, i, weight in base.graph(t).edges(data="weight")
            if is_present(j, t) and is_present(i, t)
        }
        assert nx.get_edge_attributes(schedule.graph(t), "weight") == expected

    @given(schedule=CHURNED, t=st.integers(0, 200))
    def test_columns_sum_to_one_and_double_stochasticity_is_kept(self, schedule, t):
        W = mixing_matrix(schedule.graph(t))
        assert is_column_stochastic(W)
        full = mixing_matrix(schedule.schedule.graph(t))
        if np.array_equal(full, full.T):
            assert is_doubly_stochastic(W)

    def test_the_weight_of_a_missing_edge_stays_with_the_sender(self):
        churn = Churn(4, absences=(Absence(1, 3, 5),))
        schedule = WithPresence(RING, churn)
        W = mixing_matrix(schedule.graph(3))
        third = 1 / 3
        expected = [
            [2 * third, 0, 0, third],
            [0, 1, 0, 0],
            [0, 0, 2 * third, third],
            [third, 0, third, third],
        ]
        np.testing.assert_allclose(W, expected, rtol=0, atol=1e-15)  # sums of three floats

    def test_is_neither_static_nor_periodic_and_keeps_what_is_known_of_links(self):
        graph = ring(3)
        graph.edges[0, 1]["latency_ms"] = 5
        schedule = WithPresence(Static(column_stochastic(graph)), Churn(3))
        assert (schedule.is_static, schedule.period, schedule.hold) == (False, None, 1)
        assert schedule.link_attributes(0, 1) == {"latency_ms": 5}
        assert schedule.graph(0).edges[0, 1]["latency_ms"] == 5
        assert schedule.link_attributes(1, 2) == {}

    def test_follows_the_clock_of_its_schedule(self):
        trace = ContactTrace(2, {(0, 1): [0, 1], (1, 0): [0, 1]}, 7.5)
        assert WithPresence(trace, Churn(2)).seconds_per_round == 7.5

    def test_an_absent_device_has_no_edges_before_it_joins(self):
        schedule = WithPresence(RING, Churn(4, joins=(Joining(2, 10),)))
        assert schedule.out_edges(2, 9) == schedule.in_neighbors(2, 9) == ()
        assert schedule.in_neighbors(2, 10) == (1, 3)
        assert 2 not in schedule.in_neighbors(1, 9)

    def test_who_can_never_be_reached_in_the_run_is_refused(self):
        schedule = WithPresence(RING, Churn(4, joins=(Joining(2, 10),)))
        check_schedule(schedule)
        check_schedule(schedule, 11)
        with pytest.raises(TopologyError, match="reach device 2 within 10 rounds; add links that"):
            check_schedule(schedule, 10)

    def test_two_who_are_never_there_together_have_no_edge(self):
        churn = Churn(3, joins=(Joining(0, 10),), absences=(Absence(1, 10),))
        schedule = WithPresence(Static(column_stochastic(directed_ring(3))), churn)
        assert schedule.possible_receivers(0) == ()
        with pytest.raises(TopologyError, match="nothing that device 0 sends can reach devices 1"):
            check_schedule(schedule)

    def test_chance_alone_cuts_nobody_off(self):
        churn = Churn(4, chance=RandomAbsence(0.9, 20, seed=1))
        check_schedule(WithPresence(RING, churn), 1)

    def test_hundreds_of_devices_of_which_few_are_absent_are_looked_up_at_once(self):
        schedule = WithPresence(
            Static(column_stochastic(complete(300))), Churn(300, absences=(Absence(7, 3),))
        )
        assert schedule.possible_senders(7) == tuple(d for d in range(300) if d != 7)
        check_schedule(schedule)


def test_fleets_without_churn_have_everyone_there():
    for schedule in (RING, Cycle((column_stochastic(ring(3)),), 1), RandomMatching(4, 1, 1)):
        assert schedule.presence is EVERYONE
        assert schedule.seconds_per_round is None
    assert EVERYONE.is_present(3, 10**9)
    assert (EVERYONE.join_round(3), EVERYONE.leave_round(3)) == (0, None)
    assert EVERYONE.spans(3) == ((0, FOREVER),)


def test_link_attributes_are_those_of_the_graphs_of_a_cycle_together():
    one, two = ring(3), ring(3)
    one.edges[0, 1].update(latency_ms=5, loss=0.1)
    two.edges[0, 1].update(latency_ms=7)
    cycle = Cycle((column_stochastic(one), column_stochastic(two)), 1)
    assert cycle.link_attributes(0, 1) == {"latency_ms": 7, "loss": 0.1}
    assert cycle.link_attributes(0, 2) == Static(column_stochastic(one)).link_attributes(2, 2) == {}
