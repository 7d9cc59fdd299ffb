"""What a scenario asks for and its run never reaches is said before the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgesim.assembly.studied_scenario import studied_scenario
from edgesim.scenario import load_scenario
from edgesim.study.notices import unreached as module
from edgesim.study.notices.unreached import absence_notices, clock_notices, evaluation_notices

SCENARIOS = Path(__file__).parents[2] / "scenarios"

FREE = (
    "fleet={devices: 4, profile: raspberry-pi-4b, pace: free}",
    "training.virtual_time_s=3600",
    "evaluation={every_virtual_s: 300}",
)


def clock_says(*overrides: str, num_rounds: int = 690) -> list[str]:
    scenario = load_scenario(SCENARIOS / "quickstart.yaml", (*FREE, *overrides))
    return clock_notices(studied_scenario(scenario), num_rounds)


def test_a_clock_limit_that_the_epochs_never_reach_is_said_with_what_follows():
    limit, evaluations = clock_says()
    assert "training.virtual_time_s is 3600, but all 4 devices end with training.epochs" in limit
    assert "690 rounds" in limit
    assert "raise training.epochs" in limit
    assert "evaluation.every_virtual_s is 300" in evaluations


def test_a_device_that_ends_before_the_others_is_named():
    """One is some twenty times quicker: it ends well before a limit that the others reach."""
    devices = "[{profile: arduino-portenta-h7, count: 3}, {profile: jetson-nano}]"
    overrides = (
        f"fleet={{pace: free, devices: {devices}}}",
        "training.virtual_time_s=1.5",
        "evaluation={every_virtual_s: 1}",
    )
    scenario = load_scenario(SCENARIOS / "quickstart.yaml", overrides)
    (text,) = clock_notices(studied_scenario(scenario), 100)
    assert "but device 3 ends with training.epochs, 100 rounds, after about" in text


def test_a_limit_that_is_reached_is_not_spoken_of():
    assert clock_says("training.virtual_time_s=0.2", "evaluation.every_virtual_s=0.1") == []
    lockstep = load_scenario(SCENARIOS / "quickstart.yaml", ("fleet.profile=gap9",))
    assert clock_notices(studied_scenario(lockstep), 360) == []


@pytest.mark.parametrize(
    "override",
    [
        "fleet.compute_jitter=0",
        "fleet.compute_jitter=0.2",
        "fleet.duty_cycle={period_s: 1, awake_s: 0.05}",
    ],
    ids=["even", "jitter", "asleep after these rounds"],
)
def test_what_is_reckoned_from_a_part_of_the_rounds_is_near_what_the_clocks_say(
    monkeypatch, override
):
    """The last of 1,200 rounds, from the first 240: radios are half-duplex."""
    scenario = load_scenario(SCENARIOS / "quickstart.yaml", (*FREE, override))
    studied = studied_scenario(scenario)
    exact = module._ends_s(studied, 300, 3600.0)
    monkeypatch.setattr(module, "MOST_ROUNDS", 240)
    reckoned = module._ends_s(studied, 300, 3600.0)
    assert exact.keys() == reckoned.keys() == {0, 1, 2, 3}
    for device, end_s in exact.items():
        assert reckoned[device] == pytest.approx(end_s, rel=0.05)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("evaluation={every_rounds: 400}",), "evaluation.every_rounds is 400"),
        ((*FREE, "evaluation={every_virtual_s: 3600}"), "evaluation.every_virtual_s is 3600"),
        ((*FREE, "evaluation={every_epochs: 2}"), "use every_virtual_s"),
    ],
)
def test_an_evaluation_that_never_comes_is_said(overrides, said):
    scenario = load_scenario(SCENARIOS / "quickstart.yaml", overrides)
    (text,) = evaluation_notices(scenario, 360)
    assert said in text
    assert "at the end of training alone" in text


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        FREE,
        ("evaluation={every_rounds: 359}",),
        (*FREE, "evaluation={}"),
        ("evaluation={every_epochs: 31}",),
    ],
    ids=["by epochs", "by the clock", "by rounds", "at the end", "by more epochs"],
)
def test_evaluations_that_come_are_not_spoken_of(overrides):
    scenario = load_scenario(SCENARIOS / "quickstart.yaml", overrides)
    assert evaluation_notices(scenario, 360) == []


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in sorted(SCENARIOS.rglob("*.yaml"))
        if "\nsweep:" not in path.read_text()
        and path.parent.name != "text"  # which read texts
        and path.stem != "femnist"  # which reads LEAF's files
    ],
    ids=lambda path: path.stem,
)
def test_the_clocks_and_evaluations_of_shipped_scenarios_come(path):
    needs = {"cifar10", "imagenette"} & set(path.read_text().split())
    scenario = load_scenario(path, ("data.path=x",) if needs else ())
    studied = studied_scenario(scenario)
    assert evaluation_notices(scenario, studied.num_rounds) == []
    assert clock_notices(studied, studied.num_rounds) == []
    assert absence_notices(scenario, studied.num_rounds) == []


FLEET = "fleet={{devices: 4, profile: raspberry-pi-4b, pace: free, churn: {{{}}}}}"
LATE = "absent: [{device: 3, from_s: 9, until_s: 10}], joins: [{device: 1, at_s: 8}], "
LATE += "leaves: [{device: 0, at_s: 1000000}]"


def churn_says(churn: str, *overrides: str, num_rounds: int = 100_000) -> list[str]:
    return clock_says(
        FLEET.format(churn), "topology={kind: complete}", *overrides, num_rounds=num_rounds
    )


def test_churn_at_or_after_the_clock_limit_is_said():
    limit = ("training.virtual_time_s=0.5", "evaluation.every_virtual_s=0.25")
    says = churn_says(LATE, *limit)
    begins = ["absent.0: device 3 is absent", "joins.0: device 1 joins", "leaves.0: device 0 lea"]
    assert len(says) == len(begins)
    for text, begin in zip(says, begins, strict=True):
        assert text.startswith(f"fleet.churn.{begin}")
        assert text.endswith("but training.virtual_time_s is 0.5: that never comes")
    assert churn_says("leaves: [{device: 0, at_s: 0.49}]", *limit) == []
    (text,) = churn_says("leaves: [{device: 0, at_s: 0.5}]", *limit)
    assert "leaves.0" in text


def test_churn_after_the_last_round_is_said_with_and_without_a_clock_limit():
    for limit in ("training.virtual_time_s=3600", "training.virtual_time_s=null"):
        says = churn_says(LATE.replace("1000000", "3000"), limit, "evaluation={}", num_rounds=20)
        absent, join, leave = (text for text in says if text.startswith("fleet.churn"))
        assert "device 3 is absent from 9 s until 10 s, but it does its last round by" in absent
        assert absent.endswith("that never comes")
        assert "device 1 joins at 8 s, but all that send to it do their last round by" in join
        assert join.endswith("it gets no model")
        assert "device 0 leaves at 3000 s, but it does its last round by" in leave
    early = "leaves: [{device: 0, at_s: 0.01}]"
    assert churn_says(early, "training.virtual_time_s=null", "evaluation={}", num_rounds=20) == []


def test_random_absences_far_beyond_the_clock_limit_are_not_drawn():
    """There would be more of them than a device may have."""
    churn = "random: {absence_probability: 0.3, mean_absence_s: 0.01}"
    limit = ("training.virtual_time_s=60", "evaluation={}")
    assert churn_says(churn, *limit, num_rounds=20_000_000) == []


def test_of_much_churn_that_never_comes_some_is_named():
    entries = ", ".join(
        f"{{device: 1, from_s: {9 + 2 * n}, until_s: {10 + 2 * n}}}" for n in range(11)
    )
    limit = ("training.virtual_time_s=0.5", "evaluation.every_virtual_s=0.25")
    says = churn_says(f"absent: [{entries}]", *limit)
    assert len(says) == 9
    assert says[-1] == "fleet.churn: 3 more that never come"


def absences_say(*overrides: str) -> list[str]:
    """Of ten epochs."""
    scenario = load_scenario(SCENARIOS / "quickstart.yaml", ("training.epochs=10", *overrides))
    return absence_notices(scenario, studied_scenario(scenario).num_rounds)


def test_an_absence_after_the_last_round_of_lockstep_is_said():
    def says(from_round: int, *more: int) -> list[str]:
        absent = ", ".join(
            f"{{device: 1, from_round: {n}, until_round: {n + 1}}}" for n in (from_round, *more)
        )
        churn = f"fleet.churn={{absent: [{absent}]}}"
        return absences_say(churn, "topology={kind: complete}")

    ten_epochs = load_scenario(SCENARIOS / "quickstart.yaml", ("training.epochs=10",))
    num_rounds = studied_scenario(ten_epochs).num_rounds
    (text,) = says(num_rounds)
    assert text == (
        f"fleet.churn.absent.0: begins in round {num_rounds}, but rounds are numbered from 0 to "
        f"{num_rounds - 1}: that never comes"
    )
    assert says(num_rounds - 1) == []
    many = says(*range(num_rounds, num_rounds + 22, 2))
    assert len(many) == 9
    assert many[-1] == "fleet.churn: 3 more that never come"
