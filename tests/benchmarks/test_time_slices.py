"""Contestants of a benchmark: whose turn it is, what of a slice counts, and what was done in it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import psutil
import pytest
import time_slices
from time_slices import Contestant, Look, Piece, Reporter, ended, take_turns


def _contestant_that_reported(*reports: list[tuple[float, int]]) -> Contestant:
    contestant = Contestant("made up", 0, 1e9)
    contestant._reports = list(reports)
    return contestant


def _piece(turn: int, start_s: float, end_s: float, stolen_s: float = 0.0) -> Piece:
    return Piece(turn, Look(start_s, 0.0, {}), Look(end_s, stolen_s, {}))


def test_rates_are_those_between_the_first_reports_after_the_edges_of_a_piece() -> None:
    contestant = _contestant_that_reported([(0.5, 0), (1.5, 3), (2.5, 10), (3.5, 11), (9.5, 99)])
    contestant.pieces = [_piece(0, 1.0, 3.0)]  # so from 1.5 to 3.5
    assert contestant.rates().tolist() == [(11 - 3) / 2.0]


def test_rates_of_the_pieces_of_a_turn_count_by_their_length() -> None:
    contestant = _contestant_that_reported([(float(second), second**2) for second in range(30)])
    contestant.pieces = [_piece(0, 1.0, 2.0), _piece(1, 10.0, 12.0), _piece(0, 4.0, 7.0)]
    assert contestant.rates().tolist() == [(3 + 33) / 4, 44 / 2]


def test_rates_of_several_processes_add_up() -> None:
    slow, fast = ([(float(s), speed * s) for s in range(9)] for speed in (3, 7))
    contestant = _contestant_that_reported(slow, fast)
    contestant.pieces = [_piece(0, 2.0, 5.0)]
    assert contestant.rates().tolist() == [10.0]


def test_thrifts_are_steps_by_the_processor_time_of_all_processes_in_the_same_pieces() -> None:
    contestant = _contestant_that_reported([(float(second), 4 * second) for second in range(30)])
    one, other = psutil.Process(), psutil.Process(1)
    for turn, start_s, spent_s in ((0, 1.0, 0.25), (0, 4.0, 0.75), (1, 9.0, 2.0)):
        before = Look(start_s, 0.0, {one: 7.0, other: 1.0})
        after = Look(start_s + 2.0, 0.0, {one: 7.0 + spent_s, other: 1.0 + 3 * spent_s})
        contestant.pieces.append(Piece(turn, before, after))
    # Two pieces of two seconds at 4 steps/s, with a second and three of the processes; then one.
    assert contestant.thrifts().tolist() == [16 / 4, 8 / 8]


def _count_steps(reporter: Reporter) -> None:
    for steps in count():
        reporter.report(steps)
        time.sleep(0.002)


@pytest.fixture
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("LEAD_S", 0.1), ("TAIL_S", 0.05), ("PIECE_S", 0.1), ("DRAIN_S", 0.02)):
        monkeypatch.setattr(time_slices, name, seconds)


@pytest.fixture
def two(short_slices: None) -> Iterator[list[Contestant]]:
    contestants = {name: Contestant(name, 3, 1e9) for name in ("first", "second")}
    with ended(contestants):
        for contestant in contestants.values():
            contestant.start(_count_steps)
            contestant.get_warm()
        yield list(contestants.values())


def test_each_contestant_runs_in_its_own_slices_alone(two: list[Contestant]) -> None:
    take_turns(two, seconds=0.2, turns=3)
    for contestant, other in (two, reversed(two)):
        assert [piece.turn for piece in contestant.pieces] == [0, 0, 1, 1, 2, 2]
        assert contestant.rates().min() > 0
        reports = [at_s for at_s, _ in contestant._reports[0]]
        for piece in other.pieces:
            assert not any(piece.before.at_s < at_s < piece.after.at_s for at_s in reports)


def test_nothing_is_left_of_contestants(short_slices: None) -> None:
    contestants = {"one": Contestant("one", 1, 1e9)}
    with ended(contestants):
        contestants["one"].start(_count_steps)
        contestants["one"].get_warm()  # and is stopped
        tree = contestants["one"].tree()
        assert tree
    assert not any(process.is_running() for process in tree)


def _stolen_in(monkeypatch: pytest.MonkeyPatch, stolen_s: list[float]) -> None:
    """Let the host take so much of each piece, one after the other; nothing of later ones."""
    looks = iter([0.0, *stolen_s])
    total = 0.0

    def at(processes: list[psutil.Process]) -> Look:
        nonlocal total
        total += next(looks, 0.0)
        return Look(time.monotonic(), total, dict.fromkeys(processes, 0.0))

    monkeypatch.setattr(Look, "at", at)


def test_pieces_that_the_host_disturbed_do_not_count(
    two: list[Contestant], monkeypatch: pytest.MonkeyPatch
) -> None:
    _stolen_in(monkeypatch, [64.0, 0.0, 32.0, 0.0])
    two[0].run_for(0.2, turn=0)
    assert [piece.stolen_s for piece in two[0].pieces] == [0.0, 0.0]


def test_on_a_host_that_is_never_calm_the_calmest_pieces_count(
    two: list[Contestant], monkeypatch: pytest.MonkeyPatch
) -> None:
    _stolen_in(monkeypatch, [64.0, 32.0, 128.0, 16.0, 64.0, 64.0])
    two[0].run_for(0.2, turn=0)
    assert sorted(piece.stolen_s for piece in two[0].pieces) == [16.0, 32.0]


def test_a_contestant_that_ends_within_its_slice_is_told(short_slices: None) -> None:
    contestants = {"brief": Contestant("brief", 1, 1e9)}
    with ended(contestants):
        contestants["brief"].start(_three_steps)
        contestants["brief"].get_warm()
        with pytest.raises(RuntimeError, match="brief did not report at the end of its slice"):
            contestants["brief"].run_for(0.2, turn=0)


def _three_steps(reporter: Reporter) -> None:
    for steps in range(4):
        reporter.report(steps)
    time.sleep(0.5)


def _listen(reporter: Reporter) -> None:
    reporter.report(1)
    while reporter.wait_to_be_asked(1.0):
        reporter.report(2)


def test_a_contestant_that_listens_leaves_when_it_is_told(short_slices: None) -> None:
    contestants = {"listener": Contestant("listener", 1, 1e9)}
    with ended(contestants):
        contestants["listener"].start(_listen)
        contestants["listener"].get_warm()
        contestants["listener"].run_for(0.2, turn=0)
        contestants["listener"].leave()
        assert contestants["listener"].processes[0].exitcode == 0
    assert contestants["listener"].least_done() == 2
