"""Section fleet.churn: what it refuses by itself, and what it becomes."""

from pathlib import Path
from typing import Any

import pytest
from test_scenario_files import LEAST, error_of, write
from test_scenario_schema import least, problem_of

from edgesim.assembly.build import make_schedule
from edgesim.assembly.equipment import device_hardware
from edgesim.errors import ScenarioError
from edgesim.scenario import Scenario, dump_scenario, load_scenario
from edgesim.scenario.presence import check_timed_leaves, make_timed_churn
from topologies import WithPresence

CHURN = {
    "absent": [{"device": 3, "from_round": 10, "until_round": 20}],
    "joins": [{"device": 1, "round": 30}],
    "leaves": [{"device": 2, "round": 50}],
    "random": {"absence_probability": 0.05, "mean_absence_rounds": 5},
}


def scenario_with(churn: dict[str, Any], **sections: Any) -> Scenario:
    return Scenario.model_validate(least(fleet={"devices": 4, "churn": churn}, **sections))


def in_rounds(rounds: int) -> dict[str, Any]:
    return {"training": {"rounds": rounds, "optimizer": {"lr": 0.1}}}


def test_becomes_a_schedule_without_the_edges_of_those_who_are_absent():
    planned = {key: CHURN[key] for key in ("absent", "joins", "leaves")}
    schedule = make_schedule(scenario_with(planned))
    assert isinstance(schedule, WithPresence)
    is_there = [schedule.presence.is_present(3, t) for t in (9, 10, 19, 20)]
    assert is_there == [True, False, False, True]
    assert [schedule.presence.join_round(d) for d in range(4)] == [0, 30, 0, 0]
    assert [schedule.presence.leave_round(d) for d in range(4)] == [None, None, 50, None]
    assert [i for i, _ in schedule.out_edges(0, 15)] == []
    assert [i for i, _ in schedule.out_edges(0, 30)] == [1, 3]


def test_a_fleet_without_churn_has_its_plain_schedule():
    schedule = make_schedule(Scenario.model_validate(least()))
    assert not isinstance(schedule, WithPresence)
    assert schedule.presence.leave_round(2) is None


def test_chance_follows_the_seed_of_the_scenario():
    def absences(seed: int) -> list[bool]:
        presence = make_schedule(scenario_with(CHURN, seed=seed)).presence
        return [presence.is_present(0, t) for t in range(300)]

    assert absences(1) == absences(1) != absences(2)


def test_is_written_out_so_that_it_reads_back_equal(tmp_path: Path):
    scenario = scenario_with(CHURN)
    assert load_scenario(write(tmp_path, dump_scenario(scenario))) == scenario


@pytest.mark.parametrize(
    ("churn", "problem"),
    [
        ({}, "absent is missing; give absent, joins, leaves or random, or no churn"),
        ({"absent": []}, "absent is missing; give absent"),
        (
            {"absent": [{"device": 3, "from_round": 10, "until_round": 10}]},
            "until_round is 10; must be above from_round, 10",
        ),
        (
            {"joins": [{"device": 1, "round": 5}, {"device": 4, "round": 5}]},
            "churn.joins.1.device is 4; must be from 0 to 3, one of the fleet's devices",
        ),
        (
            {"leaves": [{"device": 4, "round": 5}]},
            "churn.leaves.0.device is 4; must be from 0 to 3",
        ),
        (
            {"absent": [{"device": 9, "from_round": 5}]},
            "churn.absent.0.device is 9; must be from 0 to 3",
        ),
        (
            {"random": {"absence_probability": 0.9, "mean_absence_rounds": 5}},
            "mean_absence_rounds is 5; must be at least 9 for absence_probability: 0.9",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(churn: dict[str, Any], problem: str):
    assert problem in problem_of(fleet={"devices": 4, "churn": churn})


@pytest.mark.parametrize(
    ("churn", "error"),
    [
        ("{joins: [{device: 1, round: 0}]}", "joins[0].round is 0; must be a whole number from 1"),
        ("{leaves: [{device: 1}]}", "leaves[0].round is missing; must be a whole number"),
        ("{absent: [{device: -1, from_round: 0}]}", "absent[0].device is -1; must be a whole numb"),
        ("{absent: [{device: 1, form_round: 4}]}", "absent[0].form_round is an unknown key; did"),
        (
            "{random: {absence_probability: 1, mean_absence_rounds: 5}}",
            "random.absence_probability is 1; must be a number above 0 and below 1",
        ),
        (
            "{random: {absence_probability: 0.1, mean_absence_rounds: 0.5}}",
            "random.mean_absence_rounds is 0.5; must be a number in [1, 1e+09]",
        ),
        ("{leaves: [{device: 7, round: 5}]}", "leaves[0].device is 7; must be from 0 to 3"),
        ("12", "churn is 12; must be a mapping with the keys absent, joins, leaves, random"),
    ],
)
def test_a_wrong_value_is_refused_with_its_line(churn: str, error: str, tmp_path: Path):
    text = LEAST.replace("{devices: 4}", f"{{devices: 4, churn: {churn}}}")
    message = error_of(write(tmp_path, text))
    assert message.startswith("x.yaml:2: fleet.churn")
    assert error in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("churn", "sections", "error"),
    [
        (
            {"absent": [{"device": 1, "from_round": 1, "until_round": 9}], "joins": CHURN["joins"]},
            {},
            "fleet.churn: device 1 joins in round 30 and is absent from round 1 until round 9: the",
        ),
        (
            {"absent": [{"device": 1, "from_round": 0}]},
            {},
            "fleet.churn: device 1 is absent from round 0 for ever, so it is never there",
        ),
        (
            {"absent": [{"device": d, "from_round": d, "until_round": 9} for d in range(4)]},
            {},
            "fleet.churn: all 4 devices are absent or have left in round 3",
        ),
        (
            {"joins": CHURN["joins"]},
            in_rounds(30),
            "fleet.churn: device 1 is there in none of the 30 rounds (it comes in round 30); let",
        ),
        (
            {
                "absent": [
                    {"device": 1, "from_round": 0, "until_round": 15},
                    {"device": 2, "from_round": 15, "until_round": 30},
                ]
            },
            in_rounds(30) | {"topology": {"kind": "chain"}},
            "fleet.churn: not strongly connected: nothing that device 0 sends can reach devices 2",
        ),
    ],
)
def test_a_fleet_that_cannot_work_is_refused(churn: dict, sections: dict, error: str):
    with pytest.raises(ScenarioError) as refusal:
        make_schedule(scenario_with(churn, **sections))
    assert str(refusal.value).startswith(error)


def test_a_run_that_outlasts_the_last_join_is_accepted():
    assert make_schedule(scenario_with({"joins": CHURN["joins"]}, **in_rounds(31)))


def test_dcd_refuses_it():
    fleet = {"devices": 4, "churn": {"joins": CHURN["joins"]}}
    scenario = Scenario.model_validate(least(fleet=fleet, gossip={"algorithm": "dcd"}))
    said = "fleet.churn is set; gossip.algorithm: dcd needs the same graph"
    with pytest.raises(ScenarioError, match=said):
        make_schedule(scenario)


FREE = {"devices": 4, "pace": "free", "profile": "raspberry-pi-4b"}


@pytest.mark.parametrize(
    ("fleet", "churn", "problem"),
    [
        (
            FREE,
            {"joins": [{"device": 1, "round": 5}]},
            "joins.0.round counts rounds, of which each",
        ),
        (FREE, {"joins": [{"device": 1, "round": 5}]}, "at fleet.pace: free; give at_s"),
        (
            FREE,
            {"absent": [{"device": 1, "from_round": 5}]},
            "absent.0.from_round counts rounds, of which each device has its own at fleet.pace: fr",
        ),
        (
            FREE,
            {"absent": [{"device": 1, "from_s": 5}]},
            "absent.0.until_s is missing; say when the device is back, or name it in churn.leaves",
        ),
        (
            FREE,
            {"absent": [{"device": 1, "until_s": 5}]},
            "absent.0.from_s is missing; must be a number of seconds",
        ),
        (
            FREE,
            {"absent": [{"device": 1, "from_s": 5, "until_s": 5}]},
            "until_s is 5; must be above from_s, 5",
        ),
        (
            FREE,
            {"random": {"absence_probability": 0.1, "mean_absence_rounds": 5}},
            "random.mean_absence_rounds counts rounds, of which each device has its own at fleet.p",
        ),
        (
            FREE,
            {"leaves": [{"device": 2}]},
            "leaves.0.at_s is missing; must be a number of seconds",
        ),
        (
            {"devices": 4},
            {"leaves": [{"device": 2, "at_s": 5}]},
            "leaves.0.at_s is in seconds, but in lockstep churn counts rounds; give round",
        ),
        (
            {"devices": 4},
            {"random": {"absence_probability": 0.1}},
            "random.mean_absence_rounds is missing; must be a number of rounds",
        ),
        (
            {"devices": 4, "presumed_dead_after_s": 5},
            {"joins": [{"device": 1, "round": 5}]},
            "presumed_dead_after_s is set; in lockstep a device whose battery is empty hands over",
        ),
    ],
)
def test_churn_is_in_the_unit_of_the_pace(fleet: dict, churn: dict, problem: str):
    assert problem in problem_of(fleet={**fleet, "churn": churn})


def test_at_free_pace_it_becomes_churn_by_time():
    churn = {
        "absent": [{"device": 3, "from_s": 10, "until_s": 20}],
        "joins": [{"device": 1, "at_s": 30}],
        "leaves": [{"device": 2, "at_s": 50}],
    }
    scenario = Scenario.model_validate(
        least(fleet={**FREE, "churn": churn}, topology={"kind": "complete"})
    )
    schedule, timed_churn = make_schedule(scenario), make_timed_churn(scenario)
    assert not isinstance(schedule, WithPresence)
    assert [timed_churn.is_present(3, t) for t in (9.9, 10, 19.9, 20)] == [True, False, False, True]
    assert (timed_churn.join_s(1), timed_churn.leave_s(2)) == (30, 50)
    hardware = device_hardware(scenario, schedule)
    assert hardware[3].duty_cycle.awakening(12.0) == 20.0
    assert hardware[1].duty_cycle.awakening(0.0) == 30.0
    assert hardware[0].links[2].leaves_s == hardware[2].leaves_s == 50
    check_timed_leaves(scenario, schedule)


@pytest.mark.parametrize(
    ("topology", "leaves", "error"),
    [
        ("directed_ring", [2], "nothing that device 0 sends can reach device 3"),
        ("directed_ring", [2, 3], "device 2 leaves at 5 s, and so do all that it sends to"),
        ("star", [0], "nothing that device 1 sends can reach device 2"),
        ("ring", [2], None),
        ("complete", [0, 1, 2], None),
    ],
)
def test_who_stays_must_reach_each_other(topology: str, leaves: list[int], error: str | None):
    churn = {"leaves": [{"device": device, "at_s": 5} for device in leaves]}
    scenario = Scenario.model_validate(
        least(fleet={**FREE, "churn": churn}, topology={"kind": topology})
    )
    if error is None:
        check_timed_leaves(scenario, make_schedule(scenario))
    else:
        with pytest.raises(ScenarioError, match=error):
            check_timed_leaves(scenario, make_schedule(scenario))
