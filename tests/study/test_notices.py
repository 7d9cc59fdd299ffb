"""What is easily overlooked is said before a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgesim.assembly.studied_scenario import StudiedScenario, studied_scenario
from edgesim.errors import ScenarioError
from edgesim.scenario import load_scenario
from edgesim.study import notices as module
from edgesim.study.batteries import battery_notices, check_batteries
from edgesim.study.notices import (
    clock_notices,
    evaluation_notices,
    precision_notices,
)

SCENARIOS = Path(__file__).parents[2] / "scenarios"
INT8 = "model.precision=int8"
IDENTITY = "gossip.compressor={kind: identity, values: fp32}"


def notices(*overrides: str, name: str = "quickstart") -> list[str]:
    return precision_notices(load_scenario(SCENARIOS / f"{name}.yaml", overrides))


@pytest.mark.parametrize("norm", ["evonorm_s0", "batch", "group"])
def test_a_norm_of_fp32_in_an_8_bit_model_is_named(norm):
    (text,) = notices(INT8, f"model.norm={norm}", IDENTITY)
    assert f"model.norm: {norm} computes in fp32" in text
    assert "model.norm: null" in text


@pytest.mark.parametrize("norm", ["range_evonorm", "range_batch"])
def test_a_norm_of_8_bits_is_not(norm):
    assert notices(INT8, f"model.norm={norm}", IDENTITY) == []


def test_8_bit_values_that_nobody_asked_for_are_named():
    (text,) = notices(INT8)
    assert "messages carry 8-bit values" in text
    assert "set gossip.compressor.values to fp32 or fp16 to send more precise values" in text


@pytest.mark.parametrize(
    "override",
    [
        "gossip.compressor={kind: top_k, keep: 0.1, values: int8}",
        "gossip.compressor={kind: min_max_uint8}",
        "gossip={algorithm: gradient_push}",
        "gossip={algorithm: gradient_tracking}",
    ],
)
def test_what_the_scenario_says_itself_is_not(override):
    assert notices(INT8, override) == []


@pytest.mark.parametrize(
    "gossip",
    ["gossip.compressor={kind: identity}", "gossip={algorithm: choco, averaging_rate: 0.5}"],
)
def test_fp32_values_that_nobody_asked_for_are_named(gossip):
    (text,) = notices(INT8, gossip)
    assert text.startswith("messages carry fp32 values though model.precision is int8")
    (remedy,) = re.findall(r"\{.*\}", text)
    assert notices(INT8, gossip, f"gossip.compressor={remedy}") == []
    assert notices(INT8, gossip, IDENTITY) == []


@pytest.mark.parametrize("name", ["quickstart", "cifar10_ring8", "study/cifar10_pi4_10mbit"])
def test_nothing_is_to_be_said_of_shipped_scenarios_in_fp32(name):
    assert notices("data.path=x" if "cifar" in name else "seed=1", name=name) == []


FREE = (
    "fleet={devices: 4, profile: raspberry-pi-4b, pace: free}",
    "training.virtual_time_s=3600",
    "evaluation={every_virtual_s: 300}",
)


MINE = "name: mine, based_on: raspberry-pi-5"
TIMES = "layer_times: [{layer: linear_fp32, call_us: 1.0}]"


@pytest.mark.parametrize(
    ("figures", "taken_over"),
    [
        ("", "idle_power_w, active_power_w, radio"),
        (", radio: {bandwidth_mbps: 90}", "idle_power_w, active_power_w, radio.send_uj_per_byte, "),
        (", idle_power_w: 2, active_power_w: 5", "radio"),
    ],
)
def test_what_a_measured_profile_has_from_another_is_named(figures, taken_over):
    """A profile without measured times is based on another one by design."""

    def said(times, profile="mine"):
        keys = f"hardware.profiles=[{{{MINE}{times}{figures}}}]", f"fleet.profile={profile}"
        scenario = load_scenario(SCENARIOS / "quickstart.yaml", keys)
        found = module.notices(studied_scenario(scenario), 4)
        return [text for text in found if "measured times" in text]

    (text,) = said(f", {TIMES}")
    assert text.startswith(f"the profile mine has measured times, but {taken_over}")
    assert " of raspberry-pi-5: so energy is not that of the measured device" in text
    assert not said("")
    assert not said(f", {TIMES}", "raspberry-pi-5")


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
        "training.virtual_time_s=2",
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
    [(), FREE, ("evaluation={every_rounds: 359}",), (*FREE, "evaluation={}")],
    ids=["by epochs", "by the clock", "by rounds", "at the end"],
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


@pytest.mark.parametrize("pace", ["free", "lockstep"])
@pytest.mark.parametrize("table", ["profile", "horowitz_45nm"])
def test_a_battery_that_cannot_pay_for_the_first_round_is_said(pace, table):
    devices = "[{profile: raspberry-pi-4b, count: 3}, {profile: raspberry-pi-4b, battery_wh: %s}]"
    table_key = f"hardware.energy_table={table}"

    def says(battery_wh: str) -> list[str]:
        fleet = f"fleet={{pace: {pace}, devices: {devices % battery_wh}}}"
        studied = first_rounds(fleet, table_key)
        check_batteries(studied)  # the other three go on
        return battery_notices(studied)

    (text,) = says("1.0e-6")
    assert text.startswith("device 3: its battery holds 0.0036 J, and its first round takes")
    assert text.endswith("overdraws the battery; raise battery_wh")
    assert says("1") == says("plugged_in") == []


@pytest.mark.parametrize("pace", ["free", "lockstep"])
def test_a_fleet_of_which_no_battery_pays_for_the_first_round_is_refused(pace):
    def check(*batteries_wh: str) -> None:
        devices = ", ".join(
            f"{{profile: raspberry-pi-4b, battery_wh: {wh}, count: 2}}" for wh in batteries_wh
        )
        check_batteries(first_rounds(f"fleet={{pace: {pace}, devices: [{devices}]}}"))

    with pytest.raises(ScenarioError, match="no device has a battery that can pay") as refused:
        check("1.0e-6", "2.0e-6")
    enough_wh = float(
        re.search(r"set battery_wh above (\S+) for each round", str(refused.value))[1]
    )
    check("1.0e-6", f"{1.1 * enough_wh:.9f}")  # two significant digits are said
    with pytest.raises(ScenarioError):
        check("1.0e-6", f"{0.9 * enough_wh:.9f}")
    check("1.0e-6", "plugged_in")


def first_rounds(*overrides: str) -> StudiedScenario:
    """Of a scenario whose rounds have large batches."""
    scenario = load_scenario(SCENARIOS / "quickstart.yaml", (*overrides, "data.batch_size=256"))
    return studied_scenario(scenario)
