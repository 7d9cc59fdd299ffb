"""FEMNIST and Shakespeare in LEAF's JSON files, written here by hand, and their natural split."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from small_fleets import SCENARIO

from edgesim.assembly.preparation import prepare
from edgesim.data import leaf
from edgesim.data.arrays import dataset_of
from edgesim.data.errors import DataError
from edgesim.data.leaf import LETTERS, femnist, shakespeare
from edgesim.scenario import load_scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"
RNG = np.random.default_rng(0)
LINE = "To be, or not to be: that is the question: Whether 'tis nobler in the mind to suffer the"


def write_leaf(folder, users, *, file="all_data_0.json"):
    """A file as LEAF writes it; `users`: inputs and labels by user."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(users),
        "num_samples": [len(labels) for _, labels in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }
    (folder / file).write_text(json.dumps(content))


def drawings(number):
    return [(RNG.integers(0, 256, 784) / 255).tolist() for _ in range(number)]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    """No test reads what another one, or the user, has kept."""
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path / "home")


@pytest.fixture
def written(tmp_path):
    """Three writers in two files, one of them without samples."""
    kept = drawings(2)
    first = {"f0001_41": (kept, [0, 61]), "empty": ([], [])}
    write_leaf(tmp_path / "train", first)
    write_leaf(tmp_path / "train", {"f0002_05": (drawings(3), [5, 5, 7])}, file="all_data_1.json")
    write_leaf(tmp_path / "test", {"f0002_05": (drawings(1), [5]), "f0001_41": (kept[:1], [0])})
    return tmp_path, kept


def test_femnist_has_images_classes_and_writers(written):
    folder, kept = written
    data = dataset_of("femnist", femnist(str(folder)))
    assert data.image_shape == (1, 28, 28)
    assert data.num_classes == 62
    assert data.train.labels.tolist() == [0, 61, 5, 5, 7]
    expected = np.rint(255 * np.array(kept[0])).astype(np.uint8).reshape(28, 28)
    assert (data.train.images_NHWC[0, ..., 0] == expected).all()
    assert data.columns["owner"].tolist() == ["f0001_41"] * 2 + ["f0002_05"] * 3
    assert data.test_columns["owner"].tolist() == ["f0002_05", "f0001_41"]


def test_shakespeare_has_sequences_of_letters_and_roles(tmp_path):
    assert len(LETTERS) == 80
    inputs = [LINE[k : k + 80] for k in range(3)]
    labels = [LINE[k + 80] for k in range(3)]
    write_leaf(tmp_path / "train", {"HAMLET": (inputs, labels)})
    write_leaf(tmp_path / "test", {"HAMLET": (inputs[:1], labels[:1])})
    data = dataset_of("shakespeare", shakespeare(str(tmp_path)))
    assert data.num_classes == 80
    assert data.input_dtype == "int64"
    assert "".join(LETTERS[number] for number in data.train.inputs[1]) == inputs[1]
    assert [LETTERS[number] for number in data.train.labels] == labels


def test_files_are_read_once_until_one_changes(written, monkeypatch, tmp_path):
    """Also from elsewhere: names, sizes and times count, not the folder."""
    folder, _ = written
    first, read = femnist(str(folder)), []
    loads = leaf.json.loads
    monkeypatch.setattr(leaf.json, "loads", lambda text: read.append(1) or loads(text))
    again = femnist(str(folder))
    assert not read
    assert (again.train[0] == first.train[0]).all()
    assert again.train[0].dtype == np.uint8
    assert (again.columns["owner"] == first.columns["owner"]).all()
    (kept,) = (tmp_path / "home" / ".cache" / "edgesim").iterdir()
    assert kept.name.startswith("femnist-")
    write_leaf(folder / "test", {"f0002_05": (drawings(2), [5, 6])})
    assert femnist(str(folder)).test[1].tolist() == [5, 6]
    assert len(read) == 3
    elsewhere = femnist(str(folder), cache=str(tmp_path / "other"))
    assert len(elsewhere.test[1]) == len(list((tmp_path / "other").iterdir())) + 1


def test_more_than_fits_into_memory_is_refused_before_it_is_joined(written, monkeypatch):
    monkeypatch.setattr(leaf, "memory_bytes", lambda: 4 * 784 * 4)
    with pytest.raises(DataError, match=r"up to .*all_data_1\.json take .* smaller --sf"):
        femnist(str(written[0]))


def test_the_shipped_scenario_deals_writers_to_devices(written):
    overrides = (f"data.path={written[0]}", "fleet.devices=2", "data.batch_size=2")
    plan = prepare(load_scenario(SCENARIOS / "femnist.yaml", overrides))
    assert [indices.tolist() for indices in plan.indices] == [[0, 1], [2, 3, 4]]
    assert not any("no device" in notice for notice in plan.notices)
    write_leaf(written[0] / "test", {"f0009_01": (drawings(1), [5])})
    notice = prepare(load_scenario(SCENARIOS / "femnist.yaml", overrides)).notices[0]
    assert notice == (
        "data.partition.column: no test sample is of an owner with training samples, so models are "
        "evaluated on the common test samples alone"
    )


def test_each_device_has_the_samples_of_its_writer(written, tmp_path):
    folder, _ = written
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(SCENARIO))
    data = (
        f"data={{source: femnist, path: {folder}, batch_size: 2, "
        "partition: {kind: by_owner, column: owner}}"
    )
    plan = prepare(load_scenario(path, ("fleet.devices=2", data, "evaluation={}")))
    assert [indices.tolist() for indices in plan.indices] == [[0, 1], [2, 3, 4]]
    assert [part.tolist() for part in plan.held_out] == [[1], [0]]


@pytest.mark.parametrize(
    ("users", "said"),
    [
        (
            {"a": ([[0.0] * 783], [1])},
            r"samples of 'a' are none of femnist: an image must have 784",
        ),
        ({"a": ([[2.0] * 784], [1])}, "greys must be from 0 to 1"),
        ({"a": ([[0.0] * 784], [62])}, "labels must be from 0 to 61"),
        ({"a": ([[0.0] * 784], [1, 2])}, "'a' has 1 inputs, 2 labels"),
        ({"a": ([], [])}, "no user has a sample"),
    ],
)
def test_broken_files_are_refused(tmp_path, users, said):
    for split in ("train", "test"):
        write_leaf(tmp_path / split, users)
    with pytest.raises(DataError, match=said) as caught:
        femnist(str(tmp_path))
    assert "all_data_0.json" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "JSONDecodeError"),
        ('{"users": ["a"], "user_data": {}}', "KeyError"),
        ("[]", "TypeError"),
    ],
)
def test_files_that_are_no_files_of_leaf_are_refused(tmp_path, content, said):
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "x.json").write_text(content)
    with pytest.raises(DataError, match=said):
        femnist(str(tmp_path))


def test_missing_files_say_how_they_are_made(tmp_path):
    with pytest.raises(
        DataError, match=r"train holds no JSON files of LEAF\nmake .*preprocess\.sh"
    ):
        shakespeare(str(tmp_path))
