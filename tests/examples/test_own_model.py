"""examples/two_layers.py: a torch model with a layer of its own, trained in every way."""

import re

import pandas as pd
import pytest
from runs_of_examples import EXAMPLES, FREE, INT8, console, resume, train, train_and_kill
from small_fleets import assert_same_bits

from edgesim.assembly.budget import check_memory
from edgesim.assembly.preparation import prepare
from edgesim.errors import OwnCodeError, ScenarioError
from edgesim.fleet.run import run_scenario
from edgesim.scenario import load_scenario
from edgesim.study.iteration import iteration_costs
from edgesim.study.notices.notices import notices
from edgesim.study.report import study
from edgesim.study.tables.scenario_tables import scenario_tables

NAME = "two_layers.yaml"


@pytest.fixture(scope="module")
def inline(tmp_path_factory):
    return train(NAME, tmp_path_factory.mktemp("inline") / "run", inline=True)


def test_the_example_is_short():
    assert len((EXAMPLES / "two_layers.py").read_text().splitlines()) < 60


@pytest.mark.ray
def test_actors_give_the_bits_of_one_process_however_they_are_packed(inline, tmp_path, started_ray):
    assert_same_bits(inline, train(NAME, tmp_path / "run", "fleet.devices_per_actor=3"))


def test_a_killed_run_goes_on_to_the_same_bits(inline, tmp_path, monkeypatch):
    assert_same_bits(inline, resume(train_and_kill(NAME, tmp_path / "run", monkeypatch)))


def test_another_seed_gives_other_weights_and_masks(inline, tmp_path):
    other = train(NAME, tmp_path / "run", "seed=2", inline=True)
    losses = [pd.read_parquet(run.path / "rounds.parquet")["loss"] for run in (inline, other)]
    assert not losses[0].equals(losses[1])


@pytest.mark.parametrize("precision", [(), INT8], ids=["fp32", "int8"])
def test_at_free_pace_two_runs_are_equal(precision, tmp_path):
    runs = [
        train(NAME, tmp_path / name, *FREE, *precision, inline=True) for name in ("one", "other")
    ]
    assert_same_bits(*runs)


def test_in_8_bits_products_are_of_codes_and_the_rest_is_named(tmp_path):
    run = train(NAME, tmp_path / "run", *INT8, inline=True)
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    # Convolution: 16 x 1 x 9 weights on 4x4 pixels; linear: 256 x 10; 16 samples. Forward both,
    # and the gradient at the input of the linear layer alone.
    assert (rounds["macs_int8"] == 16 * (144 * 16 + 2560 + 2560)).all()
    assert (rounds["macs_fp32"] == 16 * (144 * 16 + 2560)).all()
    costs = iteration_costs(load_scenario(EXAMPLES / NAME, INT8))
    said = "\n".join(notices(costs.studied, 4))
    assert "in fp32 stay operators in the forward pass of the model (TwoLayers), gate" in said


def test_every_table_of_costs_says_what_was_measured():
    costs = iteration_costs(load_scenario(EXAMPLES / NAME, ["fleet.profile=raspberry-pi-4b"]))
    for table in scenario_tables(costs):
        text = " ".join([table.title, *table.notes, *(cell for row in table.rows for cell in row)])
        is_of_messages = table.title.startswith(("messages", "two-layers:"))
        assert ("easured, no closed form" in text) != is_of_messages, table.title
    table = study(costs.studied.scenario, costs, all_models=False).short_tables()[-1]
    (note,) = [note for note in table.notes if "Measured, no closed form" in note]
    assert "gate (LearnedGate)" in note
    rounds_macs = costs.devices[0].work.total.macs_fp32
    # Three passes of the linear layer, two of the convolution, as above; the gate has no products.
    assert rounds_macs == 16 * (3 * 2560 + 2 * 144 * 16)


NET = """
import random
import numpy as np
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, input_shape, num_classes):
        super().__init__()
        self.fc = nn.Linear(64, num_classes)
        self.seen = 0
        self.register_buffer("mean", torch.zeros(64))
        {init}

    def forward(self, x):
        x = x.flatten(1)
        {step}
        return self.fc(x)

def function(input_shape, num_classes):
    return {made}
"""


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"made": "3"}, "gives an object of type int"),
        ({"made": "nn.Flatten()"}, "no parameter to train"),
        ({"made": "Net(input_shape, num_classes).double()"}, "float64 of shape .*be float32"),
        ({"made": "nn.Linear(3, num_classes)"}, r"fails on a batch of shape \(2, 1, 8, 8\)"),
        ({"made": "missing"}, "fails at .*net.py:21: NameError"),
        ({"step": "x = x * np.random.rand()"}, "another step from the same parameters"),
        ({"step": "self.seen += 1; x = x / self.seen"}, "another step from the same parameters"),
        ({"step": "self.mean = 0.9 * self.mean + x.detach().mean(0)"}, "replaces its buffer inner"),
        (
            {"step": "self.fc.weight.data = self.fc.weight.data.clamp(-0.05, 0.05)"},
            "replaces its parameter inner.fc.weight",
        ),
        (
            {"step": "self.fc.weight.data.clamp_(-0.05, 0.05)"},
            "changes its parameter inner.fc.weight",
        ),
        ({"init": "self.fc.weight.data *= random.random()"}, "differs between two constructions"),
        ({"step": "return self.fc(x) * float('nan')"}, "gives outputs that are not finite"),
        (
            {"step": "return self.fc(x) / 0"},
            r"not finite .* shape \(4, 1, 8, 8\) drawn from a normal",
        ),
        (
            {"step": "return self.fc(x) + (0 * self.fc.weight).sqrt().sum()"},
            "its gradient is not fin",
        ),
    ],
)
def test_a_model_that_could_not_be_trained_repeatably_is_refused(changed, said, tmp_path):
    path, name = tmp_path / "net.py", "function" if "made" in changed else "Net"
    path.write_text(NET.format(**{"init": "pass", "step": "pass", "made": "None", **changed}))
    with pytest.raises(ScenarioError, match=said):
        train(NAME, tmp_path / "run", f"model={{name: '{path}:{name}'}}", inline=True)


@pytest.mark.parametrize("outputs", [9, 11])
def test_a_classifier_has_as_many_outputs_as_classes(outputs, tmp_path):
    """Nine outputs would fail at the first sample of class 9, eleven would never be noticed."""
    path = tmp_path / "net.py"
    made = f"nn.Sequential(nn.Flatten(), nn.Linear(64, {outputs}))"
    path.write_text(NET.format(init="pass", step="pass", made=made))
    said = rf"model\.name: .* gives {outputs} numbers for each sample, but .* 10 classes\n"
    with pytest.raises(ScenarioError, match=said):
        train(NAME, tmp_path / "run", f"model={{name: '{path}:function'}}", inline=True)


ROWS = """
import numpy as np
from torch import nn

class Rows:
    def __init__(self):
        inputs = np.random.default_rng(0).normal(size=({samples}, 6))
        self.train = self.test = inputs, np.arange({samples}) % 3

class Tokens:
    num_classes = 10
    def __init__(self):
        inputs = np.arange(40)[:, None].repeat(3, 1) // 5
        self.train = self.test = inputs, np.arange(40) % 10

def norm_of_batch(input_shape, num_classes):
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, num_classes))

def few_tokens(input_shape, num_classes):
    return nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(12, num_classes))
"""


def rows_and(model, dataset, tmp_path, *overrides, samples=40):
    """The example of sensors with other data, dealt to three devices, and another model."""
    path = tmp_path / "rows.py"
    path.write_text(ROWS.format(samples=samples))
    return load_scenario(
        EXAMPLES / "sensors.yaml",
        [
            "fleet.devices=3",
            f"data={{source: '{path}:{dataset}', partition: {{kind: iid}}, batch_size: 4}}",
            f"model={{name: '{path}:{model}'}}",
            *overrides,
        ],
    )


def test_a_last_batch_of_one_sample_is_tried_before_a_run(tmp_path):
    """Shards of 14, 13 and 13 leave batches of 2, 1 and 1."""
    with pytest.raises(ScenarioError) as refused:
        prepare(rows_and("norm_of_batch", "Rows", tmp_path))
    first, second = str(refused.value).splitlines()
    assert first.startswith("model.name: a training step of ")
    assert (
        "on a batch of 1 sample, the last batch of some devices, fails: ValueError: Expected"
        in first
    )
    assert second.startswith("set data.batch_size: 5, which leaves larger batches, or ")
    prepare(rows_and("norm_of_batch", "Rows", tmp_path, "data.batch_size=5"))
    prepare(rows_and("norm_of_batch", "Rows", tmp_path, samples=42))


def test_a_last_batch_that_no_device_reaches_is_not_tried(tmp_path):
    rounds = "training={rounds: 3, optimizer: {lr: 0.05}}"
    prepare(rows_and("norm_of_batch", "Rows", tmp_path, rounds))


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_norm_that_refuses_one_sample_does_not_hide_that_memory_is_short(tmp_path, precision):
    """The search for a batch that fits comes to one sample, of which the norm has no deviation."""
    tiny = "fleet.devices=[{profile: gap9, count: 3, memory_mib: 0.001}]"
    bits = f"model.precision={precision}"
    with pytest.raises(ScenarioError, match="a smaller model, or devices with more memory"):
        check_memory(rows_and("norm_of_batch", "Rows", tmp_path, tiny, bits, samples=42))


def test_what_torch_alone_raises_in_a_run_is_an_error_of_the_model(tmp_path):
    """The first samples have tokens that the embedding knows; later ones have not."""
    found = prepare(rows_and("few_tokens", "Tokens", tmp_path))
    with pytest.raises(OwnCodeError) as caught:
        run_scenario(found, tmp_path / "run", console=console(), inline=True)
    first, second = str(caught.value).splitlines()
    assert first.startswith("model.name: ")
    assert re.search(r":few_tokens on device \d in round \d fails: IndexError: index out of", first)
    assert second.startswith("mend your code and start the run anew")


def test_a_task_of_ones_own_says_itself_what_outputs_it_takes(tmp_path):
    path = tmp_path / "net.py"
    made = "nn.Sequential(nn.Flatten(), nn.Linear(64, 11))"
    own = "from edgesim.learning.tasks import Classification\nclass Own(Classification): pass\n"
    path.write_text(NET.format(init="pass", step="pass", made=made) + own)
    changes = (f"model={{name: '{path}:function'}}", f"training.task={path}:Own")
    prepare(load_scenario(EXAMPLES / NAME, changes))
