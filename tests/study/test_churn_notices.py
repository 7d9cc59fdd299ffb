"""What `edgesim cost` says of churn in lockstep, which its figures leave out."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgesim.assembly.studied_scenario import studied_scenario
from edgesim.scenario import load_scenario
from edgesim.study.churn_notices import presence_notices

QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"


def says(churn: str) -> list[str]:
    """Of a fleet of 8 and 50 rounds."""
    length = ("training.epochs=null", "training.rounds=50", "topology={kind: complete}")
    scenario = load_scenario(QUICKSTART, (*length, f"fleet.churn={{{churn}}}"))
    return presence_notices(studied_scenario(scenario))


@pytest.mark.parametrize(
    ("churn", "said"),
    [
        (
            "absent: [{device: 1, from_round: 2, until_round: 20}]",
            "device 1 is there in 32 of 50 rounds",
        ),
        ("absent: [{device: 1, from_round: 40}]", "device 1 is there in 40 of 50 rounds"),
        ("joins: [{device: 3, round: 18}]", "device 3 is there in 32 of 50 rounds"),
        ("leaves: [{device: 2, round: 6}]", "device 2 is there in 6 of 50 rounds"),
        (
            "random: {absence_probability: 0.1, mean_absence_rounds: 3}",
            "all are absent at random",
        ),
    ],
    ids=["absent", "for ever", "joins", "leaves", "at random"],
)
def test_who_is_not_there_in_all_rounds_is_named(churn, said):
    (text,) = says(churn)
    assert text.startswith(f"fleet.churn: {said}; here a device takes a step in each round")


def test_of_many_some_are_named():
    (text,) = says("joins: [" + ", ".join(f"{{device: {n}, round: 5}}" for n in range(1, 8)) + "]")
    assert "device 4 is there in 45 of 50 rounds, and 3 more; here" in text


def test_who_is_there_all_the_time_and_free_pace_have_no_notice():
    assert says("absent: [{device: 1, from_round: 50}]") == []
    assert presence_notices(studied_scenario(load_scenario(QUICKSTART))) == []
