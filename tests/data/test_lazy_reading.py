"""Images are decoded when they are used, and only those that are; the bits are the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from data_files import encode, load_dataset, random_images, write_folders, write_parquet

from edgesim.data import decoding
from edgesim.data.errors import DataError
from edgesim.data.sources import open_dataset

NUM_TRAIN, NUM_TEST = 3000, 400  # several reads of a Parquet file's row group
IMAGES = random_images(np.random.default_rng(3), NUM_TRAIN + NUM_TEST, 4, 4, 3)
LABELS = np.arange(NUM_TRAIN + NUM_TEST) % 10


@pytest.fixture(scope="module")
def cifar(tmp_path_factory):
    """CIFAR-10 in Parquet files, of small images; the training split in two files."""
    folder = tmp_path_factory.mktemp("cifar")
    files = [encode(image) for image in IMAGES]
    parts = {"train-0": (0, 1800), "train-1": (1800, NUM_TRAIN), "test": (NUM_TRAIN, None)}
    for name, (start, end) in parts.items():
        write_parquet(folder / f"{name}.parquet", files[start:end], LABELS[start:end].tolist())
    return folder


@pytest.fixture
def decoded(monkeypatch):
    """Names of the images that were decoded."""
    seen = []
    decode = decoding._Decoder.decode

    def counted(self, encoded):
        seen.append(encoded.where)
        return decode(self, encoded)

    monkeypatch.setattr(decoding._Decoder, "decode", counted)
    return seen


def test_opening_decodes_nothing(cifar, decoded):
    dataset = open_dataset("cifar10", cifar)
    assert (len(dataset.train), len(dataset.test)) == (NUM_TRAIN, NUM_TEST)
    assert dataset.image_shape == (3, 4, 4)
    assert dataset.mean == (0.4914, 0.4822, 0.4465)
    assert not decoded


@pytest.mark.parametrize("order", ["increasing", "shuffled", "repeated"])
def test_some_samples_are_decoded_alone_and_are_those_asked_for(cifar, decoded, order):
    rng = np.random.default_rng(1)
    chosen = rng.permutation(NUM_TRAIN)[:200]
    chosen = {
        "increasing": np.sort(chosen),
        "shuffled": chosen,
        "repeated": np.concatenate([chosen, chosen[:50]]),
    }[order]
    taken = open_dataset("cifar10", cifar).train.take(chosen)
    assert (taken.images_NHWC == IMAGES[chosen]).all()
    assert (taken.labels == LABELS[chosen]).all()
    assert len(decoded) == 200


def test_samples_of_one_file_do_not_touch_the_other(cifar, decoded):
    open_dataset("cifar10", cifar).train.take(np.arange(1900, 1950))
    files = [Path(where.partition(":")[0]).name for where in set(decoded)]
    assert set(files) == {"train-1.parquet"}
    assert len(files) == 50


def test_all_images_are_decoded_once_and_kept(cifar, decoded):
    dataset = open_dataset("cifar10", cifar)
    assert (dataset.train.images_NHWC == IMAGES[:NUM_TRAIN]).all()
    num_decoded = len(decoded)
    assert dataset.train.images_NHWC is dataset.train.images_NHWC
    assert (dataset.train.take(np.arange(10)).images_NHWC == IMAGES[:10]).all()
    assert len(decoded) == num_decoded


def test_a_broken_image_is_named_when_it_is_used(tmp_path):
    files = [encode(image) for image in IMAGES[:20]]
    files[7] = b"no image"
    write_parquet(tmp_path / "train.parquet", files, LABELS[:20].tolist())
    write_parquet(tmp_path / "test.parquet", files[:3], LABELS[:3].tolist())
    train = open_dataset("cifar10", tmp_path).train
    assert len(train.take(np.arange(7))) == 7
    with pytest.raises(DataError, match=r"train\.parquet: image, row 7 can't be read as an image"):
        train.take(np.array([9, 7]))
    with pytest.raises(DataError, match="row 7 can't be read"):
        load_dataset("cifar10", tmp_path)


def test_sizes_are_compared_with_the_first_image_whichever_are_used(tmp_path):
    files = [encode(image) for image in IMAGES[:5]]
    files[3] = files[4] = encode(IMAGES[3][:3])
    write_parquet(tmp_path / "train.parquet", files, LABELS[:5].tolist())
    write_parquet(tmp_path / "test.parquet", files[:3], LABELS[:3].tolist())
    with pytest.raises(DataError, match="row 3 is 4x3 pixels, the first image 4x4"):
        open_dataset("cifar10", tmp_path).train.take(np.array([3, 4]))


def test_a_grey_image_beside_coloured_ones_has_three_channels_alone_too(tmp_path):
    grey = encode(IMAGES[0, ..., 0].copy())
    files = [grey, grey, encode(IMAGES[2])]
    write_parquet(tmp_path / "train.parquet", files, [0, 1, 2])
    write_parquet(tmp_path / "test.parquet", [grey], [0])
    dataset = open_dataset("parquet", tmp_path)
    assert dataset.train.take(np.array([1])).images_NHWC.shape == (1, 4, 4, 3)
    assert dataset.test.images_NHWC.shape == (1, 4, 4, 3)


@pytest.mark.parametrize("image_size", [None, 6])
def test_every_source_gives_the_same_bits_in_parts_as_at_once(tmp_path: Path, image_size):
    write_folders(tmp_path / "train", {"a": IMAGES[:6], "b": IMAGES[6:9]}, "png")
    write_folders(tmp_path / "test", {"a": IMAGES[9:11], "b": IMAGES[11:12]}, "png")
    for source, path in (("image_folder", tmp_path), ("digits", None)):
        whole = load_dataset(source, path, image_size=image_size)
        parts = open_dataset(source, path, image_size=image_size)
        chosen = np.array([8, 0, 3])
        for one, other in ((whole.train, parts.train), (whole.test, parts.test)):
            picked = chosen % len(one)
            assert (one.take(picked).images_NHWC == other.take(picked).images_NHWC).all()
            assert (one.labels == other.labels).all()
        assert whole.statistics == parts.statistics


def test_a_scenario_decodes_what_its_devices_and_evaluations_use(cifar, decoded, tmp_path):
    from edgesim.assembly.preparation import prepare
    from edgesim.scenario.files import parse_scenario

    scenario = parse_scenario(
        f"""
name: few
fleet: {{devices: 4}}
topology: {{kind: ring}}
data:
  source: cifar10
  path: {cifar}
  train_samples: 100
  partition: {{kind: iid}}
  batch_size: 8
model: {{name: small_cnn}}
training: {{epochs: 1, optimizer: {{lr: 0.1}}}}
gossip: {{algorithm: choco, averaging_rate: 0.5}}
evaluation: {{samples: 30}}
""",
        "few.yaml",
        tmp_path,
    )
    prepared = prepare(scenario)
    assert len(set(decoded)) <= 100 + 30 + 2
    whole = load_dataset("cifar10", cifar)
    shards = prepared.shards()
    assert sum(map(len, shards)) == 100
    for shard, indices in zip(shards, prepared.indices, strict=True):
        assert (shard.images_NHWC == whole.train.images_NHWC[indices]).all()
        assert (shard.labels == whole.train.labels[indices]).all()
    decoded.clear()
    few = prepare(scenario, reads_images=False)
    assert len(set(decoded)) <= 100 + 30 + 2
    assert few.num_test_samples == 30
