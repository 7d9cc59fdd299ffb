import pickle

import networkx as nx
import numpy as np
import pytest
from graph_strategies import churns, contact_traces, digraphs
from hypothesis import given
from hypothesis import strategies as st

from topologies import (
    Cycle,
    Intermittent,
    OnePeerExponential,
    RandomMatching,
    RotatingPermutations,
    Static,
    TopologyError,
    WithPresence,
    build_churn,
    check_schedule,
    column_stochastic,
    complete,
    directed_ring,
    is_column_stochastic,
    mixing_matrix,
    ring,
    star,
    torus,
    weight_by_sender,
)

HOLDS = st.integers(1, 4)


def cycles(hold):
    return st.lists(digraphs(max_devices=5), min_size=1, max_size=4).map(
        lambda graphs: Cycle(tuple(column_stochastic(pad(graph, 5)) for graph in graphs), hold)
    )


def pad(graph, n):
    graph.add_nodes_from(range(n))
    return graph


def with_churn(schedules, **options):
    return schedules.flatmap(
        lambda schedule: st.builds(
            WithPresence, st.just(schedule), churns(schedule.num_devices, **options)
        )
    )


SCHEDULES_OF_ROUNDS = st.one_of(
    digraphs().map(lambda graph: Static(column_stochastic(graph))),
    HOLDS.flatmap(cycles),
    st.builds(OnePeerExponential, st.integers(1, 20), HOLDS),
    st.builds(RotatingPermutations, HOLDS),
)
SHORT_SCHEDULES = st.one_of(  # few graphs, so that a multiple of their period is not too long
    digraphs().map(lambda graph: Static(column_stochastic(graph))),
    st.builds(OnePeerExponential, st.integers(1, 20), st.integers(1, 2)),
)
FIXED_SCHEDULES = st.one_of(
    SCHEDULES_OF_ROUNDS,
    st.builds(Intermittent, SHORT_SCHEDULES, st.integers(1, 4)),
    contact_traces(),
)
MATCHINGS = st.builds(RandomMatching, st.integers(1, 15), st.integers(0, 2**63 - 1), HOLDS)
PLAIN_SCHEDULES = FIXED_SCHEDULES | MATCHINGS
SCHEDULES = PLAIN_SCHEDULES | with_churn(PLAIN_SCHEDULES)
# Without chance, what can happen does.
CERTAIN_SCHEDULES = FIXED_SCHEDULES | with_churn(FIXED_SCHEDULES, with_chance=False)
ROUNDS = st.integers(0, 10**6)
HORIZON = 81 + 40  # strategies plan no churn after round 80, and no period above 40 rounds


class TestEverySchedule:
    @given(schedule=SCHEDULES, round_index=ROUNDS)
    def test_out_edges_are_those_of_the_graph_sorted(self, schedule, round_index):
        graph = schedule.graph(round_index)
        assert list(graph) == list(range(schedule.num_devices))
        for device in graph:
            expected = sorted((i, w) for _, i, w in graph.out_edges(device, data="weight"))
            assert list(schedule.out_edges(device, round_index)) == expected

    @given(schedule=SCHEDULES, round_index=ROUNDS)
    def test_in_neighbors_are_those_of_the_graph_sorted(self, schedule, round_index):
        graph = schedule.graph(round_index)
        for device in graph:
            expected = sorted(graph.predecessors(device))
            assert list(schedule.in_neighbors(device, round_index)) == expected
            weights = {sender: graph.edges[sender, device]["weight"] for sender in expected}
            assert weight_by_sender(schedule, device, round_index) == weights

    @given(schedule=SCHEDULES, round_index=ROUNDS)
    def test_weights_conserve_mass(self, schedule, round_index):
        assert is_column_stochastic(mixing_matrix(schedule.graph(round_index)))

    @given(schedule=SCHEDULES, round_index=ROUNDS)
    def test_repeats_after_its_period(self, schedule, round_index):
        if schedule.period is not None:
            assert edges(schedule, round_index) == edges(schedule, round_index + schedule.period)

    @given(schedule=SCHEDULES, round_index=ROUNDS)
    def test_each_graph_stays_for_hold_rounds(self, schedule, round_index):
        first, every = round_index // schedule.hold * schedule.hold, schedule.exchange_every
        round_index -= (round_index - first) % every  # the same step as the first one's
        for step in range(every):
            assert edges(schedule, round_index + step) == edges(schedule, first + step)

    @given(schedule=SCHEDULES, rounds=st.lists(ROUNDS, min_size=2, max_size=8))
    def test_is_a_pure_function_of_the_round(self, schedule, rounds):
        """Neither the order of questions nor a move to another process changes an answer."""
        there = pickle.loads(pickle.dumps(schedule))
        forward = [edges(schedule, t) for t in rounds]
        assert [edges(there, t) for t in reversed(rounds)] == forward[::-1]

    @given(schedule=SCHEDULES)
    def test_is_static_exactly_if_its_period_is_one_graph(self, schedule):
        assert schedule.is_static == (schedule.period == schedule.exchange_every)

    @given(schedule=SCHEDULES, round_index=ROUNDS)
    def test_has_edges_in_exchanges_alone(self, schedule, round_index):
        if (round_index + 1) % schedule.exchange_every:
            assert not schedule.graph(round_index).edges


class TestPossiblePeers:
    """By the definition: edges of all rounds until everything repeats or has ended."""

    @given(schedule=CERTAIN_SCHEDULES)
    def test_are_exactly_those_of_any_round(self, schedule):
        links = {(j, i) for t in range(HORIZON) for j, i in links_of(schedule, t)}
        for device in range(schedule.num_devices):
            receivers = tuple(sorted(i for j, i in links if j == device))
            senders = tuple(sorted(j for j, i in links if i == device))
            assert schedule.possible_receivers(device) == receivers
            assert schedule.possible_senders(device) == senders

    @given(schedule=CERTAIN_SCHEDULES, first=st.integers(0, 90), length=st.integers(-5, 90))
    def test_an_edge_is_ever_active_exactly_if_it_is_in_one_of_the_rounds(
        self, schedule, first, length
    ):
        links = {link for t in range(first, first + length) for link in links_of(schedule, t)}
        for j in range(schedule.num_devices):
            for i in range(schedule.num_devices):
                is_link = (j, i) in links
                assert schedule.is_ever_active(j, i, first, first + length) == is_link

    @given(schedule=MATCHINGS, rounds=st.lists(ROUNDS, max_size=8))
    def test_of_random_pairs_are_all_that_can_ever_meet(self, schedule, rounds):
        for t in rounds:
            for j, i in links_of(schedule, t):
                assert schedule.is_ever_active(j, i, t, t + 1)
                assert i in schedule.possible_receivers(j)
                assert j in schedule.possible_senders(i)


def links_of(schedule, round_index):
    for device in range(schedule.num_devices):
        for receiver, _ in schedule.out_edges(device, round_index):
            yield device, receiver


def edges(schedule, round_index):
    return [schedule.out_edges(device, round_index) for device in range(schedule.num_devices)]


class TestStatic:
    def test_a_graph_without_weights_is_refused(self):
        with pytest.raises(TopologyError, match="device 0 has a link without a positive weight"):
            Static(ring(3))

    @pytest.mark.parametrize("weight", [0.0, -0.5, float("nan"), float("inf")])
    def test_a_weight_that_is_no_share_is_refused(self, weight):
        with pytest.raises(TopologyError, match="without a positive weight"):
            Static(nx.DiGraph([(0, 1, {"weight": weight}), (1, 0, {"weight": 0.5})]))

    def test_giving_away_more_than_all_is_refused(self):
        graph = complete(3)
        nx.set_edge_attributes(graph, 0.6, "weight")
        with pytest.raises(TopologyError, match=r"device 0 gives away 1\.2 of its mass"):
            Static(graph)


class TestCycle:
    def test_takes_its_graphs_in_turn(self):
        forth, back = (column_stochastic(nx.DiGraph([edge])) for edge in [(0, 1), (1, 0)])
        schedule = Cycle((forth, back), hold=2)
        assert [len(schedule.out_edges(0, t)) for t in range(8)] == [1, 1, 0, 0, 1, 1, 0, 0]
        assert schedule.period == 4

    def test_of_one_graph_is_static(self):
        schedule = Cycle((column_stochastic(ring(3)),), hold=5)
        assert schedule.is_static
        assert schedule.period == 1

    def test_graphs_of_different_fleets_are_refused(self):
        graphs = (column_stochastic(ring(3)), column_stochastic(ring(4)))
        with pytest.raises(TopologyError, match=r"graphs of \[3, 4\] devices"):
            Cycle(graphs, hold=1)

    def test_no_graphs_are_refused(self):
        with pytest.raises(TopologyError, match="needs at least one"):
            Cycle((), hold=1)


@pytest.mark.parametrize(
    "make",
    [
        lambda hold: Cycle((column_stochastic(ring(3)),), hold),
        lambda hold: OnePeerExponential(4, hold),
        RotatingPermutations,
        lambda hold: RandomMatching(4, 1, hold),
    ],
)
@pytest.mark.parametrize("hold", [0, -1])
def test_a_hold_below_one_round_is_refused(make, hold):
    with pytest.raises(TopologyError, match=f"hold is {hold}; must be at least 1 round"):
        make(hold)


class TestCheckSchedule:
    @given(graph=digraphs())
    def test_accepts_exactly_the_strongly_connected_graphs(self, graph):
        """Oracle: (I + A)^(n - 1) has no zero exactly if every device reaches every other."""
        n = len(graph)
        A = nx.to_numpy_array(graph, nodelist=range(n), weight=None)
        reaches_all = bool((np.linalg.matrix_power(np.eye(n) + A, max(n - 1, 1)) > 0).all())
        schedule = Static(column_stochastic(graph))
        if reaches_all:
            check_schedule(schedule)
        else:
            with pytest.raises(TopologyError, match="not strongly connected"):
                check_schedule(schedule)

    @given(schedule=HOLDS.flatmap(cycles))
    def test_accepts_a_cycle_exactly_if_its_graphs_together_are_strongly_connected(self, schedule):
        together = nx.compose_all(schedule.graphs)
        if nx.is_strongly_connected(together):
            check_schedule(schedule)
        else:
            with pytest.raises(TopologyError):
                check_schedule(schedule)

    @pytest.mark.parametrize(
        "schedule",
        [
            Static(column_stochastic(torus(12))),
            Static(column_stochastic(star(5))),
            RotatingPermutations(hold=100),
            *(OnePeerExponential(n, hold=3) for n in (1, 2, 7, 16)),
            *(RandomMatching(n, seed, hold=2) for n in (1, 2, 3, 4, 9, 100) for seed in range(5)),
        ],
    )
    def test_accepts_what_is_connected(self, schedule):
        check_schedule(schedule)

    def test_says_who_cannot_be_reached_by_name_if_they_have_one(self):
        graph = nx.DiGraph([(0, 1), (1, 0), (2, 3), (3, 2), (2, 0)])
        graph.nodes[2]["name"], graph.nodes[3]["name"] = "bern", "rome"
        with pytest.raises(TopologyError) as refusal:
            check_schedule(Static(column_stochastic(graph)))
        assert str(refusal.value) == (
            "not strongly connected: nothing that device 0 sends can reach "
            "devices 2 (bern), 3 (rome); add links that way"
        )

    def test_says_who_cannot_be_heard(self):
        with pytest.raises(TopologyError, match="device 1 sends can reach device 0; add links"):
            check_schedule(Static(column_stochastic(nx.DiGraph([(0, 1)]))))

    def test_does_not_count_what_comes_after_the_run(self):
        parts = [pad(nx.DiGraph(links), n=3) for links in ([(0, 1), (1, 0)], [(1, 2), (2, 1)])]
        schedule = Cycle(tuple(map(column_stochastic, parts)), hold=10)
        check_schedule(schedule)
        check_schedule(schedule, 11)
        with pytest.raises(TopologyError, match=r"device 2 within 10 rounds; .*train for more"):
            check_schedule(schedule, 10)

    def test_says_over_which_time_a_cycle_was_looked_at(self):
        halves = [column_stochastic(pad(nx.DiGraph([(0, 1), (1, 0)]), n=3))] * 2
        with pytest.raises(TopologyError, match="reach device 2 within 20 rounds"):
            check_schedule(Cycle(tuple(halves), hold=10))

    def test_keeps_a_long_list_short(self):
        lonely = column_stochastic(pad(nx.DiGraph(), 100))
        with pytest.raises(TopologyError, match="devices 1, 2, 3, 4, 5 and 94 more"):
            check_schedule(Static(lonely))


class TestIntermittent:
    @given(
        schedule=SCHEDULES_OF_ROUNDS | MATCHINGS,
        every=st.integers(1, 7),
        exchange=st.integers(0, 10**5),
    )
    def test_the_last_of_every_few_rounds_has_the_next_graph(self, schedule, every, exchange):
        rounds = range(exchange * every, (exchange + 1) * every)
        intermittent = Intermittent(schedule, every)
        *between, last = [edges(intermittent, round_index) for round_index in rounds]
        assert last == edges(schedule, exchange)
        assert not any(device for round_edges in between for device in round_edges)

    def test_all_graphs_have_their_turn_whatever_their_number_has_in_common_with_the_rounds(self):
        check_schedule(Intermittent(OnePeerExponential(16, hold=1), 4))

    def test_a_run_that_ends_before_the_first_exchange_is_refused(self):
        schedule = Intermittent(Static(column_stochastic(ring(4))), 5)
        check_schedule(schedule, 5)
        with pytest.raises(
            TopologyError, match=r"within 4 rounds, one in 5 of which exchanges: 0; "
        ):
            check_schedule(schedule, 4)

    def test_refuses_less_than_a_round_between_exchanges(self):
        with pytest.raises(TopologyError, match="an exchange every 0 rounds; must be at least 1"):
            Intermittent(OnePeerExponential(4, 1), 0)

    def test_refuses_what_would_count_rounds_twice(self):
        once = Intermittent(OnePeerExponential(4, 1), 2)
        absent = build_churn(4, seed=1, absent=[{"device": 1, "from_round": 1, "until_round": 3}])
        for schedule in (once, WithPresence(OnePeerExponential(4, 1), absent)):
            with pytest.raises(ValueError, match="presence is put around"):
                Intermittent(schedule, 2)

    @given(trace=contact_traces())
    def test_refuses_what_follows_time(self, trace):
        with pytest.raises(TopologyError, match="would miss contacts of a trace"):
            Intermittent(trace, 2)


def test_static_graph_is_the_one_it_was_given():
    weighted = column_stochastic(directed_ring(4))
    assert Static(weighted).graph(17) is weighted
