"""Presence by time: what is planned, what chance adds, what can't be."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from topologies import (
    TimedChurn,
    TimedRandomAbsence,
    TopologyError,
    build_timed_churn,
    timed_presence,
)


def build(**words) -> TimedChurn:
    return build_timed_churn(4, seed=3, **words)


def test_who_is_there_when():
    churn = build(
        absent=[{"device": 1, "from_s": 2.0, "until_s": 3.5}],
        joins=[{"device": 2, "at_s": 5.0}],
        leaves=[{"device": 1, "at_s": 9.0}],
    )
    assert [churn.is_present(1, t) for t in (0.0, 1.9, 2.0, 3.4, 3.5, 8.9, 9.0)] == [
        *(True, True, False, False, True, True, False)
    ]
    assert [churn.is_present(2, t) for t in (0.0, 4.9, 5.0, 99.0)] == [False, False, True, True]
    assert (churn.join_s(2), churn.join_s(1)) == (5.0, 0.0)
    assert (churn.leave_s(1), churn.leave_s(0)) == (9.0, inf)
    assert churn.next_absence(1, 2.5) == (2.0, 3.5)
    assert churn.next_absence(1, 3.5) == (inf, inf)
    assert churn.next_absence(2, 0.0) == (0.0, 5.0)
    assert all(churn.is_present(0, t) for t in (0.0, 1e9))


def test_absences_by_chance_take_their_share_and_have_their_length():
    chance = TimedRandomAbsence(absence_probability=0.3, mean_absence_s=2.0, seed=1)
    total, lengths, starts_absent = 0.0, [], 0
    for device in range(400):
        at = 0.0
        starts_absent += chance.next_absence(device, 0.0)[0] == 0.0
        while at < 200:
            start, end = chance.next_absence(device, at)
            assert start >= at or at == 0.0
            total += max(0.0, min(end, 200) - min(start, 200))
            lengths.append(end - start)
            at = end
    assert total / (400 * 200) == pytest.approx(0.3, abs=0.02)
    assert np.mean(lengths) == pytest.approx(2.0, rel=0.05)
    assert starts_absent / 400 == pytest.approx(0.3, abs=0.08)


def test_chance_depends_on_seed_and_device_alone():
    def row(order, seed=1):
        chance = TimedRandomAbsence(0.2, 1.0, seed)
        return {t: chance.next_absence(2, t) for t in order}

    forwards, backwards = range(0, 500, 7), range(497, -1, -7)
    assert row(forwards) == row(backwards)
    assert row(forwards) != row(forwards, seed=2)


def test_of_a_plan_and_chance_that_overlap_the_first_counts():
    churn = build(
        absent=[{"device": 0, "from_s": 4.0, "until_s": 6.0}],
        random={"absence_probability": 0.5, "mean_absence_s": 1.0},
    )
    assert churn.chance is not None
    for t in np.arange(0, 12, 0.1):
        away = churn.chance.next_absence(0, t)[0] <= t or 4.0 <= t < 6.0
        assert churn.is_present(0, t) is not away


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ({"joins": [{"device": 4, "at_s": 1.0}]}, "device 4 joins at 1 s, but there is no such"),
        (
            {"absent": [{"device": 1, "from_s": 2.0, "until_s": 2.0}]},
            "absences must end after they begin",
        ),
        ({"leaves": [{"device": 1, "at_s": 0.0}]}, "joins and leaves be later than 0 s"),
        (
            {
                "absent": [{"device": 1, "from_s": 2.0, "until_s": 5.0}],
                "leaves": [{"device": 1, "at_s": 4.0}],
            },
            "is absent from 2 s until 5 s and leaves at 4 s: the two overlap",
        ),
        (
            {"joins": [{"device": 1, "at_s": 4.0}], "leaves": [{"device": 1, "at_s": 4.0}]},
            "leaves at 4 s, when it joins",
        ),
        (
            {"joins": [{"device": d, "at_s": 1.0} for d in range(4)]},
            "each of the 4 devices joins later or leaves; one must be of the fleet",
        ),
        (
            {
                "leaves": [{"device": d, "at_s": 1.0} for d in range(3)],
                "joins": [{"device": 3, "at_s": 1.0}],
            },
            "each of the 4 devices joins later or leaves; one must be of the fleet",
        ),
        (
            {"random": {"absence_probability": 1.0, "mean_absence_s": 1.0}},
            "absence_probability is 1; must be above 0 and below 1",
        ),
    ],
)
def test_what_can_not_be_is_refused(words, problem):
    with pytest.raises(TopologyError, match=problem):
        build(**words)


def test_a_device_with_too_many_absences_by_chance_is_refused_when_they_are_asked_for(monkeypatch):
    """Each is drawn, and those of a long time would take all memory."""
    monkeypatch.setattr(timed_presence, "MOST_DRAWS", 64)
    chance = TimedRandomAbsence(absence_probability=0.5, mean_absence_s=1.0, seed=1)
    assert chance.next_absence(0, 50.0)[1] > 50  # some 25 of them
    with pytest.raises(TopologyError, match="device 0 is absent more than 64 times before 1,000 s"):
        chance.next_absence(0, 1000.0)
    assert chance.next_absence(0, 50.0)[1] > 50
