"""A model begins with the values of a file, in runs of every kind."""

from __future__ import annotations

import os
import pickle
import re
import warnings

import numpy as np
import pytest
import torch
import yaml

import edgesim
from edgesim.assembly.build import PLAIN, make_flat_model
from edgesim.assembly.preparation import prepare
from edgesim.fleet.plan import FleetPlan
from edgesim.models.start_values import StartValuesError, read_start_values

SMALL = {
    "fleet__devices": 3,
    "training__rounds": 6,
    "data__train_samples": 120,
    "evaluation": {"every_rounds": 2, "samples": 40},
}
OWN = """
from torch import nn

def make(input_shape, num_classes):
    frozen = nn.Linear(64, 32).requires_grad_(False)
    return nn.Sequential(nn.Flatten(), frozen, nn.ReLU(), nn.Linear(32, num_classes))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run, and the file of its averaged model."""
    folder = tmp_path_factory.mktemp("trained")
    run = edgesim.run("quickstart", out=folder / "run", inline=True, **SMALL)
    edgesim.trained_model(run).save(folder / "model.pt")
    return run, folder / "model.pt"


def start(folder, **changes):
    """A run that begins with a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", edgesim.ScenarioWarning)
        return edgesim.run("quickstart", out=folder, inline=True, **{**SMALL, **changes})


def initial(scenario, **changes):
    """The model of a scenario before its first step, and what was prepared."""
    prepared = edgesim.validate(scenario, **changes).prepared
    return make_flat_model(prepared.scenario, prepared.data, PLAIN, prepared.start), prepared


def test_devices_begin_with_the_values(trained):
    run, file = trained
    flat, prepared = initial("quickstart", model__start_from=str(file))
    wanted = run.models.consensus.z.astype("float32")
    np.testing.assert_array_equal(flat.parameters.numpy(), wanted)
    plan = FleetPlan(
        prepared.scenario,
        prepared.schedule,
        prepared.data,
        prepared.training,
        PLAIN,
        "",
        start=prepared.start,
    )
    sent = pickle.loads(pickle.dumps(plan))  # to an actor
    there = make_flat_model(sent.scenario, sent.data, sent.compute, sent.start)
    np.testing.assert_array_equal(there.parameters.numpy(), wanted)


@pytest.mark.parametrize("norm", ["evonorm_s0", "batch"])
def test_fp32_and_8_bits_begin_with_each_others_values(trained, tmp_path, norm):
    model = {"name": "small_cnn", "norm": norm}
    there = start(tmp_path / "fp32", model=model)
    edgesim.trained_model(there).save(tmp_path / "fp32.pt")
    eight = {**model, "precision": "int8", "start_from": str(tmp_path / "fp32.pt")}
    if norm == "evonorm_s0":
        eight["norm"] = "range_evonorm"
    low = start(tmp_path / "int8", model=eight)
    edgesim.trained_model(low).save(tmp_path / "int8.pt")
    back, _ = initial("quickstart", model={**model, "start_from": str(tmp_path / "int8.pt")})
    np.testing.assert_array_equal(
        back.parameters.numpy(),
        low.models.consensus.z.astype("float32")[: back.parameters.numel()],
    )


def test_what_else_differs_from_the_file_is_told(trained, tmp_path):
    """Another norm of the same parameters, another gate, images that were normalised otherwise."""
    _, file = trained

    def notices(path, **model):
        given = {"name": "small_cnn", "start_from": str(path), **model}
        checked = edgesim.validate("quickstart", model=given, **SMALL)
        assert ("begins with", f"values of {path}") in checked.table.rows
        return [line for line in checked.notices if "start_from" in line]

    assert notices(file) == []
    (norm,) = notices(file, precision="int8")
    assert norm == (
        "model.start_from: model.pt has values of a model with norm: evonorm_s0, and this one has "
        "range_evonorm: the same values give other outputs"
    )
    content = torch.load(file, weights_only=True)
    scenario = yaml.safe_load(content["scenario"])
    scenario["model"] |= {"norm": "range_evonorm", "gate": "sigmoid"}
    deviation = content["std"][0]
    changed = {
        "gate.pt": {"scenario": yaml.safe_dump(scenario)},
        "near.pt": {"mean": [content["mean"][0] + 0.04 * deviation]},
        "far.pt": {"mean": [content["mean"][0] + 0.06 * deviation]},
        "wide.pt": {"std": [1.06 * deviation]},
        "later.pt": {"scenario": "model: {name: small_cnn, of_a_later_version: 1}"},
        "strange.pt": {"scenario": 3, "mean": "grey", "std": [None]},
        "half.pt": {"scenario": "model: {name: [1]}", "std": [1]},
    }
    for name, part in changed.items():
        torch.save(content | part, tmp_path / name)
    said = {name: notices(tmp_path / name) for name in list(changed)[1:]}
    (gate,) = notices(tmp_path / "gate.pt", precision="int8")
    assert "with gate: sigmoid, and this one has hard_sigmoid" in gate
    assert [len(lines) for lines in said.values()] == [0, 1, 1, 0, 0, 0]
    assert "was trained on images that were normalised by mean" in said["far.pt"][0]


def test_statistics_and_frozen_layers_begin_with_theirs(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    name = f"{tmp_path}/own.py:make"
    flat, _ = initial("quickstart", model__name=name)
    values = {key: value + 1 for key, value in flat.model.inner.state_dict().items()}
    torch.save(values, tmp_path / "values.pt")
    changed, _ = initial("quickstart", model={"name": name, "start_from": f"{tmp_path}/values.pt"})
    for key, value in changed.model.inner.state_dict().items():
        assert torch.equal(value, values[key]), key


def test_a_run_goes_on_without_the_file(trained, tmp_path):
    _, file = trained
    copy = tmp_path / "model.pt"
    copy.write_bytes(file.read_bytes())
    whole = start(tmp_path / "whole", model__start_from=str(copy))
    assert not np.array_equal(whole.models[0].x, trained[0].models[0].x)
    with pytest.raises(RuntimeError, match="enough"):
        start(tmp_path / "cut", model__start_from=str(copy), on_evaluation=_stop)
    copy.write_bytes(b"something else")
    again = edgesim.resume(tmp_path / "cut")
    copy.unlink()
    assert all(not part.difference for part in edgesim.compare_runs(whole, again))
    model = edgesim.trained_model(again)
    assert model.evaluate().accuracy == again.consensus["accuracy"].iloc[-1]


def _stop(evaluation):
    if evaluation.round == 2:
        raise RuntimeError("enough")


def test_the_file_is_part_of_what_a_run_is(trained, tmp_path):
    _, file = trained
    plain, other = (
        prepare(edgesim.load_scenario("quickstart", **change)).digest(PLAIN)
        for change in ({}, {"model__start_from": str(file)})
    )
    assert plain != other
    content = torch.load(file, weights_only=True)
    content["state_dict"]["head.bias"][0] += 1e-3
    torch.save(content, tmp_path / "model.pt")
    moved = {"model__start_from": str(tmp_path / "model.pt")}
    first = prepare(edgesim.load_scenario("quickstart", **moved)).digest(PLAIN)
    content["state_dict"]["head.bias"][0] += 1e-3
    torch.save(content, tmp_path / "model.pt")
    assert first != prepare(edgesim.load_scenario("quickstart", **moved)).digest(PLAIN)


def test_paths_are_relative_to_the_scenario_and_cells_are_held_to_one_file(trained, tmp_path):
    _, file = trained
    (tmp_path / "model.pt").write_bytes(file.read_bytes())
    small = edgesim.load_scenario("quickstart", **SMALL).model_dump(mode="json")
    small["model"]["start_from"] = "model.pt"
    scenario = tmp_path / "small.yaml"
    scenario.write_text(yaml.safe_dump(small))
    assert edgesim.load_scenario(scenario).model.start_from == str(tmp_path / "model.pt")
    cells = {"grid": {"seed": [1, 2]}}
    edgesim.sweep(scenario, {"grid": {"seed": [1]}}, out=tmp_path / "sweep", workers=1)
    content = torch.load(file, weights_only=True)
    content["state_dict"]["head.bias"][0] += 1
    torch.save(content, tmp_path / "model.pt")
    with pytest.warns(edgesim.SweepWarning, match=r"model\.pt of this cell differ from those of"):
        edgesim.sweep(scenario, cells, out=tmp_path / "sweep", workers=1)


def test_a_folder_is_told_what_makes_a_file_of_it(tmp_path):
    with pytest.raises(StartValuesError, match=r"is a folder; of a run, .*`edgesim export RUN"):
        read_start_values(tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, r"model\.start_from: .*model\.pt: can't be read: No such file or directory"),
        (
            b"no values",
            r"model\.start_from: .*is no file of values; write one with `edgesim export",
        ),
        (b"hello", r"is no file of values"),
        (b"a,b,c", r"is no file of values"),
        ([1, 2], r"has no `state_dict`, nor tensors by their names"),
        ({}, r"has no `state_dict`, nor tensors by their names"),
        ("head.bias", r"has no value of head\.bias$"),
        ({"tail": torch.zeros(2)}, r"has values of tail, which the model lacks$"),
        (
            {"head.bias": torch.zeros(3)},
            r"head\.bias has shape \(3,\), and the model's has \(10,\)",
        ),
        ({"head.bias": torch.full((10,), torch.nan)}, r"head\.bias has values that are not finite"),
    ],
)
def test_values_that_do_not_fit_are_refused(trained, tmp_path, content, said):
    values = torch.load(trained[1], weights_only=True)["state_dict"]
    file = tmp_path / "model.pt"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif isinstance(content, str):
        del values[content]
        torch.save(values, file)
    elif isinstance(content, dict) and content:
        torch.save(values | content, file)
    elif content is not None:
        torch.save(content, file)
    with pytest.raises(edgesim.ScenarioError) as error:
        edgesim.validate("quickstart", model__start_from=str(file))
    assert re.search(said, str(error.value)), str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_parameters_and_16_bits_are_values_too(trained, tmp_path):
    values = torch.load(trained[1], weights_only=True)["state_dict"]
    of_bf16 = {name: torch.nn.Parameter(value.bfloat16()) for name, value in values.items()}
    torch.save(of_bf16, tmp_path / "model.pt")
    flat, _ = initial("quickstart", model__start_from=str(tmp_path / "model.pt"))
    wanted = torch.cat([value.detach().float().reshape(-1) for value in of_bf16.values()])
    assert torch.equal(flat.parameters, wanted)


@pytest.mark.parametrize("share", [0.3, 0.95])
def test_a_file_that_was_cut_short_is_refused(trained, tmp_path, share):
    content = trained[1].read_bytes()
    (tmp_path / "cut.pt").write_bytes(content[: int(share * len(content))])
    with pytest.raises(StartValuesError, match=r"is damaged: a part of it|is no file of values"):
        read_start_values(tmp_path / "cut.pt")


def test_a_file_that_runs_code_is_refused(tmp_path):
    class Code:
        def __reduce__(self):
            return os.system, ("touch ran",)

    torch.save({"head.bias": Code()}, tmp_path / "model.pt")
    with pytest.raises(StartValuesError, match="no file of values"):
        read_start_values(tmp_path / "model.pt")
