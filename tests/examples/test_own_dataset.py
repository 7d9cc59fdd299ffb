"""examples/sensors.py: a tabular dataset, a device for each owner, trained in every way."""

import numpy as np
import pandas as pd
import pytest
import torch
from runs_of_examples import EXAMPLES, FREE, INT8, resume, train, train_and_kill
from small_fleets import assert_same_bits

from edgesim.api.checks import prepared_table
from edgesim.assembly.build import PLAIN
from edgesim.assembly.parts.own_data import batch_transform
from edgesim.assembly.preparation import prepare
from edgesim.data.batches import BatchStream
from edgesim.errors import EdgesimError, ScenarioError
from edgesim.scenario import load_scenario
from edgesim.study.iteration import iteration_costs

NAME = "sensors.yaml"


@pytest.fixture(scope="module")
def inline(tmp_path_factory):
    return train(NAME, tmp_path_factory.mktemp("inline") / "run", inline=True)


def prepared(*overrides):
    return prepare(load_scenario(EXAMPLES / NAME, overrides))


def test_the_example_is_short():
    assert len((EXAMPLES / "sensors.py").read_text().splitlines()) < 60


@pytest.mark.ray
def test_actors_give_the_bits_of_one_process_however_they_are_packed(inline, tmp_path, started_ray):
    assert_same_bits(inline, train(NAME, tmp_path / "run", "fleet.devices_per_actor=4"))


def test_a_killed_run_goes_on_to_the_same_bits(inline, tmp_path, monkeypatch):
    assert_same_bits(inline, resume(train_and_kill(NAME, tmp_path / "run", monkeypatch)))


@pytest.mark.parametrize("precision", [(), INT8], ids=["fp32", "int8"])
def test_at_free_pace_two_runs_are_equal(precision, tmp_path):
    runs = [
        train(NAME, tmp_path / name, *FREE, *precision, inline=True) for name in ("one", "other")
    ]
    assert_same_bits(*runs)


def test_each_device_has_the_samples_of_its_owner(inline):
    dataset = prepared().dataset
    for device, indices in enumerate(prepared().indices):
        assert set(dataset.columns["sensor"][indices]) == {f"sensor-{device}"}
    devices = pd.read_parquet(inline.path / "devices.parquet")
    assert (devices["samples"] == 48).all()  # four fifths of 60
    assert (devices["shard_bytes"] == 48 * (6 * 4 + 8)).all()  # six float32, one int64
    assert all(sum(counts) == 48 for counts in devices["label_counts"])


def test_more_owners_than_devices_are_dealt_in_turn():
    found = prepared("fleet.devices=4")
    owners = found.dataset.columns["sensor"]
    names = [sorted(set(owners[indices])) for indices in found.indices]
    assert names == [["sensor-0", "sensor-4"], ["sensor-1", "sensor-5"], ["sensor-2"], ["sensor-3"]]


def test_owners_without_a_device_of_their_name_are_told_of():
    names = "fleet.devices=[{profile: raspberry-pi-4b, names: [a, b, c]}]"
    (notice,) = prepared(names).notices
    assert notice == (
        "data.partition.column: no owner has the name of a device; owners are dealt in turn"
    )
    assert not prepared("fleet.devices=3").notices


@pytest.mark.parametrize("topology", ["ring", "file"])
def test_named_devices_have_the_samples_of_their_names(topology, tmp_path):
    """A ring numbers them as the scenario does; a graph's file, by its names in order."""
    names = [f"sensor-{number}" for number in (3, 0, 5, 1, 4, 2)]
    devices = f"fleet.devices=[{{profile: raspberry-pi-4b, names: [{', '.join(names)}]}}]"
    links = tmp_path / "links.csv"
    after = names[1:] + names[:1]
    links.write_text("".join(f"{a},{b}\n" for a, b in zip(names, after, strict=True)))
    path = f", path: {links}" if topology == "file" else ""
    found = prepared(devices, f"topology={{kind: {topology}{path}}}")
    numbered = found.scenario.fleet.names
    assert numbered == tuple(sorted(names) if topology == "file" else names)
    owners = found.dataset.columns["sensor"]
    for name, indices in zip(numbered, found.indices, strict=True):
        assert set(owners[indices]) == {name}


def test_a_file_says_who_has_which_sample(tmp_path):
    path = tmp_path / "shards.csv"
    rows = [(sample, sample % 3) for sample in range(0, 60, 2)]
    path.write_text("device,sample\n" + "".join(f"{d},{s}\n" for s, d in reversed(rows)))
    partition = f"data.partition={{kind: file, path: {path}}}"
    found = prepared("fleet.devices=3", partition)
    for device, indices in enumerate(found.indices):
        np.testing.assert_array_equal(indices, [s for s, d in rows if d == device])
    path.write_text(path.read_text().replace("0,0\n", "1,0\n"))
    other = prepared("fleet.devices=3", partition)
    assert found.digest(PLAIN) != other.digest(PLAIN)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("sample,owner\n0,0\n", "must have sample and device"),
        ("sample,device\n0,0\n0,1\n", "names sample 0 twice"),
        ("sample,device\n0,0\n1,7\n", "device 7 does not exist"),
        ("sample,device\n0,0\n999,1\n", "sample 999 does not exist"),
        ("sample,device\n0,0\n1,0\n", "gives device 1 no sample"),
        ("sample,device\n0,x\n", "must hold a whole number"),
    ],
)
def test_a_file_that_deals_badly_is_refused(rows, said, tmp_path):
    path = tmp_path / "shards.csv"
    path.write_text(rows)
    with pytest.raises(EdgesimError, match=said):
        prepared("fleet.devices=2", f"data.partition={{kind: file, path: {path}}}")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("data.partition={kind: by_owner, column: room}", "which is no column .*has sensor"),
        ("fleet.devices=7", "has only 6 owners; lower it"),
        (
            "data.options={owner: 3}",
            "data.options.owner is no option of .*Readings; did you mean owners",
        ),
        (
            "model={name: small_cnn}",
            "this model takes images, and these inputs are float32 of",
        ),
        ("data.image_size=8", "your own dataset brings its samples as they are"),
    ],
)
def test_what_does_not_fit_the_dataset_is_refused(setting, said):
    with pytest.raises(EdgesimError, match=said):
        prepared(setting)


DATA = """
import numpy as np

class Data:
    def __init__(self):
        inputs, targets = np.ones((20, 3)), np.arange(20) % 2
        {change}
        self.train = self.test = inputs, targets
        self.columns = {{"sensor": {column}}}
"""


@pytest.mark.parametrize(
    ("change", "column", "said"),
    [
        ("inputs[3, 1] = np.nan", "targets", r"value at \(3, 1\) is not finite"),
        ("inputs[3, 1] = 1e300", "targets", r"value at \(3, 1\) is not finite in float32"),
        ("targets = targets[:5]", "targets", "must have one target for each input"),
        ("targets = targets - 1", "targets", "whole numbers are classes"),
        ("inputs = inputs.astype(str)", "targets", "the type is <U32; give whole numb"),
        ("inputs = inputs > 0", "targets", r'is bool; give .* as by x.astype\("float32"\)'),
        ("inputs = inputs.astype(object)", "targets", r'is object; .* x.astype\("float32"\)'),
        ("targets = targets > 0", "targets", r'targets: the type is bool; .* y.astype\("int64"\)'),
        ("targets = targets.astype(str)", "targets", r"give .* as by np.unique\(y, return_inverse"),
        ("pass", "targets[:3]", "one value for each of 20 samples"),
    ],
)
def test_a_dataset_that_is_none_is_refused(change, column, said, tmp_path):
    path = tmp_path / "data.py"
    path.write_text(DATA.format(change=change, column=column))
    with pytest.raises(EdgesimError, match=said):
        prepared("data.options=null", f"data.source={path}:Data", "fleet.devices=2")


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ("targets * 1.0", r"is int64 of shape \(\), one for testing float32 of shape \(\)"),
        ("targets[:, None]", r"is int64 of shape \(\), one for testing int64 of shape \(1,\)"),
    ],
)
def test_targets_for_testing_are_of_the_type_of_those_for_training(targets, said, tmp_path):
    """Otherwise the run ended at its first evaluation."""
    path = tmp_path / "data.py"
    text = DATA.format(change="pass", column="np.ones(20)")
    path.write_text(f"{text}        self.test = inputs, {targets}\n")
    with pytest.raises(EdgesimError, match=f"a target for training {said}; they must be alike"):
        prepared("data.options=null", f"data.source={path}:Data", "fleet.devices=2")


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ("targets = targets * 1.0", 'give y.astype("int64"), or choose training.task: regression'),
        ("targets = np.eye(2)[targets]", "give y.argmax(1), or choose training.task: regression"),
        ("targets = np.eye(2, dtype=int)[targets]", "give y.argmax(1), or choose another task"),
        ("targets = targets[:, None]", "give y.ravel(), or choose another task"),
        ("targets = targets[:, None] * 1.0", 'give y.ravel().astype("int64"), or choose training'),
        ("targets = targets + 0.5", "choose training.task: regression, or data.source"),
        ("targets = np.stack([targets, targets], 1)", "choose another task, or data.source"),
    ],
)
@pytest.mark.parametrize("partition", ["iid", "label_skew, skew: 0.5"])
def test_targets_that_are_no_classes_are_told_how_to_become_some(
    change, remedy, partition, tmp_path
):
    path = tmp_path / "data.py"
    path.write_text(DATA.format(change=change, column="np.ones(20)"))
    dealt = f"data.partition={{kind: {partition}}}"
    with pytest.raises(ScenarioError) as refused:
        prepared("data.options=null", f"data.source={path}:Data", "fleet.devices=2", dealt)
    said = str(refused.value)
    assert said.startswith("training.task is classification: a target must be one whole number")
    assert f": {remedy}" in said


IMAGES = """
import numpy as np

class Data:
    def __init__(self):
        x = np.arange(20 * 6 * 8 * 3).reshape(20, 6, 8, 3) % 256
        inputs = {inputs}
        self.train = self.test = inputs, np.arange(20) % 2

def flat(input_shape, num_classes):
    from torch import nn
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(input_shape)), num_classes))
"""


@pytest.mark.parametrize(
    ("inputs", "remedies"),
    [
        ("x[..., 0].astype('uint8')", ['x[..., None].astype("uint8")']),
        ("x", ['x.astype("uint8")']),
        ("np.moveaxis(x, 3, 1)", ['np.moveaxis(x, 1, 3).astype("uint8")']),
        ("np.moveaxis(x, 3, 1).astype('uint8')", ["np.moveaxis(x, 1, 3)"]),
        ("x[..., 0] / 255", ["x[:, None]", '(255 * x[..., None]).astype("uint8")']),
        ("x / 255", ["np.moveaxis(x, 3, 1)", '(255 * x).astype("uint8")']),
    ],
)
def test_images_in_other_forms_are_told_how_to_be_written(inputs, remedies, tmp_path):
    """What the message says is done, and the run is prepared."""
    path = tmp_path / "data.py"
    given = ["data.options=null", f"data.source={path}:Data", "data.partition={kind: iid}"]
    given += ["model={name: small_cnn}", "fleet.devices=2"]
    path.write_text(IMAGES.format(inputs=inputs))
    with pytest.raises(EdgesimError) as refused:
        prepared(*given)
    assert "image_size" not in str(refused.value)
    for remedy in remedies:
        assert remedy in str(refused.value)
        path.write_text(IMAGES.format(inputs=f"(lambda x: {remedy})({inputs})"))
        prepared(*given)


def test_images_that_are_too_small_are_not_told_to_be_resized(tmp_path):
    path = tmp_path / "data.py"
    path.write_text(IMAGES.format(inputs="x.astype('uint8')"))
    given = ["data.options=null", f"data.source={path}:Data", "data.partition={kind: iid}"]
    with pytest.raises(ScenarioError, match=r"vgg11 needs .* are 6x8; choose model small_cnn or"):
        prepared(*given, "model={name: vgg11}", "fleet.devices=2")


def test_whole_numbers_for_a_model_of_floats_are_told_what_they_are(tmp_path):
    path = tmp_path / "data.py"
    path.write_text(IMAGES.format(inputs="x[:, 0, 0]"))
    given = ["data.options=null", f"data.source={path}:Data", "data.partition={kind: iid}"]
    with pytest.raises(EdgesimError) as refused:
        prepared(*given, f"model={{name: '{path}:flat'}}", "fleet.devices=2")
    first, second = str(refused.value).splitlines()
    assert "torch.int64: RuntimeError: mat1 and mat2 must have the same dtype" in first
    assert second.startswith("whole numbers reach the model as int64, as tokens do; give x.astype(")


@pytest.mark.parametrize("augment", ["flip", "crop_flip", "resized_crop_flip"])
def test_augmentation_of_what_is_no_image_is_refused(augment):
    said = rf"data.augment is {augment}, which changes images of bytes; .* float32 of shape \(6,\)"
    with pytest.raises(ScenarioError, match=said):
        prepared(f"data.augment={augment}")


def test_a_path_that_is_missing_is_told_by_its_key(tmp_path):
    path = tmp_path / "data.py"
    path.write_text("class Data:\n  def __init__(self, path: str): pass\n")
    with pytest.raises(ScenarioError, match=r"data\.path is missing; data\.source: .*data.py:Data"):
        prepared("data.options=null", f"data.source={path}:Data")
    with pytest.raises(ScenarioError, match=r"^data\.path is missing.* femnist needs it: make "):
        prepared("data.options=null", "data.source=femnist")


def test_arrays_of_the_catalog_are_called_by_their_name():
    with pytest.raises(ScenarioError, match="is given; source: femnist brings its samples as they"):
        prepared("data.options=null", "data.source=femnist", "data.image_size=8")


def test_classes_that_begin_at_one_are_told_of(tmp_path):
    path = tmp_path / "data.py"
    path.write_text(DATA.format(change="targets = targets + 1", column="np.ones(20)"))
    given = ["data.options=null", f"data.source={path}:Data", "fleet.devices=2"]
    iid = "data.partition={kind: iid}"
    (notice,) = prepared(*given, iid).notices
    assert notice.startswith("data.source: no sample has class 0: targets begin at 1, and the mode")
    assert "has 3 outputs; subtract 1 from all targets if classes are counted from 1" in notice
    path.write_text(f"{path.read_text()}        self.num_classes = 2\n")
    with pytest.raises(EdgesimError, match=r"go from 1 to 2; .* from 0 to 1; subtract 1 from all"):
        prepared(*given, iid)
    for change, remedy in (
        ("targets - 1", "add 1 to all of them"),
        ("targets", "num_classes of the dataset be 2"),
    ):
        path.write_text(DATA.format(change=f"targets = {change}", column="np.ones(20)"))
        path.write_text(
            f"{path.read_text()}        self.num_classes = {1 + (change != 'targets')}\n"
        )
        with pytest.raises(EdgesimError, match=remedy):
            prepared(*given, iid)


def test_costs_and_validate_show_it():
    costs = iteration_costs(load_scenario(EXAMPLES / NAME))
    # Two linear layers, 6 x 16 and 16 x 3, on 16 samples; the first has no input gradient.
    assert costs.devices[0].work.total.macs_fp32 == 16 * (2 * 96 + 3 * 48)
    assert costs.studied.model.measured_layers == ()
    rows = dict(prepared_table(prepared()).rows)
    assert "Readings from" in rows["data.source, your own"]


def test_images_of_ones_own_are_as_those_of_the_catalog(tmp_path):
    path = tmp_path / "data.py"
    path.write_text(
        "from sklearn.datasets import load_digits\nimport numpy as np\n"
        "class Data:\n  def __init__(self):\n    d = load_digits()\n"
        "    x = (d.images * 15).astype(np.uint8)[..., None]\n"
        "    self.train = self.test = x[:200], d.target[:200]\n"
    )
    options = ["data.options=null", f"data.source={path}:Data", "model={name: small_cnn}"]
    found = prepared(*options, "data.partition={kind: label_skew, skew: 0.5}", "data.augment=flip")
    assert found.dataset.image_shape == (1, 8, 8)
    assert found.data.mean[0] > 0
    with pytest.raises(ScenarioError, match="no column"):
        prepared(*options)


def test_the_transform_of_own_images_changes_normalised_batches_of_training_alone(tmp_path):
    """Each batch is repeatable: the generator is of device and round."""
    path = tmp_path / "data.py"
    path.write_text(
        "import numpy as np\n"
        "class Plain:\n  def __init__(self):\n"
        "    x = np.arange(40 * 64).reshape(40, 8, 8, 1).astype(np.uint8)\n"
        "    self.train = self.test = x, np.arange(40) % 2\n"
        "class Data(Plain):\n"
        "  @staticmethod\n"
        "  def transform(inputs, rng):\n"
        "    return 3 * inputs + rng.integers(1, 1000, dtype=np.int64).astype(np.float32)\n"
    )
    settings = ["data.options=null", "model={name: small_cnn}", "fleet.devices=2"]
    settings.append("data.partition={kind: iid}")
    plain, changed = (
        prepared(*settings, f"data.source={path}:{name}") for name in ("Plain", "Data")
    )
    added = set()
    for device, (before, after) in enumerate(zip(batches(plain), batches(changed), strict=True)):
        for round_index in (0, 1):
            (inputs, labels), (new, new_labels) = (s.batch(round_index) for s in (before, after))
            assert new.shape == inputs.shape == (16, 1, 8, 8) or len(inputs) == 4
            assert new.dtype == torch.float32
            assert torch.equal(labels, new_labels)
            shift = new - 3 * inputs
            assert shift.max() - shift.min() < 1e-3, "one number for all entries"
            added.add(round(float(shift.mean())))
            assert torch.equal(new, batches(changed)[device].batch(round_index)[0])
    assert len(added) == 4, "of each device and round another one"
    assert plain.data == changed.data, "test samples are normalised alike"
    tested = [found.test_samples().contents for found in (plain, changed)]
    for one, other in zip(*tested, strict=True):
        np.testing.assert_array_equal(one, other)


def batches(found):
    """The mini-batches of each device."""
    transform = batch_transform(found.scenario.data)
    mean, std = found.data.mean, found.data.std
    return [
        BatchStream(shard, 16, "none", mean, std, 1, device, transform)
        for device, shard in enumerate(found.shards())
    ]
