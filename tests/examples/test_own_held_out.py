"""examples/sensors.py: each device has held-out samples of its own beside those of all."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from runs_of_examples import EXAMPLES, INT8, resume, train, train_and_kill
from small_fleets import assert_same_bits

from edgesim import load_run
from edgesim.api.checks import prepared_table
from edgesim.assembly.build import PLAIN, make_flat_model
from edgesim.assembly.preparation import prepare
from edgesim.cli.answers import result_table
from edgesim.errors import EdgesimError
from edgesim.report.report import report_page
from edgesim.report.runs import load_runs
from edgesim.scenario import load_scenario

NAME = "sensors.yaml"
EVERY = ("evaluation.device_models=every", "evaluation.every_rounds=2")
OWN = ["own_accuracy", "own_loss"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return load_run(train(NAME, tmp_path_factory.mktemp("own") / "run", *EVERY, inline=True).path)


def prepared(*overrides):
    return prepare(load_scenario(EXAMPLES / NAME, overrides))


def test_each_device_has_the_test_samples_of_its_owner():
    found = prepared()
    owners = found.dataset.test_columns["sensor"]
    for device, samples in found.own_test_samples().items():
        expected = np.flatnonzero(owners == f"sensor-{device}")
        np.testing.assert_array_equal(found.held_out[device], expected)
        np.testing.assert_array_equal(samples.inputs, found.dataset.test.inputs[expected])
        np.testing.assert_array_equal(samples.labels, found.dataset.test.labels[expected])
    assert len(found.own_test_samples()) == 6


def test_final_models_reach_on_their_own_samples_what_is_recorded(run):
    """Each model is read from the run's folder, and evaluated by hand."""
    found = prepared()
    flat = make_flat_model(found.scenario, found.data, PLAIN)
    last = run.evaluations[run.evaluations["round"] == 4].set_index("device")
    x, u = 0.0, 0.0
    paths = sorted((run.path / "models").glob("*.npz"))
    for path, (device, samples) in zip(paths, found.own_test_samples().items(), strict=True):
        with np.load(path) as model:
            x, u = x + model["x"].astype(float), u + float(model["u"])
            hits = _hits(flat, model["x"].astype(float) / float(model["u"]), samples)
        assert last.loc[device, "own_accuracy"] == pytest.approx(hits / len(samples))
    of_average = [_hits(flat, x / u, own) / len(own) for own in found.own_test_samples().values()]
    assert last.loc[-1, "own_accuracy"] == pytest.approx(np.mean(of_average))
    assert last.loc[-1, "accuracy"] != last.loc[-1, "own_accuracy"], "only 40 are common"


def _hits(flat, z, samples):
    flat.parameters[:] = flat.parameters.new_tensor(z)
    outputs = flat.model.eval()(flat.parameters.new_tensor(samples.inputs))
    return int((outputs.argmax(1).numpy() == samples.labels).sum())


def test_tables_and_summary_say_it(run):
    assert {*OWN} <= {*run.evaluations.columns}
    assert run.evaluations[OWN].notna().all(axis=None)
    assert (run.devices["held_out_samples"] == 12).all()  # a fifth of 60
    last = run.evaluations[run.evaluations["round"] == 4]
    of_devices = last[last["model"] == "device"]["own_accuracy"]
    summary = run.summary
    assert summary["consensus_own_accuracy"] == last["own_accuracy"].iloc[0]
    assert summary["device_own_accuracy_min"] == of_devices.min()
    assert summary["device_own_accuracy_mean"] == pytest.approx(of_devices.mean())
    assert summary["device_own_accuracy_max"] == of_devices.max()
    rows = dict(result_table(summary, "x").rows)
    assert rows["  averaged model, mean"] == f"{summary['consensus_own_accuracy']:.4f}"
    assert rows["  each its own model"].startswith(f"{of_devices.min():.4f} to ")
    rows = prepared_table(prepared()).rows
    assert ("  own of a device", "12 to 12") in rows
    dealt = "6, in the order of their names: sensor-0 on device 0, sensor-1 on device 1, ..."
    assert ("  owners", dealt) in rows


def test_they_change_no_other_figure(tmp_path):
    """Devices train alike, and the common samples are seen in the same way, in 8 bits too."""
    for precision in ((), INT8):
        folder = tmp_path / str(len(precision))
        runs = [
            train(NAME, folder / f"run{number}", *EVERY, *precision, *more, inline=True)
            for number, more in enumerate([(), ("evaluation.own_samples=0",)])
        ]
        with_own, without = (load_run(each.path).evaluations for each in runs)
        assert not {*OWN} & {*without.columns}
        pd.testing.assert_frame_equal(with_own.drop(columns=OWN), without, check_exact=True)


def test_a_killed_run_goes_on_to_the_same_figures(tmp_path, monkeypatch):
    whole = train(NAME, tmp_path / "whole", *EVERY, inline=True)
    killed = train_and_kill(NAME, tmp_path / "run", monkeypatch, *EVERY)
    assert_same_bits(whole, resume(killed))


def test_so_many_of_each_at_most():
    found = prepared("evaluation.own_samples=5")
    whole = prepared().held_out
    assert [len(own) for own in found.held_out] == [5] * 6
    assert all(set(own) <= set(all_own) for own, all_own in zip(found.held_out, whole, strict=True))
    other_seed = prepared("evaluation.own_samples=5", "seed=2")
    np.testing.assert_array_equal(np.stack(found.held_out), np.stack(other_seed.held_out))
    assert found.digest(PLAIN) != prepared("evaluation.own_samples=6").digest(PLAIN)


def test_of_two_owners_a_device_has_the_test_samples_of_both():
    found = prepared("fleet.devices=4")
    owners = found.dataset.test_columns["sensor"]
    names = [sorted(set(owners[indices])) for indices in found.held_out]
    assert names == [["sensor-0", "sensor-4"], ["sensor-1", "sensor-5"], ["sensor-2"], ["sensor-3"]]


def test_a_file_says_whose_test_samples_are(tmp_path):
    """Device 1 has none; samples that the file does not name are nobody's own."""
    train_file, test_file = tmp_path / "shards.csv", tmp_path / "test.csv"
    train_file.write_text("sample,device\n" + "".join(f"{s},{s % 3}\n" for s in range(90)))
    test_file.write_text("sample,device\n4,0\n2,2\n0,0\n")
    partition = f"{{kind: file, path: {train_file}, test_path: {test_file}}}"
    settings = ("fleet.devices=3", f"data.partition={partition}")
    found = prepared(*settings)
    assert [own.tolist() for own in found.held_out] == [[0, 4], [], [2]]
    rows = prepared_table(found).rows
    assert ("  own of a device", "0 to 2; 1 device has none") in rows
    run = load_run(train(NAME, tmp_path / "run", *settings, inline=True).path)
    last = run.evaluations[run.evaluations["model"] == "device"].set_index("device")
    assert last["own_loss"].isna().tolist() == [False, True, False]
    assert run.devices["held_out_samples"].tolist() == [2, 0, 1]
    with pytest.raises(EdgesimError, match=r"data.partition.test_path: .*gone.csv can't be read"):
        prepared("fleet.devices=3", f"data.partition={partition.replace('test.csv', 'gone.csv')}")


def test_a_regression_has_losses_and_measures_on_own_samples(tmp_path):
    source = (EXAMPLES / "power.py").read_text()
    source += (
        "\n\nclass OfHouses(Power):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.columns = {'house': np.arange(len(self.train[1])) % 4}\n"
        "        self.test_columns = {'house': np.arange(len(self.test[1])) % 3}\n"
    )
    path = tmp_path / "power.py"
    path.write_text(source)
    partition = "{kind: by_owner, column: house}"
    data = f"data={{source: '{path}:OfHouses', partition: {partition}, batch_size: 8}}"
    run = load_run(train("power.yaml", tmp_path / "run", data, inline=True).path)
    last = run.evaluations[run.evaluations["model"] == "device"].set_index("device")
    assert last["own_loss"].isna().tolist() == [False, False, False, True]
    assert last["own_worst_share"].isna().tolist() == [False, False, False, True]
    assert last["own_accuracy"].isna().all()
    assert run.summary["consensus_own_worst_share"] is not None
    labels = [label for label, _ in result_table(run.summary, "x").rows]
    assert "loss on devices' own samples" in labels


@pytest.mark.parametrize(
    ("train_owners", "test_owners"),
    [
        (["ann", "bob", "ann", "eve"], ["eve", "ann"]),
        ([3, 10, 3, 20], [20, 3]),
        ([0.5, 1.5, 0.5, 9.5], [9.5, 0.5]),
        (pa.array(["a", "b", "a", "c"]).dictionary_encode(), pa.array(["c", "a"])),
    ],
    ids=["text", "whole numbers", "floats", "categories"],
)
def test_parquet_files_have_owners_of_both_splits(tmp_path, train_owners, test_owners):
    found = prepared(*parquet(tmp_path, train_owners, test_owners), "fleet.devices=3")
    assert [own.tolist() for own in found.indices] == [[0, 2], [1], [3]]
    assert [own.tolist() for own in found.held_out] == [[1], [], [0]]
    assert [*found.own_test_samples()] == [0, 2]


@pytest.mark.parametrize(
    ("train_owners", "test_owners", "said"),
    [
        (["a", None, "a", "b"], ["a", "b"], r"train.parquet: owner, row 1: no value"),
        ([1.0, float("nan"), 2.0, 2.0], [1.0, 2.0], "training sample 1 has no owner"),
        (["a", "b", "a", "b"], ["a", None], r"test.parquet: owner, row 1: no value"),
        ([1, 2, 1, 2], ["1", "2"], "by numbers, and of test samples by text"),
        ([["a"], ["b"], ["a"], ["b"]], [["a"], ["b"]], "must hold text, numbers or times"),
    ],
)
def test_owners_of_parquet_files_that_say_nothing_are_refused(
    tmp_path, train_owners, test_owners, said
):
    with pytest.raises(EdgesimError, match=said):
        prepared(*parquet(tmp_path, train_owners, test_owners), "fleet.devices=2")


def test_without_owners_of_test_samples_there_is_nothing_of_ones_own(tmp_path):
    for test_owners in (None, ["x", "y"]):
        found = prepared(*parquet(tmp_path, ["a", "b", "a", "b"], test_owners), "fleet.devices=2")
        assert found.held_out == ()
        said = "none: test samples have no column owner, or no device's owner in it"
        assert ("  own of a device", said) in prepared_table(found).rows


def parquet(folder, train_owners, test_owners):
    """Settings of a scenario on Parquet files with a column of owners."""
    image = {"bytes": _png()}
    for name, owners, count in (("train", train_owners, 4), ("test", test_owners, 2)):
        columns = {"image": pa.array([image] * count), "label": pa.array([0, 1] * (count // 2))}
        if owners is not None:
            columns["owner"] = owners if isinstance(owners, pa.Array) else pa.array(owners)
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    data = f"{{source: parquet, path: {folder}, batch_size: 2"
    return (
        f"data={data}, partition: {{kind: by_owner, column: owner}}}}",
        "model={name: small_cnn}",
    )


def _png():
    from io import BytesIO

    from PIL import Image

    file = BytesIO()
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(file, "PNG")
    return file.getvalue()


def test_the_report_shows_them(run):
    page = report_page(load_runs([run.place]))
    last = run.evaluations[run.evaluations["round"] == 4].set_index("device")
    averaged = f"{100 * last.loc[-1, 'own_accuracy']:.3g} %"
    assert f"On devices&#x27; own held-out samples the averaged model has {averaged}" in page
    assert '<th scope="col">accuracy on own samples</th>' in page
    assert "Accuracy on devices&#x27; own samples</h3>" in page
    assert "Of each device on its own held-out samples" in page
