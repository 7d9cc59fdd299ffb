"""What is easily overlooked is said before a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import edgesim
from edgesim.assembly.studied_scenario import StudiedScenario, studied_scenario
from edgesim.errors import ScenarioError
from edgesim.scenario import load_scenario
from edgesim.study.notices import notices as module
from edgesim.study.notices.batteries import battery_notices, check_batteries
from edgesim.study.notices.notices import partition_notices, precision_notices

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


def test_kinds_of_layers_without_times_in_a_measured_profile_are_named():
    """As in profiles that an older edgesim has measured."""
    mine = f"hardware.profiles=[{{{MINE}, {TIMES}}}]"

    def said(*overrides):
        scenario = load_scenario(SCENARIOS / "quickstart.yaml", (mine, *overrides))
        return module.untimed_notices(studied_scenario(scenario))

    (text,) = said("fleet.profile=mine")
    assert text.startswith("the profile mine has no times of ends_fp32, ")
    assert "sgd_update" in text
    assert "linear_fp32" not in text
    assert not said("fleet.profile=raspberry-pi-5")


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


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("gossip={algorithm: dcd, compressor: {kind: min_max_uint8}}",), []),
        (
            ("gossip={algorithm: dcd, compressor: {kind: top_k, keep: 0.1}}",),
            ["gossip.compressor.kind is top_k: gossip.algorithm: dcd needs small errors"],
        ),
        (
            (
                "gossip={algorithm: dcd, compressor: {kind: min_max_uint8}}",
                "fleet={devices: 8, pace: free, profile: raspberry-pi-5}",
            ),
            ["fleet.pace is free: devices with gossip.algorithm: dcd agree there on a model"],
        ),
        (("gossip.compressor.keep=0.1",), []),
    ],
    ids=["8 bits", "top-k", "free", "CHOCO"],
)
def test_dcd_where_it_moves_devices_apart_is_named(overrides, said):
    overrides = ("topology={kind: ring, weights: metropolis}", *overrides)
    scenario = load_scenario(SCENARIOS / "quickstart.yaml", overrides)
    found = module._dcd_notices(scenario)
    assert len(found) == len(said)
    for line, begin in zip(found, said, strict=True):
        assert line.startswith(begin)


@pytest.mark.parametrize(("batch_size", "is_told"), [(180, False), (300, False), (400, True)])
def test_batches_of_more_than_twice_a_devices_samples_are_named(batch_size, is_told):
    """Of 1,442 images each of eight devices has 180."""
    overrides = (f"data.batch_size={batch_size}", "data.partition={kind: iid}")
    scenario = load_scenario(SCENARIOS / "quickstart.yaml", overrides)
    found = module.notices(studied_scenario(scenario), 30)
    told = [line for line in found if line.startswith("data.batch_size")]
    said = "data.batch_size is 400, and a device has 180 samples in the mean: so most"
    assert [line.startswith(said) for line in told] == [True] * is_told


def test_a_partition_of_ones_own_is_said_not_to_be_called(tmp_path):
    (tmp_path / "few.py").write_text(
        "def few(num_devices):\n    return [[device] for device in range(num_devices)]\n"
    )
    settings = {"data__partition": {"kind": f"{tmp_path}/few.py:few"}, "evaluation": {}}
    (said,) = edgesim.cost("quickstart", advice=False, **settings).notices
    assert "few.py:few is not called here, so rounds and epochs are those of a partition" in said
    settings |= {"training__epochs": None, "training__rounds": 3, "training__schedule": {}}
    assert not partition_notices(edgesim.load_scenario("quickstart", **settings))
