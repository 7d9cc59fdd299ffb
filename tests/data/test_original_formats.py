"""Named datasets in the files that their authors publish, and folders of images."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from data_files import (
    encode,
    load_dataset,
    random_images,
    write_cifar,
    write_folders,
    write_idx,
    write_parquet,
)

from edgesim.data import fashion_mnist, imagenette
from edgesim.data.errors import DataError
from edgesim.data.imagenette import CLASS_NAME_BY_WORDNET_ID, FOLDERS
from edgesim.data.torchvision_compat import torchvision_datasets

RNG = np.random.default_rng(0)


def cifar_batch(num_images: int, label_key: str, label: int) -> dict:
    rows = random_images(RNG, num_images, 3 * 32 * 32)  # all red, then all green, then all blue
    return {"data": rows, label_key: [label] * num_images}


def test_cifar10_batches_are_joined_in_order(tmp_path, monkeypatch):
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    batches = {name: cifar_batch(2, "labels", k) for k, name in enumerate(names)}
    meta = {"batches.meta": {"label_names": [f"class {k}" for k in range(10)]}}
    write_cifar(tmp_path, torchvision_datasets().CIFAR10, {**batches, **meta}, monkeypatch)
    dataset = load_dataset("cifar10", tmp_path)
    assert dataset.train.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert dataset.test.labels.tolist() == [5, 5]
    assert dataset.class_names[3] == "class 3"
    second = batches["data_batch_1"]["data"][1].reshape(3, 32, 32)
    assert (dataset.train.images_NHWC[1] == np.moveaxis(second, 0, 2)).all()
    assert dataset.mean == (0.4914, 0.4822, 0.4465)  # reference.md, section 5
    assert dataset.std == (0.2023, 0.1994, 0.2010)
    same = load_dataset("cifar10", tmp_path / "cifar-10-batches-py")
    assert (same.train.images_NHWC == dataset.train.images_NHWC).all()


def test_cifar100_has_fine_labels(tmp_path, monkeypatch):
    content = {
        "train": cifar_batch(3, "fine_labels", 99),
        "test": cifar_batch(2, "fine_labels", 0),
        "meta": {"fine_label_names": [f"class {k}" for k in range(100)]},
    }
    write_cifar(tmp_path, torchvision_datasets().CIFAR100, content, monkeypatch)
    dataset = load_dataset("cifar100", tmp_path, image_size=16)
    assert dataset.train.labels.tolist() == [99] * 3
    assert dataset.image_shape == (3, 16, 16)
    assert dataset.num_classes == 100


class Trap:
    """Leaves a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_cifar_files_that_were_tampered_with_are_never_unpickled(tmp_path):
    root = tmp_path / "cifar-10-batches-py"
    root.mkdir()
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch", "batches.meta"]:
        (root / name).write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    with pytest.raises(DataError, match=r"cifar-10-batches-py: files are missing or differ"):
        load_dataset("cifar10", tmp_path)
    assert not (tmp_path / "sprung").exists()


def write_fashion_mnist(folder: Path, suffix: str = ".gz", num_labels: int = 6) -> np.ndarray:
    images = random_images(RNG, 6, 28, 28)
    for split in ("train", "t10k"):
        write_idx(folder / f"{split}-images-idx3-ubyte{suffix}", images)
        write_idx(
            folder / f"{split}-labels-idx1-ubyte{suffix}", np.arange(num_labels, dtype=np.uint8)
        )
    return images


@pytest.mark.parametrize("suffix", [".gz", ""])
@pytest.mark.parametrize("below", [".", "raw", "FashionMNIST/raw"])
def test_fashion_mnist_is_read_where_debian_and_torchvision_put_it(tmp_path, suffix, below):
    images = write_fashion_mnist(tmp_path / below, suffix)
    dataset = load_dataset("fashion_mnist", tmp_path)
    assert (dataset.train.images_NHWC[..., 0] == images).all()
    assert dataset.test.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert dataset.class_names[9] == "Ankle boot"
    assert dataset.mean == pytest.approx([images.mean() / 255])
    assert dataset.std == pytest.approx([images.std() / 255])


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda f: (f / "t10k-labels-idx1-ubyte.gz").unlink(), r"t10k-labels.*\[.gz\] is missing"),
        (
            lambda f: (f / "train-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8b cut"),
            r"train-images-idx3-ubyte\.gz: .*; fetch the file again",
        ),
        (
            lambda f: write_idx(f / "train-images-idx3-ubyte.gz", np.zeros((6, 784), np.uint8)),
            r"train-images.*no IDX file of bytes in 3 dimensions",
        ),
        (
            lambda f: (f / "train-labels-idx1-ubyte").write_bytes(
                b"\x00\x00\x08\x01\x00\x00\x00\x06abc"
            ),
            r"train-labels-idx1-ubyte: 6 bytes announced, 3 there",
        ),
        (lambda f: write_fashion_mnist(f, num_labels=5), r"5 labels for 6 images"),
        (
            lambda f: write_idx(
                f / "train-labels-idx1-ubyte.gz", np.array([0, 1, 2, 10, 4, 5], np.uint8)
            ),
            r"train-labels.*label 10 of sample 3 is no class",
        ),
    ],
)
def test_broken_idx_file_is_named(tmp_path, break_it, message):
    write_fashion_mnist(tmp_path)
    break_it(tmp_path)
    with pytest.raises(DataError, match=message):
        load_dataset("fashion_mnist", tmp_path)


def test_files_longer_than_what_is_read_at_a_time_are_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(fashion_mnist, "CHUNK", 1000)  # of 4,704 bytes of pixels
    images = write_fashion_mnist(tmp_path)
    dataset = load_dataset("fashion_mnist", tmp_path)
    assert (dataset.train.images_NHWC[..., 0] == images).all()


def test_imagenette_is_fetched_in_the_size_asked_for(monkeypatch):
    fetched = []
    monkeypatch.setattr(imagenette, "fetch_published", lambda *asked: fetched.append(asked))
    imagenette.fetch_imagenette(Path("folder"), 224)
    assert fetched == [("imagenette", Path("folder"), "320px")]


def flat(value: int, height: int, width: int) -> np.ndarray:
    return np.full((height, width, 3), value, np.uint8)


def test_image_folder_numbers_classes_by_name(tmp_path):
    write_folders(tmp_path / "train", {"dog": [flat(2, 4, 4)], "cat": [flat(1, 4, 4)] * 2}, "png")
    write_folders(tmp_path / "val", {"dog": [flat(4, 4, 4)], "cat": [flat(3, 4, 4)]}, "PNG")
    (tmp_path / "train" / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "train" / ".cache").mkdir()
    dataset = load_dataset("image_folder", tmp_path)
    assert dataset.class_names == ("cat", "dog")
    assert dataset.train.labels.tolist() == [0, 0, 1]
    assert dataset.train.images_NHWC[:, 0, 0, 0].tolist() == [1, 1, 2]
    assert dataset.test.images_NHWC[:, 0, 0, 0].tolist() == [3, 4]
    assert dataset.std == (pytest.approx(2**0.5 / 3 / 255),) * 3  # of 1, 1, 2


def write_boards(split: Path, images: dict[str, int]) -> None:
    """Images of one class each, below folders; a path without a folder lies in the class itself."""
    for place, value in images.items():
        *folders, _ = place.split("/")
        Path(split, *folders).mkdir(parents=True, exist_ok=True)
        Path(split, f"{place}.png").write_bytes(encode(flat(value, 4, 4)))


def test_folders_below_a_class_say_whose_an_image_is(tmp_path):
    write_boards(
        tmp_path / "train",
        {"cat/attic/2024/a": 1, "cat/cellar/b": 2, "dog/attic/a": 3, "dog/cellar/deep/er/c": 4},
    )
    write_boards(tmp_path / "test", {"cat/cellar/x": 5, "dog/attic/x": 6})
    dataset = load_dataset("image_folder", tmp_path)
    assert dataset.train.images_NHWC[:, 0, 0, 0].tolist() == [1, 2, 3, 4]
    assert dataset.columns["folder"].tolist() == ["attic", "cellar", "attic", "cellar"]
    assert dataset.test_columns["folder"].tolist() == ["cellar", "attic"]


def test_an_image_without_a_folder_has_no_owner(tmp_path):
    write_boards(tmp_path / "train", {"cat/attic/a": 1, "cat/b": 2})
    write_boards(tmp_path / "test", {"cat/x": 5})
    dataset = load_dataset("image_folder", tmp_path)
    assert dataset.columns["folder"].tolist() == ["attic", None]
    assert dataset.test_columns == {}


def test_capital_letters_come_first_in_the_order_of_classes(tmp_path):
    """As torchvision's ImageFolder numbers them, so that a model's classes mean the same here."""
    images = {"ant": [flat(1, 4, 4)], "Zebra": [flat(2, 4, 4)], "bee": [flat(3, 4, 4)]}
    for split in ("train", "val"):
        write_folders(tmp_path / split, images, "png")
    dataset = load_dataset("image_folder", tmp_path)
    assert dataset.class_names == ("Zebra", "ant", "bee")
    assert dataset.train.images_NHWC[:, 0, 0, 0].tolist() == [2, 1, 3]


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ({"cat": [flat(1, 4, 4)]}, {"dog": [flat(1, 4, 4)]}, r"val/dog: no such class in"),
        ({"cat": [flat(1, 4, 4)], "dog": []}, {"cat": [flat(1, 4, 4)]}, r"train/dog: no images"),
        ({"cat": [flat(1, 4, 4)]}, {"cat": []}, r"val: no images in the folders of the classes"),
        ({"cat": [flat(1, 4, 4)]}, {}, r"lacks what this data\.source needs: train/<class>/"),
        ({"cat": [flat(1, 4, 4)]}, {}, r"or test/<class>/\) folders of images; it holds train/$"),
        ({"cat": [flat(1, 4, 4), flat(1, 5, 4)]}, {"cat": [flat(1, 4, 4)]}, r"1\.png is 4x5 pix"),
        (
            {"cat": [flat(1, 4, 4)]},
            {"cat": [flat(1, 5, 5)]},
            r"are 4x4 pixels with 3 channels, test images 5x5 .*size",
        ),
    ],
)
def test_unusable_image_folder_is_refused(tmp_path, train, test, message):
    write_folders(tmp_path / "train", train, "png")
    write_folders(tmp_path / "val", test, "png")
    with pytest.raises(DataError, match=message):
        load_dataset("image_folder", tmp_path)


@pytest.mark.parametrize("test", [{"dog": [flat(2, 4, 4)]}, {"cat": [], "dog": [flat(2, 4, 4)]}])
def test_a_class_may_lack_test_images(tmp_path, test):
    write_folders(tmp_path / "train", {"cat": [flat(1, 4, 4)], "dog": [flat(1, 4, 4)]}, "png")
    write_folders(tmp_path / "val", test, "png")
    dataset = load_dataset("image_folder", tmp_path)
    assert dataset.train.labels.tolist() == [0, 1]
    assert dataset.test.labels.tolist() == [1]


def test_images_in_hidden_folders_are_left_out(tmp_path):
    """Above the class there may be hidden folders, such as that of a cache."""
    root = tmp_path / ".data"
    hidden = {"cat/.thumbnails/a": 7, "cat/attic/.trash/deep/b": 8, "cat/.c": 9}
    write_boards(root / "train", {"cat/attic/a": 1, **hidden})
    write_boards(root / "test", {"cat/x": 5, **hidden})
    dataset = load_dataset("image_folder", root)
    assert dataset.train.images_NHWC[:, 0, 0, 0].tolist() == [1]
    assert dataset.test.images_NHWC[:, 0, 0, 0].tolist() == [5]


def test_broken_file_in_an_image_folder_is_named(tmp_path):
    for split in ("train", "val"):
        write_folders(tmp_path / split, {"cat": [flat(1, 4, 4)]}, "png")
    (tmp_path / "train" / "cat" / "1.jpg").write_bytes(b"half a picture")
    with pytest.raises(DataError, match=r"train/cat/1\.jpg can't be read as an image"):
        load_dataset("image_folder", tmp_path)


def write_imagenette(root: Path, value: int) -> None:
    images = {wordnet_id: [flat(value, 20, 30)] for wordnet_id in CLASS_NAME_BY_WORDNET_ID}
    write_folders(root / "train", images, "JPEG")
    write_folders(root / "val", images, "JPEG")


def test_imagenette_is_read_from_the_smallest_sufficient_archive(tmp_path):
    for value, size in enumerate(FOLDERS, start=1):
        write_imagenette(tmp_path / FOLDERS[size], value)

    def value_at(image_size: int) -> int:
        dataset = load_dataset("imagenette", tmp_path, image_size=image_size)
        assert dataset.image_shape == (3, image_size, image_size)
        return int(dataset.train.images_NHWC[0, 0, 0, 0])

    assert [value_at(size) for size in (128, 160, 224, 400)] == [1, 1, 2, 3]
    unpacked = load_dataset("imagenette", tmp_path / "imagenette2-320", image_size=8)
    assert unpacked.train.images_NHWC[0, 0, 0, 0] == 2
    assert unpacked.class_names[1] == "English springer"
    assert unpacked.mean == (0.485, 0.456, 0.406)


def test_imagenette_is_read_from_a_smaller_archive_if_there_is_no_other(tmp_path):
    write_imagenette(tmp_path / "imagenette2-160", 1)
    assert load_dataset("imagenette", tmp_path, image_size=224).image_shape == (3, 224, 224)


def test_incomplete_imagenette_is_refused(tmp_path):
    root = tmp_path / "imagenette2-160"
    write_folders(root / "train", {"n01440764": [flat(1, 4, 4)]}, "JPEG")
    with pytest.raises(DataError, match="imagenette2-160: train/ or val/ is missing"):
        load_dataset("imagenette", tmp_path, image_size=8)
    write_folders(root / "val", {"n01440764": [flat(1, 4, 4)]}, "JPEG")
    with pytest.raises(DataError, match="not Imagenette's ten classes"):
        load_dataset("imagenette", tmp_path, image_size=8)
    with pytest.raises(DataError, match=r"data\.image_size is missing"):
        load_dataset("imagenette", tmp_path)


@pytest.mark.parametrize("source", ["cifar10", "cifar100", "fashion_mnist", "imagenette"])
def test_every_named_dataset_is_read_from_parquet_alike(tmp_path, source):
    files = [encode(image) for image in random_images(RNG, 4, 8, 8, 3)]
    for split in ("train", "test"):
        write_parquet(tmp_path / f"{split}.parquet", files, [0, 1, 2, 9])
    dataset = load_dataset(source, tmp_path)
    assert dataset.name == source
    assert dataset.train.labels.tolist() == [0, 1, 2, 9]
