"""Parquet in the Hugging Face layout: all its variants are read, whatever is wrong is named."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import encode, load_dataset, random_images, write_parquet

from edgesim.data.errors import DataError
from edgesim.data.images import Dataset

IMAGES = random_images(np.random.default_rng(0), 6, 5, 4, 3)
FILES = [encode(image) for image in IMAGES]
LABELS = [0, 1, 2, 0, 1, 2]
NAMES = ["ant", "bee", "cat"]
REAL_CIFAR10 = Path(__file__).parents[2].parent / "shared" / "data" / "cifar10-jpeg"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Both splits, with class names."""
    write_parquet(tmp_path / "train.parquet", FILES, LABELS, class_names=NAMES)
    write_parquet(tmp_path / "test.parquet", FILES[:2], LABELS[:2], class_names=NAMES)
    return tmp_path


def load(folder: Path, source: str = "parquet", **options) -> Dataset:
    return load_dataset(source, folder, **options)


def assert_all_there(dataset: Dataset) -> None:
    assert (dataset.train.images_NHWC == IMAGES).all()
    assert dataset.train.labels.tolist() == LABELS
    assert (dataset.test.images_NHWC == IMAGES[:2]).all()


def test_images_labels_and_class_names_are_read(folder):
    dataset = load(folder)
    assert_all_there(dataset)
    assert dataset.class_names == tuple(NAMES)
    assert dataset.image_shape == (3, 5, 4)
    assert dataset.num_classes == 3


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("columns", [("image", "label"), ("img", "fine_label")])
def test_columns_may_have_the_hubs_other_forms(tmp_path, bare, columns):
    write_parquet(tmp_path / "train.parquet", FILES, LABELS, bare=bare, columns=columns)
    write_parquet(tmp_path / "test.parquet", FILES[:2], LABELS[:2], bare=bare, columns=columns)
    assert_all_there(load(tmp_path))


@pytest.mark.parametrize(
    ("train", "test"),
    [
        (["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"], "test-0.parquet"),
        (["data/train-0.parquet", "data/train-1.parquet"], "data/validation-0.parquet"),
        (
            ["plain_text/train/0000.parquet", "plain_text/train/0001.parquet"],
            "plain_text/test/0.parquet",
        ),
    ],
    ids=["shards", "folder below", "folder for each split"],
)
def test_splits_may_be_several_files_in_order(tmp_path, train, test):
    write_parquet(tmp_path / train[0], FILES[:4], LABELS[:4])
    write_parquet(tmp_path / train[1], FILES[4:], LABELS[4:])
    write_parquet(tmp_path / test, FILES[:2], LABELS[:2])
    assert_all_there(load(tmp_path))


def test_classes_without_names_are_numbered_up_to_the_largest_label(tmp_path):
    write_parquet(tmp_path / "train.parquet", FILES, LABELS)
    write_parquet(tmp_path / "test.parquet", FILES, [0, 0, 0, 0, 0, 3])
    assert load(tmp_path).class_names == ("0", "1", "2", "3")


def test_images_are_brought_to_a_size(folder):
    assert load(folder, image_size=4).image_shape == (3, 4, 4)


def test_named_dataset_takes_its_number_of_classes_from_what_it_is(tmp_path):
    """An excerpt without names that happens to lack a class is still of ten classes."""
    write_parquet(tmp_path / "train.parquet", FILES, LABELS)
    write_parquet(tmp_path / "test.parquet", FILES, LABELS)
    assert load(tmp_path, "cifar10").num_classes == 10


def test_named_dataset_refuses_files_of_another_one(folder):
    with pytest.raises(DataError, match=r"has 3 classes where this data\.source has 10"):
        load(folder, "cifar10")


def test_named_dataset_in_colour_refuses_grey_images(tmp_path):
    grey = [encode(image[..., 0].copy()) for image in IMAGES]
    for split in ("train", "test"):
        write_parquet(tmp_path / f"{split}.parquet", grey, LABELS)
    with pytest.raises(DataError, match="holds grey images, those of cifar10 are coloured"):
        load(tmp_path, "cifar10")


def test_grey_test_images_join_coloured_training_images(folder):
    grey = encode(IMAGES[0, ..., 0].copy())
    write_parquet(folder / "test.parquet", [grey], [0])
    assert load(folder).test.images_NHWC.shape == (1, 5, 4, 3)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"this is no Parquet file",
        lambda data: b"",
        lambda data: data[:-300] + bytes(292) + data[-8:],
    ],
    ids=["cut", "text", "empty", "footer"],
)
@pytest.mark.parametrize("split", ["train", "test"])
def test_broken_file_is_named(folder, split, break_it):
    path = folder / f"{split}.parquet"
    path.write_bytes(break_it(path.read_bytes()))
    with pytest.raises(DataError) as caught:
        load(folder)
    assert f"{split}.parquet: not a readable Parquet file (" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damaged_bytes_anywhere_are_refused_or_read_and_raise_nothing_else(folder):
    path = folder / "train.parquet"
    sound = path.read_bytes()
    rng = random.Random(0)
    refused = 0
    for _ in range(300):
        damaged = bytearray(sound)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        try:
            load(folder)
        except DataError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize(
    ("files", "labels", "message"),
    [
        ([*FILES[:5], None], LABELS, r"image, row 5 has no image bytes"),
        ([*FILES[:5], b"text"], LABELS, r"image, row 5 can't be read as an image"),
        ([*FILES[:5], encode(IMAGES[0][:3])], LABELS, r"image, row 5 is 4x3 pixels"),
        (FILES, [*LABELS[:5], None], r"label, row 5: no label"),
        (FILES, [*LABELS[:5], 3], r"label, row 5: 3 is none of the class numbers 0 to 2"),
        (FILES, [*LABELS[:4], -1, 7], r"label, row 4: -1 is none of the class numbers"),
        ([], [], r"no rows"),
    ],
)
def test_bad_row_is_named_with_file_and_column(folder, files, labels, message):
    write_parquet(folder / "train.parquet", files, labels, class_names=NAMES)
    with pytest.raises(DataError, match=rf"train\.parquet: {message}.*;"):
        load(folder)


def test_stray_huge_label_makes_no_huge_number_of_classes(tmp_path):
    write_parquet(tmp_path / "train.parquet", FILES, [*LABELS[:5], 10**12])
    write_parquet(tmp_path / "test.parquet", FILES, LABELS)
    with pytest.raises(DataError, match=r"row 5: 1000000000000 is none of the class numbers"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"text": ["a"], "label": [0]}, r"no column 'image', only 'text', 'label'"),
        ({"image": [b"a"], "kind": [0]}, r"no column 'label', only 'image', 'kind'"),
        ({"image": ["a.png"], "label": [0]}, r"column 'image' is string; .* image bytes"),
        ({"image": [{"path": "a.png"}], "label": [0]}, r"column 'image' is struct"),
        ({"image": [b"a"], "label": ["cat"]}, r"column 'label' is string; .* integers"),
    ],
)
def test_other_columns_are_refused(folder, table, message):
    pq.write_table(pa.table(table), folder / "train.parquet")
    with pytest.raises(DataError, match=rf"train\.parquet: {message}"):
        load(folder)


def test_files_of_different_datasets_are_refused(folder):
    write_parquet(folder / "test.parquet", FILES, LABELS, class_names=["x", "y", "z"])
    with pytest.raises(DataError, match=r"class names are not those of .*train\.parquet"):
        load(folder)


def test_several_sets_of_files_are_refused(tmp_path):
    for below in ("clean", "noisy"):
        for split in ("train", "test"):
            write_parquet(tmp_path / below / f"{split}.parquet", FILES, LABELS)
    with pytest.raises(DataError, match="Parquet files in clean and noisy; give one of them"):
        load(tmp_path)


def test_one_split_alone_is_refused(folder):
    (folder / "test.parquet").unlink()
    said = r"needs: train\*\.parquet and test\*\.parquet .*; it holds train\.parquet$"
    with pytest.raises(DataError, match=said):
        load(folder)


@pytest.mark.skipif(not REAL_CIFAR10.is_dir(), reason="no CIFAR-10 Parquet beside the checkout")
def test_real_cifar10_test_split_is_read_whole(tmp_path):
    for split in ("train", "test"):  # the test split twice: the training split takes seconds
        (tmp_path / f"{split}.parquet").symlink_to(REAL_CIFAR10 / "test.parquet")
    dataset = load(tmp_path, "cifar10")
    assert dataset.test.images_NHWC.shape == (10_000, 32, 32, 3)
    assert np.bincount(dataset.test.labels).tolist() == [1000] * 10
    assert dataset.class_names[:2] == ("airplane", "automobile")


def test_a_split_of_which_a_file_is_missing_is_refused(tmp_path):
    """Half a download has half of the samples, and trains."""
    for number in (0, 1):
        name = f"train-{number:05}-of-00003.parquet"
        write_parquet(tmp_path / name, FILES, LABELS, class_names=NAMES)
    write_parquet(tmp_path / "test.parquet", FILES[:2], LABELS[:2], class_names=NAMES)
    with pytest.raises(DataError, match=r"train-00002-of-00003 is missing beside train-000"):
        load(tmp_path)
    whole = tmp_path / "train-00002-of-00003-0123456789abcdef.parquet"
    write_parquet(whole, FILES, LABELS, class_names=NAMES)
    assert len(load(tmp_path).train) == 18


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.int64()],
    ids=str,
)
def test_further_columns_may_name_owners(folder, kind):
    values = [3, 1, 2, 3, 1, 2] if kind == pa.int64() else list("cabcab")
    for split, owners in (("train", values), ("test", values[:2])):
        table = pq.read_table(folder / f"{split}.parquet")
        column = pa.array(owners, pa.string() if kind != pa.int64() else kind).cast(kind)
        pq.write_table(table.append_column("owner", column), folder / f"{split}.parquet")
    dataset = load(folder)
    assert list(dataset.columns) == ["label", "owner"]
    assert dataset.columns["owner"].tolist() == values
    assert dataset.test_columns["owner"].tolist() == values[:2]


def test_images_in_folders_have_no_columns_of_a_table_that_lies_beside_them(tmp_path):
    """The hub's layout of image folders has metadata.parquet, whose rows are in another order."""
    for split in ("train", "test"):
        for name in ("ant", "bee"):
            place = tmp_path / split / name
            place.mkdir(parents=True)
            (place / "a.png").write_bytes(FILES[0])
        owners = pa.table({"file_name": ["bee/a.png", "ant/a.png"], "owner": ["x", "y"]})
        pq.write_table(owners, tmp_path / split / "metadata.parquet")
    dataset = load(tmp_path, "image_folder")
    assert "owner" not in dataset.columns
