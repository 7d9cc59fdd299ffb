"""Section model: switches of 8 bits, their defaults, and what contradicts what."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest
from test_catalogs_agree import slot_at
from test_scenario_files import LEAST, error_of, write

from edgesim.models.catalog import Initialization
from edgesim.models.norms import NORMS
from edgesim.quant.arithmetic import Gate
from edgesim.quant.settings import QuantizationSettings
from edgesim.scenario import dump_scenario, load_scenario
from edgesim.scenario.model import QuantizationSection

INT8 = "model.precision=int8"


def model_of(folder, *overrides):
    return load_scenario(write(folder, LEAST), overrides).model


def test_norms_are_those_that_can_be_built():
    assert set(slot_at("model", "norm").names) == set(NORMS)


def test_gates_and_initialisations_are_those_of_the_models():
    assert set(slot_at("model", "gate").names) == set(get_args(Gate))
    assert set(slot_at("model", "initialization").names) == set(get_args(Initialization))


def test_switches_and_their_values_are_those_of_the_settings():
    hints = get_type_hints(QuantizationSettings)
    switches = set(QuantizationSection.model_fields) - {"backend"}
    assert switches == set(hints)
    for switch in switches:
        names = slot_at("model", "quantization", switch).names
        assert set(names) == set(get_args(hints[switch])), switch


def test_defaults_are_a_plain_model_in_fp32(tmp_path):
    model = model_of(tmp_path)
    assert model.precision == "fp32"
    assert model.norm is None
    assert model.norm_used == "evonorm_s0"
    assert model.gate is None
    assert model.initialization == "full_precision"
    assert model.quantization is None


def test_defaults_of_the_switches_round_activations_to_nearest_and_gradients_at_random(tmp_path):
    """reference.md, section 1.4 calls the reference code's rounding of activations a mistake."""
    model = model_of(tmp_path, INT8, "model.quantization={}")
    assert model.quantization is not None
    assert model.quantization.model_dump() == {
        "backend": "auto",
        "zero_point": "integer",
        "weight_range": "per_tensor",
        "weight_gradient": "fp32",
        "activation_rounding": "nearest",
        "evaluation_rounding": "nearest",
        "gradient_rounding": "stochastic",
        "ranges": "local",
        "range_momentum": 0.1,
    }


def test_switches_are_no_more_needed_than_given(tmp_path):
    assert model_of(tmp_path, INT8).quantization is None
    one = model_of(tmp_path, INT8, "model.quantization.weight_gradient=fp16")
    assert one.quantization == QuantizationSection(weight_gradient="fp16")


def test_switches_of_the_reference_code_can_all_be_chosen(tmp_path):
    """reference.md, section 12: its first values."""
    chosen = {
        "zero_point": "float_offset",
        "weight_range": "per_tensor",
        "weight_gradient": "fp32",
        "activation_rounding": "stochastic",
        "evaluation_rounding": "stochastic",
        "gradient_rounding": "stochastic",
        "ranges": "gossiped",
        "range_momentum": 0.1,
    }
    overrides = [f"model.quantization.{key}={value}" for key, value in chosen.items()]
    model = model_of(
        tmp_path, INT8, "model.norm=range_evonorm", "model.initialization=low_precision", *overrides
    )
    assert model.quantization is not None
    assert model.quantization.model_dump(exclude={"backend"}) == chosen


def test_quantization_is_refused_for_fp32_with_its_key_named(tmp_path):
    path = write(tmp_path, LEAST)
    expected = "model.quantization is given; must be null or absent for precision: fp32"
    assert expected in error_of(path, "model.quantization.weight_gradient=fp16")
    assert expected in error_of(path, "model.quantization={}")
    assert model_of(tmp_path, "model.quantization=null").quantization is None


def test_quantization_is_refused_in_a_file_with_its_line(tmp_path):
    text = LEAST.replace(
        "model: {name: small_cnn}", "model:\n  name: small_cnn\n  quantization: {backend: auto}"
    )
    assert error_of(write(tmp_path, text)).startswith("x.yaml:9: model.quantization is given; must")


@pytest.mark.parametrize(
    ("override", "error"),
    [
        ("model.precision=int4", "model.precision is the text 'int4'; must be one of fp32, int8"),
        ("model.norm=range", "model.norm is the text 'range'; must be one of batch, group, evonor"),
        ("model.quantization.zero_point=float", "model.quantization.zero_point is the text"),
        ("model.quantization.weight_gradient=16", "weight_gradient is 16; must be one of fp32, "),
        (
            "model.quantization.weigth_range=per_tensor",
            "weigth_range is an unknown key; did you mean",
        ),
        ("model.quantization=[]", "model.quantization is an empty list; must be"),
    ],
)
def test_wrong_switches_are_refused_in_one_line(override, error, tmp_path):
    message = error_of(write(tmp_path, LEAST), INT8, override)
    assert error in message
    assert "\n" not in message


def test_switches_survive_a_scenario_that_is_written_and_read(tmp_path):
    scenario = load_scenario(
        write(tmp_path, LEAST),
        [INT8, "model.quantization.weight_range=per_out_channel", "model.norm=range_batch"],
    )
    again = tmp_path / "again.yaml"
    again.write_text(dump_scenario(scenario))
    assert load_scenario(again) == scenario


@pytest.mark.parametrize(
    "overrides",
    [
        (
            INT8,
            "model.quantization.zero_point=float_offset",
            "model.quantization.weight_range=per_out_channel",
        ),
        (INT8, "model.norm=range_evonorm", "model.gate=sigmoid"),
        ("model.norm=batch", "model.gate=hard_sigmoid"),
    ],
    ids=["one grid for all weights", "gate in int8", "gate of another norm"],
)
def test_a_choice_that_can_not_be_heeded_is_refused(overrides, tmp_path):
    error_of(write(tmp_path, LEAST), *overrides)


@pytest.mark.parametrize(("precision", "norm"), [("fp32", "evonorm_s0"), ("int8", "range_evonorm")])
def test_the_norm_is_the_precisions_own_unless_another_is_named(tmp_path, precision, norm):
    assert model_of(tmp_path, f"model.precision={precision}").norm_used == norm
    named = model_of(tmp_path, f"model.precision={precision}", "model.norm=batch")
    assert named.norm_used == "batch"


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (
            (INT8, "model.quantization={backend: int8_cpu, zero_point: float_offset}"),
            "model.quantization.backend is int8_cpu; must be auto or reference",
        ),
        (
            (INT8, "model.quantization.backend=int8_cpu", "fleet.accelerator=cuda"),
            "model.quantization.backend is int8_cpu; must be auto or reference",
        ),
        (
            ("fleet.accelerator=cpu", "fleet.gpus_per_actor=0.5"),
            "fleet.gpus_per_actor is 0.5; must be auto or absent for accelerator: cpu",
        ),
        ((INT8, "model.quantization.range_momentum=1"), "model.quantization.range_momentum is"),
    ],
)
def test_what_can_not_work_is_refused_when_it_is_read(tmp_path, overrides, key):
    assert key in error_of(write(tmp_path, LEAST), *overrides)
