"""The catalogue of datasets, the embedded digits, downloads, and the values that come out."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from data_files import encode, load_dataset, random_images, write_parquet

from edgesim.data import digits, torchvision_compat
from edgesim.data.errors import DataError
from edgesim.data.images import LabelledImages, Splits, channel_statistics
from edgesim.data.parquet.parquet import read_parquet
from edgesim.data.source import NamedSource
from edgesim.data.sources import SOURCES


def test_digits_are_all_there_in_the_same_proportions():
    dataset = load_dataset("digits", None)
    assert dataset.image_shape == (1, 8, 8)
    assert len(dataset.train) + len(dataset.test) == 1797  # UCI's test set
    train, test = (np.bincount(s.labels, minlength=10) for s in (dataset.train, dataset.test))
    assert (test == (train + test) // 5).all()
    assert {dataset.train.images_NHWC.min(), dataset.train.images_NHWC.max()} == {0, 255}


def test_digits_are_scikit_learns_pixels_scaled_to_bytes():
    from sklearn.datasets import load_digits

    original = load_digits()
    dataset = load_dataset("digits", None)
    # the first four zeros of the original train, the fifth tests
    zeros = np.flatnonzero(original.target == 0)[:5]
    expected = np.rint(original.images[zeros] * 255 / 16)
    train_zeros = dataset.train.images_NHWC[dataset.train.labels == 0][:4, ..., 0]
    test_zero = dataset.test.images_NHWC[dataset.test.labels == 0][0, ..., 0]
    assert (np.concatenate([train_zeros, test_zero[None]]) == expected).all()


def test_digits_can_be_enlarged():
    assert load_dataset("digits", None, image_size=32).image_shape == (1, 32, 32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "mnist", "path": None}, "data.source is 'mnist'; it must be one of digits, ci"),
        ({"source": "digits", "path": Path("x")}, "data.path: digits come with scikit-learn"),
        ({"source": "digits", "path": None, "download": True}, "data.download: digits come with"),
        ({"source": "cifar10", "path": None}, "data.path is missing; give a folder with cifar-10"),
        ({"source": "cifar10", "path": None, "download": True}, "data.path is missing"),
        ({"source": "parquet", "path": Path("x"), "download": True}, "data.download: only named"),
        ({"source": "cifar10", "path": Path("/no/where")}, "data.path: /no/where does not exist"),
        ({"source": "parquet", "path": Path(__file__)}, "test_sources.py is not a folder"),
    ],
)
def test_what_cannot_be_loaded_is_refused_by_key_in_two_lines_at_most(options, message):
    with pytest.raises(DataError) as caught:
        load_dataset(**options)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 2


@pytest.mark.parametrize("source", [name for name in SOURCES if name != "digits"])
def test_folder_without_the_files_is_refused_with_what_is_expected(tmp_path, source):
    with pytest.raises(
        DataError, match=r"lacks what this data\.source needs: .*; it holds nothing"
    ):
        load_dataset(source, tmp_path)
    for number in range(7):
        (tmp_path / f"{number}.txt").touch()
    with pytest.raises(DataError, match=r"; it holds 0\.txt, .*, 4\.txt and 2 more"):
        load_dataset(source, tmp_path)


def test_every_source_has_a_one_line_description():
    assert all(s.description and "\n" not in s.description for s in SOURCES.values())


def write_splits(folder: Path, _image_size: int | None = None) -> None:
    files = [encode(image) for image in random_images(np.random.default_rng(0), 3, 4, 4, 3)]
    for split in ("train", "test"):
        write_parquet(folder / f"{split}.parquet", files, [0, 1, 2])


def named_source(fetch, default_path: Path | None = None) -> NamedSource:
    return NamedSource(
        description="a fake",
        expects="a.bin",
        read_original=lambda _folder, _image_size: None,
        read_parquet=read_parquet,
        fetch=fetch,
        default_path=default_path,
    )


def never_fetch(_folder: Path, _image_size: int | None) -> None:
    pytest.fail("fetched without need")


def fail_to_fetch(_folder: Path, _image_size: int | None) -> None:
    raise OSError("no route to host")


def test_download_fetches_only_what_is_missing(tmp_path):
    folder = tmp_path / "new"
    splits = named_source(write_splits).load(folder, image_size=None, download=True)
    assert len(splits.train) == 3
    again = named_source(never_fetch).load(folder, image_size=None, download=True)
    assert (again.train.images_NHWC == splits.train.images_NHWC).all()


def test_failed_download_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"data\.download: fetching .*no route to host.*by hand"):
        named_source(fail_to_fetch).load(tmp_path, image_size=None, download=True)


def test_default_folder_is_read_if_no_path_is_given(tmp_path):
    write_splits(tmp_path / "there")
    there = named_source(never_fetch, tmp_path / "there")
    assert len(there.load(None, image_size=None, download=False).train) == 3
    gone = named_source(never_fetch, tmp_path / "gone")
    for download in (False, True):
        with pytest.raises(DataError, match=r"data\.path is missing; give a folder with a\.bin"):
            gone.load(None, image_size=None, download=download)


def test_channel_statistics_are_numpys():
    images = random_images(np.random.default_rng(0), 7, 5, 6, 3)
    mean, std = channel_statistics(images)
    assert mean == pytest.approx((images / 255).mean(axis=(0, 1, 2)), rel=1e-12)
    assert std == pytest.approx((images / 255).std(axis=(0, 1, 2)), rel=1e-12)


def test_channel_that_never_changes_has_deviation_one():
    assert channel_statistics(np.zeros((2, 3, 3, 1), np.uint8)) == ((0.0,), (1.0,))


def test_shards_survive_pickling():
    shard = LabelledImages(np.zeros((2, 3, 3, 1), np.uint8), np.array([1, 0]))
    copy = pickle.loads(pickle.dumps(shard.take(np.array([1])), protocol=5))
    assert copy.labels.tolist() == [0]
    assert len(copy) == 1


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        (np.zeros((2, 3, 3, 1), np.float32), np.zeros(2, np.int64)),
        (np.zeros((2, 3, 3), np.uint8), np.zeros(2, np.int64)),
        (np.zeros((2, 3, 4, 1), np.uint8).transpose(0, 2, 1, 3), np.zeros(2, np.int64)),
        (np.zeros((2, 3, 3, 1), np.uint8), np.zeros(3, np.int64)),
        (np.zeros((2, 3, 3, 1), np.uint8), np.zeros(2, np.int32)),
    ],
)
def test_arrays_of_other_forms_are_refused(images, labels):
    with pytest.raises(ValueError, match="must be"):
        LabelledImages(images, labels)


def test_empty_split_is_refused():
    some = LabelledImages(np.zeros((1, 3, 3, 1), np.uint8), np.zeros(1, np.int64))
    with pytest.raises(DataError, match="the test split holds no images"):
        Splits(some, some.take(np.array([], np.int64)), ("a",))


def test_torchvision_opens_with_or_without_its_operators():
    datasets = torchvision_compat.torchvision_datasets()
    assert datasets.CIFAR10.base_folder == "cifar-10-batches-py"


@pytest.mark.parametrize("operators_are_there", [True, False])
def test_operators_are_declared_only_where_they_are_absent(monkeypatch, operators_are_there):
    """A fake import that fails until the operators are declared, as torchvision's does."""
    declared = []

    def fake_import(name: str) -> str:
        if not (operators_are_there or declared):
            raise RuntimeError("operator torchvision::nms does not exist")
        return name

    monkeypatch.setattr(torchvision_compat.importlib, "import_module", fake_import)
    monkeypatch.setattr(
        torchvision_compat, "_declare_missing_operators", lambda: declared.append(True)
    )
    assert torchvision_compat.torchvision_datasets.__wrapped__() == "torchvision.datasets"
    assert declared == ([] if operators_are_there else [True])


def test_other_failures_of_torchvision_are_not_hidden(monkeypatch):
    def broken_import(_name: str) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(torchvision_compat.importlib, "import_module", broken_import)
    with pytest.raises(RuntimeError, match="something else"):
        torchvision_compat.torchvision_datasets.__wrapped__()


def test_digits_name_the_package_that_a_node_lacks(monkeypatch):
    monkeypatch.setattr(digits, "find_spec", lambda _: None)
    with pytest.raises(DataError, match="come with scikit-learn; install it here"):
        digits._table.__wrapped__()
