"""What `edgesim cost` and `validate` say of churn."""

from __future__ import annotations

from pathlib import Path

import pytest
from study_scenarios import as_if_long

from edgesim.assembly.studied_scenario import studied_scenario
from edgesim.scenario import load_scenario
from edgesim.study.churn_notices import presence_notices
from edgesim.study.notices.draining import draining_notices

QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"


def says(churn: str) -> list[str]:
    """Of a fleet of 8 and 50 rounds, as of a long training."""
    length = ("training.epochs=null", "training.rounds=50", "topology={kind: complete}")
    scenario = load_scenario(QUICKSTART, (*length, f"fleet.churn={{{churn}}}"))
    with as_if_long():
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
        ("leaves: [{device: 2, round: 6}]", "device 2 is there in 10 of 50 rounds"),
        (
            "random: {absence_probability: 0.1, mean_absence_rounds: 3}",
            "all are absent at random",
        ),
    ],
    ids=["absent", "for ever", "joins", "leaves", "at random"],
)
def test_who_is_not_there_in_all_rounds_is_named(churn, said):
    (text,) = says(churn)
    assert text.startswith(f"fleet.churn: {said}; here all devices are there in all rounds")


def test_of_many_some_are_named():
    (text,) = says("joins: [" + ", ".join(f"{{device: {n}, round: 5}}" for n in range(1, 8)) + "]")
    assert "device 4 is there in 45 of 50 rounds, and 3 more; here" in text


def test_who_is_there_all_the_time_and_free_pace_have_no_notice():
    assert says("absent: [{device: 1, from_round: 50}]") == []
    assert presence_notices(studied_scenario(load_scenario(QUICKSTART))) == []


RING = ("topology={kind: directed_ring}", "gossip={algorithm: gradient_push}")


def drained(
    *settings: str, absent: str = "{device: 2, from_round: 5, until_round: 25}"
) -> list[str]:
    length = ("training.epochs=null", "training.rounds=50", *RING)
    churn = f"fleet.churn={{absent: [{absent}]}}"
    scenario = load_scenario(QUICKSTART, (*length, churn, *settings))
    return draining_notices(studied_scenario(scenario), 50)


def test_an_absence_that_cuts_a_device_of_a_directed_ring_off_is_told():
    """The device after the absent one receives nothing and sends on: its push weight halves."""
    (said,) = drained()
    assert said.startswith(
        "fleet.churn: from round 5 to 24 devices are absent so that nothing reaches device 3: push"
    )
    (said,) = drained(absent="{device: 7, from_round: 45}")
    assert "from round 45 to 49 devices are absent so that nothing reaches device 0:" in said
    (said,) = drained("gossip.local_steps=2")
    assert "nothing reaches device 3" in said


@pytest.mark.parametrize(
    "settings",
    [
        ("topology={kind: ring}",),
        ("training.optimizer.step_on=model",),
        ("topology={kind: complete}",),
    ],
    ids=["both directions", "steps on models", "complete"],
)
def test_where_no_push_weight_drains_there_is_no_notice(settings):
    assert drained(*settings) == []


def test_short_absences_drain_little():
    assert drained(absent="{device: 2, from_round: 5, until_round: 9}") == []


@pytest.mark.parametrize("seed", range(4))
def test_absences_at_random_are_none_of_the_plan(seed):
    """In round 0 some are absent; they are back in a few rounds."""
    at_random = "random: {absence_probability: 0.3, mean_absence_rounds: 3}"
    short = "{device: 2, from_round: 5, until_round: 9}"
    churn = f"fleet.churn={{absent: [{short}], {at_random}}}"
    assert drained(f"seed={seed}", churn) == []
    (said,) = drained(f"seed={seed}", churn.replace("until_round: 9", "until_round: 25"))
    assert "from round 5 to 24 devices are absent so that nothing reaches device 3: push" in said


def test_at_free_pace_churn_is_said_to_be_left_out():
    fleet = (
        "fleet={devices: 4, pace: free, profile: raspberry-pi-5, "
        "churn: {joins: [{device: 1, at_s: 0.01}]}}"
    )
    length = ("training.epochs=null", "training.rounds=50", "topology={kind: complete}")
    scenario = load_scenario(QUICKSTART, (*length, fleet))
    (said,) = presence_notices(studied_scenario(scenario))
    assert said.startswith("fleet.churn: at free pace nobody is absent, joins late or leaves here")
