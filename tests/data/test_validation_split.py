"""Samples held back for validation are training samples that no device has."""

from __future__ import annotations

import numpy as np
import pytest
from data_files import random_images, write_folders
from small_fleets import prepared, train

import edgesim
from edgesim.assembly.known_data import data_shape, open_data
from edgesim.data.errors import DataError
from edgesim.data.images import StoredImages
from edgesim.data.photographs import middle_squares, photographs_of
from edgesim.data.shape import DataShape
from edgesim.data.sources import open_dataset
from edgesim.data.validation import hold_back
from edgesim.errors import ScenarioError
from edgesim.report.report import write_report
from edgesim.scenario.data import DataSection

HELD_BACK = "data.validation_samples=60"

NUMBERED = """
import numpy as np

class Numbered:
    '''Each sample is its own number; owner 7 has every third one.'''

    def __init__(self):
        self.train = np.arange(240, dtype="float32")[:, None], np.arange(240) % 10
        self.test = np.arange(1000, 1040, dtype="float32")[:, None], np.arange(40) % 10
        self.columns = {"owner": np.where(np.arange(240) % 3, np.arange(240) % 4, 7)}
        self.test_columns = {"owner": np.zeros(40, int)}

def model(input_shape, num_classes):
    from torch import nn
    return nn.Linear(1, num_classes)
"""


@pytest.fixture
def numbered(tmp_path):
    """Settings of a dataset in which a sample tells its number."""
    place = tmp_path / "numbered.py"
    place.write_text(NUMBERED)
    return (
        f"data.source={place}:Numbered",
        f"model.name={place}:model",
        "data.train_samples=null",
        "evaluation.samples=null",
        HELD_BACK,
    )


def numbers(samples):
    return samples.inputs[:, 0].astype(int).tolist()


def dealt(run):
    return [number for shard in run.shards() for number in numbers(shard)]


@pytest.mark.parametrize("kind", ["iid", "label_skew, skew: 0.8", "by_owner, column: owner"])
def test_models_are_evaluated_on_training_samples_that_no_device_has(tmp_path, numbered, kind):
    run = prepared(tmp_path, *numbered, f"data.partition={{kind: {kind}}}")
    tested, trained = numbers(run.test_samples()), dealt(run)
    assert len(tested) == run.num_test_samples == 60
    assert not set(tested) & set(trained)
    assert len({*tested, *trained}) <= 240
    if "skew" not in kind:
        assert sorted(tested + trained) == list(range(240))


def test_they_are_the_same_for_every_seed(tmp_path, numbered):
    partition = "data.partition={kind: iid}"
    runs = [prepared(tmp_path, *numbered, partition, f"seed={seed}") for seed in (3, 4)]
    tested = [numbers(run.test_samples()) for run in runs]
    assert tested[0] == tested[1] == sorted(tested[0])
    assert dealt(runs[0]) != dealt(runs[1])
    assert tested[0] != list(range(60))


def test_a_part_of_either_may_be_used(tmp_path, numbered):
    whole = prepared(tmp_path, *numbered, "data.partition={kind: iid}")
    few = ("data.train_samples=100", "evaluation.samples=20", "data.partition={kind: iid}")
    run = prepared(tmp_path, *numbered, *few)
    assert len(dealt(run)) == 100
    assert set(dealt(run)) <= set(dealt(whole))
    assert len(numbers(run.test_samples())) == 20
    assert set(numbers(run.test_samples())) <= set(numbers(whole.test_samples()))


def test_a_device_is_evaluated_on_held_back_samples_of_its_owners(tmp_path, numbered):
    run = prepared(tmp_path, *numbered, "data.partition={kind: by_owner, column: owner}")
    own = run.own_test_samples()
    assert {number for shard in own.values() for number in numbers(shard)} == set(
        numbers(run.test_samples())
    )
    shards = [{number % 4 if number % 3 else 7 for number in numbers(s)} for s in run.shards()]
    for device, samples in own.items():
        assert {number % 4 if number % 3 else 7 for number in numbers(samples)} <= shards[device]


def test_images_in_files_stay_there_until_they_are_used(tmp_path):
    images = random_images(np.random.default_rng(5), 30, 12, 16, 3)
    for split, part in (("train", images[:24]), ("val", images[24:])):
        classes = {"a/x": part[::3], "a/y": part[1::3], "b/x": part[2::3]}
        write_folders(tmp_path / split, classes, "png")
    whole = open_dataset("image_folder", tmp_path, image_size=8)
    split = hold_back(whole, 6)
    assert isinstance(split.test, StoredImages)
    assert "images_NHWC" not in vars(whole.train)
    chosen = np.array([4, 1, 1])
    some = split.test.take(chosen)
    assert len(split.train) == 18
    places = [
        int(np.flatnonzero((whole.train.images_NHWC == image).all((1, 2, 3)))[0])
        for image in split.test.images_NHWC
    ]
    assert places == sorted(set(places))
    assert np.array_equal(split.test.labels, whole.train.labels[places])
    assert np.array_equal(some.images_NHWC, whole.train.images_NHWC[places][chosen])
    squares = middle_squares(split.test, chosen)
    of_whole = middle_squares(whole.train, np.array(places)[chosen])
    assert np.array_equal(squares.images_NHWC, of_whole.images_NHWC)
    pixels = photographs_of(split.test, chosen).pixels
    assert np.array_equal(pixels, photographs_of(whole.train, np.array(places)[chosen]).pixels)
    assert np.array_equal(split.columns["folder"], np.delete(whole.columns["folder"], places))
    assert np.array_equal(split.test_columns["folder"], whole.columns["folder"][places])


def test_a_study_counts_with_the_samples_that_a_run_has():
    section = DataSection(
        source="digits", partition={"kind": "iid"}, batch_size=1, validation_samples=400
    )
    assert data_shape(section) == DataShape.of(open_data(section))
    assert (data_shape(section).num_train, data_shape(section).num_test) == (1042, 400)


def test_what_leaves_nothing_or_is_said_twice_is_refused(tmp_path):
    every = "data.validation_samples=1442"
    with pytest.raises(DataError, match="is 1442, but there are only 1442 training samples, of wh"):
        prepared(tmp_path, "data.train_samples=null", every)
    few = ("data.validation_samples=40", "evaluation.samples=41")
    with pytest.raises(ScenarioError, match="there are only 40 validation samples; lower it"):
        prepared(tmp_path, *few)
    with pytest.raises(ScenarioError, match="there are only 1402 training samples; lower it"):
        prepared(tmp_path, "data.train_samples=1403", few[0], "evaluation.samples=40")
    by_file = "data.partition={kind: file, path: shards.csv}"
    with pytest.raises(ScenarioError, match=r"data\.validation_samples is set; must be null"):
        prepared(tmp_path, by_file, "data.train_samples=null", HELD_BACK)


def test_accuracies_of_a_run_are_of_the_held_back_samples_and_say_so(tmp_path):
    result = train(tmp_path, "run", HELD_BACK, "evaluation.samples=null", inline=True)
    run = edgesim.load_run(result.path)
    digits = hold_back(open_dataset("digits", None), 60)
    model = edgesim.trained_model(run)
    found = model.evaluate()
    assert found.accuracy == run.summary["consensus_accuracy"]
    inputs, targets = next(iter(model.test_batches()))
    assert np.array_equal(targets.numpy(), digits.test.labels)
    assert len(inputs) == 60
    write_report([result.path], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "60 validation samples" in page
    assert "Share of validation samples classified correctly." in page
    assert "Share of test samples" not in page
