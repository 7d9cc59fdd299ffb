"""The trained model of a run gives the figures of its last evaluation, and can be written."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import edgesim
from edgesim.api.trained import ChangedModuleError, FileNameError, NoModelError, NoProgramError
from edgesim.cli import main
from edgesim.cli.export import _figures, write_model
from edgesim.data.errors import DataError
from edgesim.results.run_files import RunDirectoryError, RunFiles
from edgesim.storage.store import Store

SMALL = {
    "fleet__devices": 3,
    "training__rounds": 4,
    "data__train_samples": 120,
    "evaluation": {"every_rounds": 2, "samples": 40, "batch_size": 16},
}
GOSSIPED = {
    "zero_point": "integer",
    "activation_rounding": "stochastic",
    "evaluation_rounding": "stochastic",
    "ranges": "gossiped",
}
MODELS = {
    "evonorm_s0": {"name": "small_cnn"},
    "range_evonorm": {"name": "small_cnn", "norm": "range_evonorm"},
    "batch": {"name": "small_cnn", "norm": "batch"},
    "int8": {"name": "small_cnn", "precision": "int8", "norm": "range_evonorm"},
    "int8, random": {"name": "small_cnn", "precision": "int8", "quantization": GOSSIPED},
}
OWN = """
import torch
from torch import nn
from edgesim.models import BatchNormReLU, EvoNormS0, RangeEvoNorm

class Net(nn.Module):
    def __init__(self, input_shape, num_classes):
        super().__init__()
        self.frozen = nn.Linear(64, 32).requires_grad_(False)
        self.norm = nn.BatchNorm1d(32)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(32, num_classes)

        self.register_buffer("shift", torch.ones(32), persistent=False)

    def forward(self, x):
        return self.head(self.drop(self.norm(self.frozen(x.flatten(1)))) + self.shift)

def signals(input_shape, num_classes):
    return nn.Sequential(
        nn.Flatten(2), nn.Conv1d(1, 8, 5, padding=2), nn.BatchNorm1d(8), nn.ReLU(),
        nn.MaxPool1d(2), nn.Conv1d(8, 8, 3, padding=1), nn.BatchNorm1d(8), nn.ReLU(),
        nn.Flatten(), nn.Dropout(0.1), nn.Linear(256, num_classes),
    )

def norms(input_shape, num_classes):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), EvoNormS0(8, groups=4),
        nn.Conv2d(8, 8, 3, padding=1), RangeEvoNorm(8, groups=4, gate="sigmoid"),
        nn.Conv2d(8, 8, 3, stride=2, padding=1), BatchNormReLU(8),
        nn.Flatten(), nn.LayerNorm(128), nn.Linear(128, num_classes),
    )

class Large(nn.Sequential):
    def __init__(self, input_shape, num_classes):
        super().__init__(nn.Flatten(), nn.Linear(64, 16_384), nn.ReLU(), nn.Linear(16_384, 10))
"""


OWN_NAMES = {"large": "Large", "signals": "signals", "norms": "norms"}


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    """Gives a run of a model, made once."""
    folder, made = tmp_path_factory.mktemp("trained"), {}
    (folder / "own.py").write_text(OWN)

    def get(name):
        if name not in made:
            own = {"name": f"{folder}/own.py:{OWN_NAMES.get(name, 'Net')}"}
            own |= {"precision": "int8"} if name in ("signals", "norms") else {}
            out = folder / name.replace(", ", "-")
            model = MODELS.get(name, own)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", edgesim.ScenarioWarning)
                made[name] = edgesim.run("quickstart", out=out, inline=True, model=model, **SMALL)
        return made[name]

    return get


@pytest.mark.parametrize("name", [*MODELS, "own"])
def test_it_gives_the_figures_of_the_last_evaluation(run_of, name):
    run = run_of(name)
    last = run.evaluations.tail(4)
    for device, row in zip((None, 0, 1, 2), last.to_dict("records"), strict=True):
        model = edgesim.trained_model(run, device)
        assert model.device == row["device"]
        assert repr(model).startswith("<averaged model" if device is None else "<model of device")
        found = model.evaluate()
        assert (found.accuracy, found.loss) == (row["accuracy"], row["loss"])
        assert not model.module.training


@pytest.mark.parametrize("name", ["batch", "own", "large"])
def test_a_training_of_it_leaves_the_run_alone(run_of, name):
    """Also with dropout, and with so many parameters that fleets take gradients by hooks."""
    run = run_of(name)
    model = edgesim.trained_model(run.place)
    before = model.evaluate()
    trained = [parameter for parameter in model.module.parameters() if parameter.requires_grad]
    assert sum(parameter.numel() for parameter in trained) == model.num_parameters
    optimizer = torch.optim.SGD(trained, lr=0.05)
    model.module.train()
    for inputs, targets in [*model.test_batches()] * 3:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model.module(inputs), targets).backward()
        optimizer.step()
    assert model.evaluate().loss < before.loss
    assert edgesim.trained_model(run).evaluate() == before


def test_another_module_is_not_evaluated(run_of):
    model = edgesim.trained_model(run_of("batch"))
    model.module.head = torch.nn.Linear(64, 3)
    with pytest.raises(ChangedModuleError, match="other tensors than the model of the run"):
        model.evaluate()


def test_a_run_that_lacks_a_model_has_no_average(run_of, tmp_path):
    shutil.copytree(run_of("evonorm_s0").path, tmp_path / "run")
    (tmp_path / "run" / "models" / "device-000001.npz").unlink()
    run = edgesim.load_run(tmp_path / "run")
    for get in (lambda: edgesim.trained_model(run), lambda: run.models.consensus):
        with pytest.raises(RunDirectoryError, match=r"models/device-000001\.npz: missing"):
            get()


def test_a_run_directory_is_enough_for_its_model(tmp_path):
    """The graph's file, the images and the code are on another machine."""
    there = tmp_path / "there"
    there.mkdir()
    (there / "graph.csv").write_text("source,target\n0,1\n1,2\n2,0\n")
    (there / "own.py").write_text(
        "from math import prod\nfrom torch import nn\n"
        "def net(input_shape, num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(prod(input_shape), num_classes))\n"
    )
    write_images(there / "images")
    place = there / "run"
    edgesim.run(
        "quickstart",
        out=place,
        inline=True,
        topology={"kind": "file", "path": f"{there}/graph.csv"},
        model={"name": f"{there}/own.py:net"},
        **SMALL,
        data__source="image_folder",
        data__path=f"{there}/images",
    )
    known = edgesim.trained_model(place)
    batch = next(known.test_batches())
    here = tmp_path / "here"
    shutil.move(place, here)
    shutil.rmtree(there)
    model = edgesim.trained_model(here)
    assert (model.mean, model.std, model.input_shape) == (known.mean, known.std, known.input_shape)
    assert model.evaluate([batch]).loss == known.evaluate([batch]).loss
    with pytest.raises((edgesim.ScenarioError, DataError), match="images"):
        model.evaluate()
    table = write_model(str(here), tmp_path / "model.pt2", None)
    assert any("not evaluated: " in row[1] for row in table.rows)


def test_the_data_of_an_older_run_say_what_its_model_takes(run_of, tmp_path):
    shutil.copytree(run_of("evonorm_s0").path, tmp_path / "run")
    files = RunFiles(Store.at(tmp_path / "run"))
    content = files.read_json("environment.json")
    content["inputs"] = {key: content["inputs"][key] for key in ("mean", "std")}
    del content["rounds"], content["samples"]
    files.write_json("environment.json", content)
    model = edgesim.trained_model(tmp_path / "run")
    assert model.evaluate() == edgesim.trained_model(run_of("evonorm_s0")).evaluate()
    content["inputs"]["mean"] = [0.25]
    files.write_json("environment.json", content)
    with pytest.raises(RunDirectoryError, match="training samples have changed since the run"):
        edgesim.trained_model(tmp_path / "run")


def write_images(folder):
    """Random images of 8x8 pixels in folders of classes."""
    rng = np.random.default_rng(1)
    for split, each in (("train", 12), ("test", 4)):
        for name in range(10):
            place = folder / split / str(name)
            place.mkdir(parents=True)
            for number in range(each):
                image = Image.fromarray(rng.integers(0, 256, (8, 8), np.uint8))
                image.save(place / f"{number}.png")


def test_its_module_is_the_class_of_ones_own(run_of):
    model = edgesim.trained_model(run_of("own"), 1)
    assert type(model.module).__name__ == "Net"
    assert model.input_shape == (1, 8, 8)
    assert {"frozen.weight", "norm.running_var"} <= set(model.module.state_dict())


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


def test_what_can_not_be_given_is_said(run_of, tmp_path):
    run = run_of("batch")
    with pytest.raises(NoModelError, match="has no device 3; its devices are 0 to 2"):
        edgesim.trained_model(run, 3)
    for device in (True, 2.0, "garden"):
        with pytest.raises(NoModelError, match=f"has no device {device}; give its number, from 0"):
            edgesim.trained_model(run, device)
    assert [edgesim.trained_model(run, one).device for one in ("2", np.int64(2))] == [2, 2]
    model = edgesim.trained_model(run)
    for write, name in ((model.save, "a.pt2"), (model.export, "a.txt")):
        with pytest.raises(FileNameError, match=f"{name}: a file of .* must end in "):
            write(tmp_path / name)
    with pytest.raises(KeyboardInterrupt):
        edgesim.run("quickstart", out=tmp_path / "cut", inline=True, on_evaluation=_stop, **SMALL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", edgesim.UnfinishedRunWarning)
        with pytest.raises(NoModelError, match=r"not finished.*edgesim resume"):
            edgesim.trained_model(tmp_path / "cut")


def test_a_device_that_left_has_no_model(tmp_path):
    run = edgesim.run(
        "quickstart",
        out=tmp_path / "run",
        inline=True,
        fleet={
            "devices": 4,
            "names": [*"abcd"],
            "churn": {"leaves": [{"device": "c", "round": 3}]},
        },
        topology={"kind": "ring"},
        training__rounds=16,
        data__train_samples=80,
    )
    assert [*run.summary["left_after_round"]] == ["2"]
    said = r"device 2 \(c\) has no model: it left and handed its model over"
    with pytest.raises(NoModelError, match=said):
        edgesim.trained_model(run, "c")
    with pytest.raises(KeyError, match=f"{run.place}: no final model of device 4"):
        run.models[4]


def _stop(_):
    raise KeyboardInterrupt


def test_other_test_samples_are_refused(run_of):
    run = run_of("evonorm_s0")
    place = run.path / "environment.json"
    model, content = edgesim.trained_model(run), json.loads(place.read_text())
    assert set(content["samples"]) == {"training", "test"}
    vars(model._origin.prepared)["test_digest"] = "0" * 32
    with pytest.raises(RunDirectoryError, match="the test samples have changed since the run"):
        model.evaluate()
    batch = next(model.test_batches())
    assert np.isfinite(model.evaluate([batch]).loss)


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
