"""Classes without samples, or with samples in one split alone, are told of before a run."""

from __future__ import annotations

import numpy as np
import pytest
from data_files import encode, random_images, write_parquet
from small_fleets import prepared

RNG = np.random.default_rng(0)


def notices(tmp_path, train, test, more=(), **options):
    """Notices of a run on images of these classes."""
    for split, labels in (("train", train), ("test", test)):
        files = [encode(image) for image in random_images(RNG, len(labels), 8, 8, 3)]
        write_parquet(tmp_path / f"{split}.parquet", files, labels, **options)
    data = (
        f"data={{source: parquet, path: {tmp_path}, batch_size: 4, partition: {{kind: iid}}}}",
        "fleet.devices=2",
        "topology.kind=ring",
        "evaluation={}",
    )
    return prepared(tmp_path, *data, *more).notices


@pytest.mark.parametrize(
    ("train", "test", "said"),
    [
        ([0, 1, 2] * 4, [0, 1, 2], []),
        ([1, 2, 3] * 4, [1, 2, 3], ["no sample has class 0: targets begin at 1, and the model ha"]),
        ([0, 1, 7] * 4, [0, 1, 7], ["no sample has class 2, 3, 4, 5, 6, so outputs of the mode"]),
        ([0, 1, 9] * 4, [0, 1, 9], ["no sample has class 2, 3, 4, 5, 6 and 2 more, so outputs"]),
        ([0, 1, 1] * 4, [0, 1, 2], ["test samples have class 2, which no training sample has"]),
        ([0] * 8, [0], ["all training samples have class 0: a model learns to name nothing els"]),
        ([0, 1, 2] * 4, [0, 1], ["no test sample has class 2; accuracies say nothing about it"]),
    ],
)
def test_numbers_of_classes_in_parquet_files(tmp_path, train, test, said):
    found = notices(tmp_path, train, test)
    assert len(found) == len(said)
    for notice, begin in zip(found, said, strict=True):
        assert notice.startswith(f"data.source: {begin}")


def test_a_class_with_a_name_is_called_by_it(tmp_path):
    (notice,) = notices(tmp_path, [0, 1] * 4, [0], class_names=("ant", "bee"))
    assert notice == "data.source: no test sample has class bee; accuracies say nothing about it"


@pytest.mark.parametrize(
    ("num_classes", "skew", "said"),
    [
        (2, 0.5, None),
        (16, 0.7, "16 of 64 samples are used by nobody, and devices have 2 to 7"),
    ],
)
def test_samples_that_a_skewed_partition_rounds_away_are_told(tmp_path, num_classes, skew, said):
    """Of each small class int(skew * size) samples are dealt in order."""
    classes = np.arange(64) % num_classes
    skewed = f"data.partition={{kind: label_skew, skew: {skew}}}"
    devices = ("fleet.devices=8", "data.batch_size=2", "training={rounds: 4, optimizer: {lr: 0.1}}")
    found = notices(tmp_path, classes, np.arange(num_classes), more=(*devices, skewed))
    assert len(found) == (said is not None)
    assert all(notice.startswith("data.partition: label_skew rounds the") for notice in found)
    assert all(said in notice for notice in found)


@pytest.mark.parametrize(("num", "said"), [(2, ["deals 4 of 12 samples; the others"]), (6, [])])
def test_samples_that_a_partition_of_ones_own_leaves_are_told(tmp_path, num, said):
    (tmp_path / "some.py").write_text(
        "def some(num_devices):\n"
        f"    return [[*range({num} * d, {num} * d + {num})] for d in range(num_devices)]\n"
    )
    own = f"data.partition={{kind: '{tmp_path / 'some.py'}:some'}}"
    found = notices(tmp_path, [0, 1, 2] * 4, [0, 1, 2], (own,))
    assert len(found) == len(said)
    assert all(text in notice for text, notice in zip(said, found, strict=True))
