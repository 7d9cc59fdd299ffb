"""The trained model of a run as a file: its values, or a program."""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from trained_models import SMALL

import edgesim
from edgesim.api.device_models import NoModelError
from edgesim.api.programs import NoProgramError
from edgesim.api.trained import FileNameError
from edgesim.cli import main
from edgesim.cli.export import _figures, write_model


@pytest.mark.parametrize("name", ["int8", "own"])
def test_saved_values_fit_another_module(run_of, tmp_path, name):
    model = edgesim.trained_model(run_of(name), 2)
    model.save(tmp_path / "model.pt")
    content = torch.load(tmp_path / "model.pt", weights_only=True)
    assert content["device"] == 2
    assert (
        content["run_digest"]
        == json.loads((run_of(name).path / "run.json").read_text())["run_digest"]
    )
    assert content["mean"] == list(model.mean)
    other = edgesim.trained_model(run_of(name), 0)
    assert other.evaluate() != model.evaluate()
    other.module.load_state_dict(content["state_dict"])
    wanted, given = model.module.state_dict(), other.module.state_dict()
    assert all(torch.equal(given[key], value) for key, value in wanted.items())


@pytest.mark.parametrize("name", ["evonorm_s0", "range_evonorm", "batch", "own"])
def test_a_program_gives_the_same_outputs_for_batches_of_any_size(run_of, tmp_path, name):
    model = edgesim.trained_model(run_of(name))
    model.export(tmp_path / "model.pt2")
    extra = {"edgesim.json": ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=extra).module()
    about = json.loads(extra["edgesim.json"])
    assert about["mean"] == list(model.mean)
    assert about["input_shape"] == list(model.input_shape)
    model.module.train()  # a program evaluates anyway
    model.export(tmp_path / "again.pt2")
    model.module.eval()
    again = torch.export.load(tmp_path / "again.pt2")
    assert all(not example.any() for example in again.example_inputs[0])  # no sample of the fleet
    for inputs, _ in model.test_batches():
        assert torch.equal(program(inputs), again.module()(inputs))
        for some in (inputs, inputs[:3], inputs[:1]):
            torch.testing.assert_close(program(some), model.module(some))
    assert all(parameter.requires_grad for parameter in model.module.parameters()) == (
        name != "own"
    )


def test_a_program_of_images_for_kernels_has_none():
    """At 32x32 pixels EvoNorm-S0 takes a compiled kernel, which a program can't have."""
    from edgesim.models.evonorm import EvoNormS0

    norm = EvoNormS0(16).requires_grad_(requires_grad=False)
    x = torch.randn(2, 16, 32, 32)
    program = torch.export.export(norm, (x,)).module()
    torch.testing.assert_close(program(x), norm(x))


def test_eight_bits_are_no_program(run_of, tmp_path):
    model = edgesim.trained_model(run_of("int8"))
    with pytest.raises(NoProgramError, match=r"8-bit layers.*\.pt$"):
        model.export(tmp_path / "model.pt2")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["int8", "int8, random", "signals", "norms"])
def test_a_model_in_8_bits_can_leave_as_one_in_fp32(run_of, tmp_path, name):
    """The same function but for the rounding; its values fit the class as it is."""
    in_8_bits = edgesim.trained_model(run_of(name), 1)
    model = in_8_bits.full_precision()
    kinds = {type(layer).__module__ for layer in model.module.modules()}
    assert not any(kind.startswith("edgesim.quant") for kind in kinds)
    assert model.full_precision() is model
    model.export(tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    for inputs, _ in in_8_bits.test_batches():
        wanted, given = in_8_bits.module(inputs), model.module(inputs)
        torch.testing.assert_close(program(inputs), given)
        # In 8 bits activations are clipped to their running ranges, so lengths differ.
        assert torch.cosine_similarity(given.flatten(), wanted.flatten(), dim=0) > 0.97
    assert in_8_bits.evaluate() == edgesim.trained_model(run_of(name), 1).evaluate()


def test_a_fleet_that_began_with_8_bit_values_can_leave_in_fp32_too(run_of, tmp_path):
    edgesim.trained_model(run_of("signals")).save(tmp_path / "start.pt")
    model = run_of("signals").scenario.model.model_dump() | {"start_from": tmp_path / "start.pt"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", edgesim.ScenarioWarning)
        run = edgesim.run("quickstart", out=tmp_path / "run", inline=True, model=model, **SMALL)
    in_8_bits = edgesim.trained_model(run)
    full = in_8_bits.full_precision().evaluate()
    assert full.loss == pytest.approx(in_8_bits.evaluate().loss, rel=0.2)


def test_a_batch_norm_gets_its_statistics_back(run_of, tmp_path):
    model = edgesim.trained_model(run_of("signals"), 0)
    model.full_precision().save(tmp_path / "model.pt")
    values = torch.load(tmp_path / "model.pt", weights_only=True)["state_dict"]
    norm, own = model.module[2], torch.nn.BatchNorm1d(8).eval()
    own.load_state_dict({key.removeprefix("2."): v for key, v in values.items() if key[:2] == "2."})
    x = torch.randn(5, 8, 64)
    wanted = norm.gamma[:, None] * (x - norm.running_mean[:, None]) * norm.running_scale[:, None]
    torch.testing.assert_close(own(x), wanted + norm.beta[:, None], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("model.onnx", r"must end in \.pt2, of a program, or in \.pt or \.pth, of values"),
        ("", r"is a folder; name a file in it"),
        ("nowhere/model.pt", r"there is no folder .*nowhere; make it first"),
        ("s3://bucket/model.pt", r"must be a file of this machine"),
    ],
)
def test_files_that_can_not_be_written_are_refused_at_once(run_of, tmp_path, file, said):
    place = Path(file) if "://" in file else tmp_path / file
    with pytest.raises(FileNameError, match=said):
        write_model(run_of("batch").place, place, None)
    assert not list(tmp_path.iterdir())


def test_the_command_says_if_figures_are_not_those_of_the_run(run_of, tmp_path):
    run = run_of("own")
    table = write_model(run.place, tmp_path / "model.pt", None)
    assert not table.notes
    other = replace(run, evaluations=run.evaluations.assign(loss=1.0))
    rows, is_same = _figures(other, edgesim.trained_model(run))
    assert not is_same
    assert any("in the run's last evaluation 1.0000" in row[1] for row in rows)


def test_the_command_takes_names_of_devices(tmp_path):
    names = ["attic", "garden", "hall"]
    run = edgesim.run("quickstart", out=tmp_path / "run", inline=True, fleet__names=names, **SMALL)
    table = write_model(run.place, tmp_path / "model.pt", "garden")
    assert ("model", "of device garden") in table.rows
    assert torch.load(tmp_path / "model.pt", weights_only=True)["device"] == 1
    with pytest.raises(NoModelError, match="has no device gardn; did you mean garden"):
        write_model(run.place, tmp_path / "model.pt", "gardn")


def exported(monkeypatch, capsys, *arguments):
    """What `edgesim export` prints."""
    monkeypatch.setattr(sys, "argv", ["edgesim", "export", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    return capsys.readouterr().out


def test_the_command_says_what_it_has_written(run_of, tmp_path, monkeypatch, capsys):
    run, file = run_of("int8"), tmp_path / "model.pt"
    printed = exported(monkeypatch, capsys, run.place, str(file), "--device", "1")
    accuracy = run.evaluations.iloc[-2]["accuracy"]
    assert f"{accuracy:.4f}; in the run's last evaluation {accuracy:.4f}" in printed
    assert "of device 1" in printed
    assert torch.load(file, weights_only=True)["device"] == 1


def test_the_command_gives_a_model_in_8_bits_fp32_layers(run_of, tmp_path, monkeypatch, capsys):
    file, place = tmp_path / "model.pt2", run_of("int8").place
    printed = exported(monkeypatch, capsys, place, str(file), "--full-precision")
    assert "averaged, in fp32 layers" in printed
    assert "The figures are not those of the run" not in printed
    assert torch.export.load(file).module()(torch.zeros(5, 1, 8, 8)).shape == (5, 10)


def test_the_command_writes_programs(run_of, tmp_path, monkeypatch, capsys):
    file = tmp_path / "model.pt2"
    printed = exported(monkeypatch, capsys, run_of("batch").place, str(file))
    assert f'torch.export.load("{file}").module()' in printed
    assert torch.export.load(file).module()(torch.zeros(5, 1, 8, 8)).shape == (5, 10)
