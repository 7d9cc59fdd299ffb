import contextlib
import pickle
import re
from fractions import Fraction

import pytest
from graph_strategies import contact_traces, is_doubly_stochastic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from topologies import (
    ContactTrace,
    TopologyError,
    build_schedule,
    check_schedule,
    load_trace,
    mixing_matrix,
)

HEADER = "time,source,target,duration\n"
NAMES = ("ann", "bob", "cid", "dot")


def write(tmp_path, content):
    path = tmp_path / "contacts.csv"
    path.write_text(content, encoding="utf-8")
    return path


def load(tmp_path, lines, num_devices=3, seconds_per_round=10.0, **options):
    path = write(tmp_path, HEADER + lines)
    return load_trace(path, num_devices, seconds_per_round=seconds_per_round, **options)


def links(schedule, round_index):
    return set(schedule.graph(round_index).edges)


# Times in tenths of a second: many of them are no floats.
TENTHS = st.integers(0, 400)
LINES = st.lists(
    st.tuples(TENTHS, st.integers(0, 3), st.integers(0, 3), st.integers(1, 150)).filter(
        lambda line: line[1] != line[2]
    ),
    min_size=1,
    max_size=30,
).map(sorted)


class TestRounds:
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        lines=LINES,
        round_tenths=st.integers(1, 60),
        undirected=st.booleans(),
        repeat=st.booleans(),
        is_named=st.booleans(),
    )
    def test_edges_are_those_of_a_naive_scan_of_all_contacts(
        self, tmp_path, lines, round_tenths, undirected, repeat, is_named
    ):
        devices = sorted({device for line in lines for device in line[1:3]})
        names = [NAMES[device] if is_named else str(device) for device in range(4)]
        text = "".join(
            f"{t / 10},{names[j]},{names[i]},{duration / 10}\n" for t, j, i, duration in lines
        )
        schedule = load(
            tmp_path,
            text,
            num_devices=len(devices) if is_named else 4,
            seconds_per_round=round_tenths / 10,
            undirected=undirected,
            repeat=repeat,
        )
        number = {device: place for place, device in enumerate(devices)} if is_named else {}
        last = max(-(-(t + duration) // round_tenths) for t, _, _, duration in lines)
        assert schedule.num_rounds == last
        for k in range(2 * last + 2):
            k_of_trace = k % last if repeat else k
            start, end = k_of_trace * round_tenths, (k_of_trace + 1) * round_tenths
            active = [(j, i) for t, j, i, d in lines if t < end and t + d > start]
            active += [(i, j) for j, i in active] if undirected else []
            expected = {(number.get(j, j), number.get(i, i)) for j, i in active}
            assert links(schedule, k) == expected

    def test_a_contact_is_active_in_every_round_that_it_overlaps(self, tmp_path):
        """From 9 s to 20 s at 10 s a round: rounds 0 and 1, since round 2 begins where it ends."""
        schedule = load(tmp_path, "9,0,1,11\n")
        assert [bool(schedule.out_edges(0, k)) for k in range(4)] == [True, True, False, False]

    def test_times_are_decimals_not_floats(self, tmp_path):
        """0.3 / 0.1 is 2.99... in floats; 0.1 + 0.2 is more than 0.3."""
        schedule = load(tmp_path, "0.1,1,0,0.2\n0.3,0,1,0.1\n", seconds_per_round=0.1)
        assert [links(schedule, k) for k in range(4)] == [set(), {(1, 0)}, {(1, 0)}, {(0, 1)}]
        assert schedule.num_rounds == 4

    def test_a_contact_shorter_than_any_sum_shows_has_its_round(self, tmp_path):
        schedule = load(tmp_path, "10,0,1,1e-40\n")
        assert [links(schedule, k) for k in range(3)] == [set(), {(0, 1)}, set()]

    def test_contacts_that_overlap_or_touch_are_one(self, tmp_path):
        schedule = load(tmp_path, "0,0,1,30\n5,0,1,1\n30,0,1,5\n70,0,1,1\n")
        assert list(schedule.contacts[0, 1]) == [0, 4, 7, 8]

    def test_without_repeat_there_are_no_contacts_after_the_end(self, tmp_path):
        schedule = load(tmp_path, "0,0,1,10\n")
        assert schedule.period is None
        assert not schedule.is_static
        assert links(schedule, 1) == links(schedule, 10**9) == set()

    def test_with_repeat_the_trace_begins_anew_in_the_round_after_its_last(self, tmp_path):
        schedule = load(tmp_path, "0,0,1,5\n25,1,0,1\n", repeat=True)
        assert schedule.period == 3
        assert [links(schedule, k) for k in (0, 2, 3, 5, 300, 302)] == [{(0, 1)}, {(1, 0)}] * 3

    def test_rounds_may_reach_over_the_end_of_a_trace_that_repeats(self, tmp_path):
        """Rounds 2 and 3 of a trace of 3 rounds are its last and its first."""
        schedule = load(tmp_path, "0,0,1,5\n25,1,0,1\n", repeat=True)
        assert schedule.is_ever_active(0, 1, 2, 4)
        assert not schedule.is_ever_active(0, 1, 1, 3)
        assert not schedule.is_ever_active(0, 1, 4, 6)
        assert schedule.is_ever_active(0, 1, 1, 4)
        assert not schedule.is_ever_active(0, 1, 3, 3)

    def test_begins_and_lengths_are_in_seconds_and_lines_that_overlap_or_touch_are_one(
        self, tmp_path
    ):
        lines = "0,0,1,2.5\n1,0,1,0.5\n2.5,0,1,1\n4,0,1,0.1\n5,1,0,30\n"
        schedule = load(tmp_path, lines, seconds_per_round=10)
        assert {edge: list(own) for edge, own in schedule.spans_s.items()} == {
            (0, 1): [0.0, 3.5, 4.0, 0.1],
            (1, 0): [5.0, 30.0],
        }

    def test_a_contact_of_years_takes_no_more_memory_than_one_of_seconds(self, tmp_path):
        sizes = []
        for duration in (1, 10**9):
            schedule = load(tmp_path, f"0,0,1,{duration}\n", seconds_per_round=1)
            assert schedule.out_edges(0, duration - 1)
            sizes.append(len(pickle.dumps(schedule)))
        assert sizes[1] < sizes[0] + 32  # longer numbers, no more of them


class TestLookups:
    @settings(max_examples=5, deadline=None)
    @given(data=st.data())
    def test_of_a_device_with_thousands_of_changes_equal_the_scan(self, data):
        """Enough changes for many snapshots, and peers enough that they differ in size."""
        rng = data.draw(st.randoms(use_true_random=False))
        changes = {}
        for i in range(1, 40):
            rounds = rng.sample(range(2000), 2 * rng.randint(1, 40))
            changes[0, i] = sorted(rounds)
        schedule = ContactTrace(40, changes, 1.0)
        for k in [0, 1999, 2000, *(rng.randrange(2000) for _ in range(50))]:
            expected = [i for (_, i), c in changes.items() if sum(r <= k for r in c) % 2]
            weight = 1 / (len(expected) + 1)
            assert schedule.out_edges(0, k) == tuple((i, weight) for i in expected)

    def test_take_memory_in_proportion_to_the_contacts(self):
        """A star whose spokes come and go: snapshots of all peers are the worst case."""
        sizes = []
        for num_contacts in (2000, 4000):
            contacts = {
                (0, i): [
                    r for k in range(0, num_contacts, 100) for r in (1000 * k + i, 1000 * k + 900)
                ]
                for i in range(1, 101)
            }
            history = ContactTrace(101, contacts, 1.0)._history(0, of_senders=False)
            assert history.at(500) == tuple(range(1, 101))
            sizes.append(len(history._rounds) + sum(len(peers) for peers in history._snapshots))
        changes = 2 * 4000
        assert sizes[1] <= 2 * changes
        assert sizes[1] < 2.2 * sizes[0]


class TestWeights:
    @given(trace=contact_traces(), k=st.integers(0, 90))
    def test_are_uniform_over_links_and_self_or_metropolis(self, trace, k):
        graph = trace.graph(k)
        d = dict(graph.out_degree())
        for j, i, weight in graph.edges(data="weight"):
            most = d[j] if trace.weights == "column_stochastic" else max(d[j], d[i])
            assert Fraction(1, 1 + most) == Fraction(weight).limit_denominator(100)
        if trace.weights == "metropolis":
            assert is_doubly_stochastic(mixing_matrix(graph))

    def test_metropolis_needs_every_contact_both_ways(self, tmp_path):
        lines = "0,0,1,10\n0,1,0,20\n"
        with pytest.raises(TopologyError, match=r"contacts\.csv: metropolis .* 0 -> 1 has no such"):
            load(tmp_path, lines, weights="metropolis")
        assert load(tmp_path, lines, weights="metropolis", undirected=True).num_rounds == 2

    def test_unknown_weights_are_refused(self):
        with pytest.raises(TopologyError, match="no weights 'equal'"):
            ContactTrace(2, {(0, 1): [0, 1]}, 1.0, weights="equal")


class TestDevices:
    def test_whole_numbers_are_the_devices(self, tmp_path):
        assert links(load(tmp_path, "0,02,0,1\n0,2,01,1\n"), 0) == {(2, 0), (2, 1)}

    def test_names_are_numbered_in_sorted_order_and_shown(self, tmp_path):
        schedule = load(tmp_path, "0,rome,bern,1\n0,bern,oslo,1\n")
        assert schedule.names == ("bern", "oslo", "rome")
        assert links(schedule, 0) == {(2, 0), (0, 1)}
        with pytest.raises(
            TopologyError, match=r"device 0 \(bern\) sends can reach device 2 \(rome\)"
        ):
            check_schedule(schedule)

    def test_a_thousand_devices_are_asked_for_their_own_edges_only(self):
        n = 1000
        ring = {(j, (j + 1) % n): [j, j + 1] for j in range(n)}
        schedule = ContactTrace(n, ring, 1.0, repeat=True)
        assert schedule.out_edges(999, 5 * n + 999) == ((0, 0.5),)
        assert len(schedule._histories) == 1

    def test_survives_a_move_to_another_process(self):
        schedule = ContactTrace(2, {(0, 1): [0, 3]}, 1.0)
        assert pickle.loads(pickle.dumps(schedule)) == schedule


class TestConnectivity:
    def test_contacts_need_connect_devices_only_together(self, tmp_path):
        lines = HEADER + "0,0,1,1\n50,1,2,1\n90,2,0,1\n"
        path = write(tmp_path, lines)
        schedule = build_schedule("trace", 3, seed=1, path=path, seconds_per_round=10)
        assert schedule.seconds_per_round == 10
        with pytest.raises(TopologyError, match=r"device 2 within 5 rounds; .*or train for more"):
            check_schedule(schedule, 5)

    @pytest.mark.parametrize(
        ("repeat", "rounds"), [(False, "within any round"), (True, "within 6 rounds")]
    )
    def test_who_cannot_be_reached_is_said_with_the_file(self, tmp_path, repeat, rounds):
        path = write(tmp_path, HEADER + "0,0,1,1\n50,1,0,1\n")
        with pytest.raises(TopologyError) as refusal:
            build_schedule("trace", 3, seed=1, path=path, seconds_per_round=10, repeat=repeat)
        assert str(refusal.value) == (
            f"{path}: not strongly connected: nothing that device 0 sends can reach device 2 "
            f"{rounds}; add links that way"
        )


class TestRefusals:
    def test_of_many_names_a_few_are_said(self, tmp_path):
        path = write(
            tmp_path, HEADER + "".join(f"{k},a,{name},1\n" for k, name in enumerate("bcdefg"))
        )
        with pytest.raises(
            TopologyError, match=r"line 7: g is .*, 6: beside a, b, c, d, e, \.\.\.$"
        ):
            build_schedule("trace", 6, seed=1, path=path, seconds_per_round=1)

    @pytest.mark.parametrize(
        ("lines", "complaint"),
        [
            ("0,0,3,1\n", "line 2: there is no device 3; the fleet has 0 to 2"),
            (f"0,0,{'9' * 90},1\n", "line 2: there is no device 999"),
            (f"0,0,{'9' * 5000},1\n", "line 2: has a cell of more than 100 characters"),
            (
                "0,a,b,1\n1,c,a,1\n2,a,d,1\n",
                "line 4: d is one name more than .*, 3: beside a, b, c$",
            ),
            ("0,a,b,1\n", "names 2 devices, but the fleet has 3; set fleet.devices: 2"),
            ("0,0,1,1\n2,1,x,1\n", "line 3: x is a name, but 0 of line 2 a number; use one kind"),
            ("0,x,y,1\n2,1,x,1\n", "line 3: 1 is a number, but x of line 2 a name; use one kind"),
            ("0,,1,1\n", "line 2: names no device"),
            ("0,1,1,1\n", "line 2: 1 is in contact with itself; remove that line"),
            ("-1,0,1,1\n", "line 2: time is -1; must be at least 0"),
            ("5,0,1,1\n\n4.5,1,2,1\n", r"line 4: time 4\.5 is before 5 of line 2; sort the lines"),
            ("0,0,1,0\n", "line 2: duration is 0; must be above 0"),
            ("0,0,1,-2\n", "line 2: duration is -2; must be above 0"),
            ("soon,0,1,1\n", "line 2: time is 'soon'; must be a number of seconds"),
            ("0,0,1,nan\n", "line 2: duration is 'nan'; must be a number of seconds"),
            ("0,0,1,inf\n", "line 2: duration is 'inf'; must be a number of seconds"),
            ("0,0,1,\n", "line 2: duration is ''; must be a number of seconds"),
            ("1600000000000,0,1,9\n", "line 2: ends after 1e.12 s; times are in seconds from 0"),
            ("1,0,1,1e999999999\n", "line 2: ends after"),
            ("9e999999999,0,1,9e999999999\n", "line 2: ends after"),
            ("1e99999999999999999999,0,1,1\n", "line 2: time is '1e9.*; must be a number of sec"),
            ("0,0,1\n", "line 2: has 3 cells; must be time, source, target, duration"),
            ("0,0,1,1,7\n", "line 2: has 5 cells; must be"),
            ('0,0,1,"1\n', "is no comma-separated text"),
            ("", "has no contacts"),
            ("# nothing\n", "has no contacts"),
        ],
    )
    def test_a_bad_line_is_refused_by_its_number(self, tmp_path, lines, complaint):
        with pytest.raises(TopologyError, match=rf"contacts\.csv.*{complaint}") as refusal:
            load(tmp_path, lines)
        assert len(str(refusal.value).splitlines()) == 1

    @pytest.mark.parametrize(
        ("content", "complaint"),
        [
            ("", "is empty; must begin with the line time,source,target,duration"),
            ("0,0,1,1\n", "line 1: has the columns 0, 0, 1, 1; must be time, source, target, dur"),
            ("# x\ntime,source,target\n", "line 2: has the columns time, source, target; must be"),
            ("time,source,target,duration,rssi\n", "line 1: has the columns .*rssi; must be time"),
            ("time,time,source,target,duration\n", "line 1: has the columns time, time"),
        ],
    )
    def test_missing_columns_are_refused_with_those_that_must_be(
        self, tmp_path, content, complaint
    ):
        path = write(tmp_path, content)
        with pytest.raises(TopologyError, match=rf"contacts\.csv.*{complaint}"):
            load_trace(path, 3, seconds_per_round=10)

    def test_columns_may_stand_in_any_order(self, tmp_path):
        path = write(tmp_path, "Target, Source, Duration, Time\n1, 0, 5, 20\n")
        assert list(load_trace(path, 3, seconds_per_round=10).contacts.items()) == [
            ((0, 1), load(tmp_path, "20,0,1,5\n").contacts[0, 1])
        ]

    @pytest.mark.parametrize("seconds", [0.0, -1.0, 1e-9, float("nan"), float("inf")])
    def test_rounds_without_length_are_refused(self, tmp_path, seconds):
        with pytest.raises(TopologyError, match=r"seconds_per_round is .*; must be at least 1e-06"):
            load(tmp_path, "0,0,1,1\n", seconds_per_round=seconds)

    def test_files_that_are_none_are_refused(self, tmp_path):
        for path, complaint in [
            (tmp_path / "none.csv", "cannot be read: No such file"),
            (tmp_path, "cannot be read: Is a directory"),
        ]:
            with pytest.raises(TopologyError, match=f"^{re.escape(str(path))}: {complaint}"):
                load_trace(path, 3, seconds_per_round=10)
        (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00\x81 a\n")
        with pytest.raises(TopologyError, match="is no text in UTF-8"):
            load_trace(tmp_path / "bytes.csv", 3, seconds_per_round=10)

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
    @given(data=st.data())
    def test_a_mutated_file_is_read_or_refused_and_nothing_else(self, tmp_path, data):
        content = bytearray((HEADER + "0,0,1,1\n2.5,1,2,10\n7,2,0,3\n").encode())
        for _ in range(data.draw(st.integers(1, 3))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path = tmp_path / "mutated.csv"
        path.write_bytes(content)
        with contextlib.suppress(TopologyError):
            assert load_trace(path, 3, seconds_per_round=10).num_rounds > 0

    @pytest.mark.parametrize(
        ("contacts", "complaint"),
        [
            ({}, "a trace without contacts"),
            ({(0, 0): [0, 1]}, "contact 0 -> 0: is none between two devices"),
            ({(0, 3): [0, 1]}, "contact 0 -> 3: is none between two devices; there are 0 to 2"),
            ({(0, 1): [0]}, "its rounds must be begins and ends in turn"),
            ({(0, 1): []}, "its rounds must be"),
            ({(0, 1): [-1, 1]}, "its rounds must be"),
            ({(0, 1): [4, 4]}, "its rounds must be"),
        ],
    )
    def test_contacts_that_cannot_be_are_refused(self, contacts, complaint):
        with pytest.raises(TopologyError, match=complaint):
            ContactTrace(3, contacts, 1.0)


class TestFiguresOfLinks:
    HEADER = "time,source,target,duration,bandwidth_mbps,loss\n"

    def load(self, tmp_path, lines, **options):
        path = write(tmp_path, self.HEADER + lines)
        return load_trace(path, 3, seconds_per_round=10.0, **options)

    def test_are_those_of_a_link_in_all_of_its_contacts(self, tmp_path):
        trace = self.load(tmp_path, "0,0,1,10,5,0.1\n20,0,1,10,,\n30,1,2,10,,0.2\n40,2,0,10,,\n")
        assert trace.link_attributes(0, 1) == {"bandwidth_mbps": 5.0, "loss": 0.1}
        assert trace.link_attributes(1, 2) == {"loss": 0.2}
        assert trace.link_attributes(2, 0) == trace.link_attributes(1, 0) == {}

    def test_go_both_ways_if_contacts_do_and_follow_names(self, tmp_path):
        trace = self.load(tmp_path, "0,bob,cid,10,5,\n0,ann,bob,10,7,\n", undirected=True)
        figures = [trace.link_attributes(*edge) for edge in ((1, 2), (2, 1), (0, 1), (1, 0))]
        assert figures == [{"bandwidth_mbps": rate} for rate in (5.0, 5.0, 7.0, 7.0)]

    @pytest.mark.parametrize(
        ("lines", "said"),
        [
            (
                "0,0,1,10,5,\n20,0,1,10,6,\n",
                "line 3: the link 0 -> 1 has other figures than in line 2",
            ),
            ("0,0,1,10,fast,\n", "line 2: bandwidth_mbps is 'fast'; must be a number$"),
        ],
    )
    def test_that_contradict_each_other_or_are_no_numbers_are_refused(self, tmp_path, lines, said):
        with pytest.raises(TopologyError, match=said):
            self.load(tmp_path, lines)

    @pytest.mark.parametrize("column", ["speed", "bandwidth_mbps,bandwidth_mbps"])
    def test_with_a_foreign_or_a_second_column_are_refused(self, tmp_path, column):
        path = write(tmp_path, f"time,source,target,duration,{column}\n0,0,1,10,5,5\n")
        with pytest.raises(TopologyError, match=r"of links maybe bandwidth_mbps, latency_ms"):
            load_trace(path, 3, seconds_per_round=10.0)
