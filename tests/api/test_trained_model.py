"""The trained model of a run gives the figures of its last evaluation."""

from __future__ import annotations

import json
import shutil
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional
from trained_models import MODELS, SMALL

import edgesim
from edgesim.api.device_models import NoModelError
from edgesim.api.trained import ChangedModuleError, FileNameError
from edgesim.cli.export import write_model
from edgesim.data.errors import DataError
from edgesim.results.run_files import RunDirectoryError, RunFiles
from edgesim.storage.store import Store


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


IMAGES, LABELS = torch.zeros(4, 1, 8, 8), torch.arange(4)
FORM = r"must be float32 of shape \(samples, 1, 8, 8\)"


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        ((IMAGES, LABELS), r"batches\[0\] is a tensor of float32 .* \[\(inputs, targets\)\]"),
        ([(IMAGES, LABELS, 1)], r"batches\[0\] is a tuple of 3; batches must be a list of pairs"),
        ([([1.0], LABELS)], "is a list of 1 and a tensor of int64 .* must be two tensors, or arr"),
        ([(IMAGES[:, 0], LABELS)], rf"float32 and shape \(4, 8, 8\); {FORM}"),
        (
            [(IMAGES[:2], LABELS[:2]), (IMAGES.expand(4, 3, 8, 8), LABELS)],
            rf"of batches\[1\] .*; {FORM}",
        ),
        (
            [(IMAGES.byte(), LABELS)],
            rf"of uint8 .*; {FORM}, .* \(bytes / 255 - mean\) / std",
        ),
        ([(IMAGES.long().numpy(), LABELS)], rf"tensor of int64 .*; {FORM}$"),
        ([(IMAGES.expand(4, 3, 8, 8), LABELS)], rf"{FORM}, or of sizes .*: it ends in RuntimeErr"),
        ([(IMAGES.to("meta"), LABELS)], "float32 and shape .* without values and .*; must be two"),
        ([(IMAGES, LABELS.to("meta"))], "int64 and shape .* without values; must be two"),
        ([(IMAGES[:0], LABELS[:0])], "a model was to be evaluated on no samples"),
        (5, r"batches is an object of type int; must be a list of pairs: \[\(inputs, targets\)\]"),
        ([(IMAGES, LABELS[:3])], r"has 4 inputs, but its targets are a tensor .* \(3,\); must be"),
        ([(IMAGES, LABELS + 7)], "a target of .* is 10; must be int64 .*, classes from 0 to 9"),
        ([(IMAGES, LABELS - 1)], "a target of .* is -1; must be int64 .*, classes from 0 to 9"),
        ([(IMAGES, LABELS.float())], "targets of .* a tensor of float32 .*; must be int64"),
        ([], "a model was to be evaluated on no samples"),
    ],
)
def test_batches_of_another_form_are_refused(run_of, batches, said):
    with pytest.raises(ValueError, match=said):
        edgesim.trained_model(run_of("batch")).evaluate(batches)


def test_arrays_are_as_good_as_tensors(run_of):
    model = edgesim.trained_model(run_of("batch"))
    batches = [*model.test_batches()]
    arrays = [[tensor.numpy() for tensor in batch] for batch in batches]
    assert model.evaluate(arrays) == model.evaluate(batches) == model.evaluate()


def test_inputs_of_another_width_are_those_of_the_models_type(run_of):
    model = edgesim.trained_model(run_of("batch"))
    batches = [*model.test_batches()]
    assert model.evaluate([(x.double(), y) for x, y in batches]) == model.evaluate(batches)


OF_ANY_SIZE = """
import numpy as np
from torch import nn


class Words:
    num_classes = 2

    def __init__(self):
        tokens = np.arange(720).reshape(60, 12) % 50
        labels = np.arange(60) % 2
        self.train, self.test = (tokens[:40], labels[:40]), (tokens[40:], labels[40:])


class Bag(nn.Module):
    def __init__(self, input_shape, num_classes):
        super().__init__()
        self.tokens, self.head = nn.Embedding(50, 4), nn.Linear(4, num_classes)

    def forward(self, x):
        return self.head(self.tokens(x).mean(1))


def pooled(input_shape, num_classes):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, num_classes),
    )
"""


@pytest.mark.parametrize(
    ("name", "source", "changed"),
    [
        ("Bag", "{}:Words", lambda x: x[:, :6]),
        ("Bag", "{}:Words", lambda x: x.int()),
        ("pooled", "digits", lambda x: functional.interpolate(x, scale_factor=2)),
    ],
)
def test_models_of_any_size_are_evaluated_on_other_sizes(tmp_path, name, source, changed):
    own = tmp_path / "own.py"
    own.write_text(OF_ANY_SIZE)
    data = {"source": source.format(own), "batch_size": 8, "partition": {"kind": "iid"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = edgesim.run(
            "quickstart",
            out=tmp_path / "run",
            inline=True,
            model={"name": f"{own}:{name}"},
            data=data,
            fleet__devices=2,
            training__rounds=1,
        )
    model = edgesim.trained_model(run)
    batches = [(changed(inputs), labels) for inputs, labels in model.test_batches()]
    assert np.isfinite(model.evaluate(batches).loss)
