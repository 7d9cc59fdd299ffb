"""What is easily overlooked is said before a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgesim.scenario import load_scenario
from edgesim.study.notices import precision_notices

SCENARIOS = Path(__file__).parents[2] / "scenarios"
INT8 = "model.precision=int8"
IDENTITY = "gossip.compressor={kind: identity}"


def notices(*overrides: str, name: str = "quickstart") -> list[str]:
    return precision_notices(load_scenario(SCENARIOS / f"{name}.yaml", overrides))


@pytest.mark.parametrize("norm", ["evonorm_s0", "batch", "group"])
def test_a_norm_of_fp32_in_an_8_bit_model_is_named(norm):
    (text,) = notices(INT8, f"model.norm={norm}", IDENTITY)
    assert f"model.norm: {norm} computes in fp32" in text
    assert "model.norm: null" in text


@pytest.mark.parametrize("norm", ["null", "range_evonorm", "range_batch"])
def test_a_norm_of_8_bits_is_not(norm):
    assert notices(INT8, f"model.norm={norm}", IDENTITY) == []


def test_8_bit_values_that_nobody_asked_for_are_named():
    (text,) = notices(INT8)
    assert "messages carry 8-bit values" in text
    assert "gossip.compressor.values" in text


@pytest.mark.parametrize(
    "override",
    [
        "gossip.compressor={kind: top_k, keep: 0.1, values: int8}",
        "gossip.compressor={kind: min_max_uint8}",
        "gossip={algorithm: gradient_push}",
    ],
)
def test_what_the_scenario_says_itself_is_not(override):
    assert notices(INT8, override) == []


@pytest.mark.parametrize("name", ["quickstart", "cifar10_ring8", "study/cifar10_pi4_10mbit"])
def test_nothing_is_to_be_said_of_shipped_scenarios_in_fp32(name):
    assert notices("data.path=x" if "cifar" in name else "seed=1", name=name) == []
