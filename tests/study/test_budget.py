"""Scenarios that don't fit their devices are refused, with what would make them fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgesim.assembly.budget import check_memory, memory_of_devices
from edgesim.errors import ScenarioError
from edgesim.scenario import Scenario, load_scenario

ROOT = Path(__file__).parents[2]


def scenario(*overrides: str) -> Scenario:
    return load_scenario(ROOT / "scenarios" / "cifar10_ring8.yaml", overrides)


def refusal(*overrides: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        check_memory(scenario(*overrides))
    return str(caught.value)


def test_what_fits_and_what_has_no_profile_passes():
    assert check_memory(scenario()) is None
    assert check_memory(scenario("fleet.profile=raspberry-pi-4b")) is None


def test_a_refusal_has_the_table_and_what_would_fit():
    text = refusal("fleet.profile=gap9")
    needed = memory_of_devices(scenario())[0]
    assert f"has 32.0 MiB and needs {needed.total / 2**20:,.1f}" in text
    assert f"activations {needed.activations / 2**20:,.2f}" in text
    assert "so do 7 more devices" in text
    assert len(text.splitlines()) == 2


def test_what_is_said_to_fit_fits_and_one_sample_more_does_not():
    text = refusal("fleet.profile=gap9")
    batch_size = int(text.partition("data.batch_size: ")[2].split()[0])
    assert check_memory(scenario("fleet.profile=gap9", f"data.batch_size={batch_size}")) is None
    refusal("fleet.profile=gap9", f"data.batch_size={batch_size + 1}")
    assert "or model.precision: int8;" in text
    assert check_memory(scenario("fleet.profile=gap9", "model.precision=int8")) is None


def test_a_norm_of_fp32_is_part_of_what_has_to_change():
    """Eight bits alone would leave it in fp32, and the model would not fit."""
    pinned = ("fleet.profile=gap9", "model.norm=evonorm_s0")
    assert "or model.precision: int8 with model.norm: null;" in refusal(*pinned)
    assert check_memory(scenario(*pinned, "model.precision=int8", "model.norm=null")) is None
    refusal(*pinned, "model.precision=int8")


def test_only_the_devices_that_are_short_are_named():
    devices = "fleet.devices=[{profile: raspberry-pi-4b, count: 7}, {profile: gap9}]"
    text = refusal(devices)
    assert "device 7 (gap9)" in text
    assert "so do" not in text


def test_where_nothing_helps_it_is_said():
    assert "a smaller model, or devices with more memory" in refusal(
        "fleet={devices: 8, profile: gap9}",
        "hardware.profiles=[]",
        "fleet.devices=[{profile: gap9, count: 8, memory_mib: 1}]",
        "fleet.profile=null",
    )


def test_a_warning_goes_on():
    text = check_memory(scenario("fleet.profile=gap9", "fleet.enforce_memory=warn"))
    assert text is not None
    assert "enforce_memory" not in text
