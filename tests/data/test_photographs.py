"""Random crops of photographs that keep their shape (reference.md, section 5)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import yaml
from data_files import encode, random_images, write_folders
from PIL import Image
from rich.console import Console
from small_fleets import SCENARIO

from edgesim.assembly.preparation import prepare
from edgesim.data.batches import BatchStream, passes_over
from edgesim.data.imagenette import CLASS_NAME_BY_WORDNET_ID
from edgesim.data.photographs import Photographs, kept_side, middle_squares, random_box
from edgesim.data.sources import open_dataset
from edgesim.errors import ScenarioError
from edgesim.fleet.run import run_scenario
from edgesim.scenario import load_scenario
from edgesim.streams import StreamPurpose, stream

RNG = np.random.default_rng(0)
MEAN, STD = (0.0,) * 3, (1.0,) * 3


def photographs(*shapes, side=8):
    images = [random_images(RNG, height, width, 3) for height, width in shapes]
    return Photographs.of(images, np.arange(len(images)), side), images


def test_images_of_different_shapes_come_back_and_are_dealt_to_shards():
    found, images = photographs((9, 9), (9, 20), (31, 9))
    assert all((a == b).all() for a, b in zip(found.images(range(3)), images, strict=True))
    shard = found.take(np.array([2, 0]))
    assert (shard.images([0])[0] == images[2]).all()
    assert shard.labels.tolist() == [2, 0]
    assert sum(array.nbytes for array in shard.contents[:1]) == 3 * (31 * 9 + 81)


def test_boxes_lie_in_the_image_and_have_the_areas_and_ratios_of_the_published_crop():
    rng, height, width = np.random.default_rng(1), 256, 341
    boxes = np.array([random_box(height, width, rng) for _ in range(4000)])
    left, top, right, bottom = boxes.T
    assert left.min() >= 0 <= top.min()
    assert right.max() <= width
    assert bottom.max() <= height
    areas = (right - left) * (bottom - top) / (height * width)
    ratios = (right - left) / (bottom - top)
    assert 0.079 < areas.min() < 0.09
    assert areas.max() > 0.9
    assert 0.74 < ratios.min() < 0.76
    assert 1.32 < ratios.max() < 1.35
    # log-uniform: of small boxes, which all fit, as many are wide as high
    assert abs((ratios[areas < 0.5] > 1).mean() - 0.5) < 0.04


@pytest.mark.parametrize(
    ("shape", "box"), [((100, 1000), (434, 0, 567, 100)), ((1000, 100), (0, 434, 100, 567))]
)
def test_where_no_box_fits_the_largest_in_the_middle_is_taken(shape, box, monkeypatch):
    monkeypatch.setattr("edgesim.data.photographs.ATTEMPTS", 0)
    found = random_box(*shape, np.random.default_rng(0))
    assert found == pytest.approx(box, abs=1)


def test_a_batch_has_crops_that_depend_on_seed_device_and_round_alone():
    shard, images = photographs((12, 12), (12, 20), (30, 12), (16, 12))
    stream_of = lambda device: BatchStream(  # noqa: E731
        shard, 2, "resized_crop_flip", MEAN, STD, 5, device
    )
    batch, labels = stream_of(1).batch(3)
    assert batch.shape == (2, 3, 8, 8)
    again, _ = stream_of(1).batch(3)
    assert torch.equal(batch, again)
    assert not torch.equal(batch, stream_of(1).batch(5)[0])
    assert not torch.equal(batch, stream_of(2).batch(3)[0])
    # The same by hand: the boxes are drawn first, one image after the other, then the mirroring.
    rng = stream(5, StreamPurpose.AUGMENT, 1, 3)
    crops = []
    for label in labels.tolist():
        image = Image.fromarray(images[label])
        box = random_box(*images[label].shape[:2], rng)
        crops.append(np.asarray(image.crop(box).resize((8, 8), Image.Resampling.BILINEAR)))
    mirrored = rng.random(2) < 0.5
    by_hand = [crop[:, ::-1] if m else crop for crop, m in zip(crops, mirrored, strict=True)]
    expected = torch.from_numpy(np.stack(by_hand).transpose(0, 3, 1, 2).astype(np.float32) / 255)
    assert torch.equal(batch, expected)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Imagenette's folders with wide and high images."""
    root = tmp_path_factory.mktemp("imagenette") / "imagenette2-160"
    for split, per_class in (("train", 3), ("val", 1)):
        images = {
            name: [random_images(RNG, 40, 60 + 10 * k, 3) for k in range(per_class)]
            for name in CLASS_NAME_BY_WORDNET_ID
        }
        write_folders(root / split, images, "png")
    return root.parent


def test_tests_are_on_the_middle_square_after_scaling_to_eight_sevenths(folder):
    """28 pixels: the shorter side becomes 32, then 2 pixels are cut off on each side of it."""
    assert (kept_side(224), kept_side(28)) == (256, 32)
    dataset = open_dataset("imagenette", folder, image_size=28)
    found = middle_squares(dataset.test, np.array([9, 0]))
    first = next(iter(CLASS_NAME_BY_WORDNET_ID))
    image = Image.open(folder / "imagenette2-160" / "val" / first / "0.png")
    resized = np.asarray(image.resize((48, 32), Image.Resampling.BILINEAR))  # 60 x 40 to 32 high
    assert (found.images_NHWC[1] == resized[2:30, 10:38]).all()
    assert found.labels.tolist() == [9, 0]


def test_a_fleet_trains_on_crops(folder, tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(SCENARIO))
    data = (
        f"data={{source: imagenette, path: {folder}, image_size: 28, augment: resized_crop_flip, "
        "batch_size: 2, partition: {kind: iid}}"
    )
    prepared = prepare(load_scenario(path, (data, "training.rounds=2", "evaluation={}")))
    with (tmp_path / "log").open("w") as log:
        result = run_scenario(prepared, tmp_path / "run", inline=True, console=Console(file=log))
    assert result.summary["rounds"] == 2
    shards = prepared.shards()
    pixels = sum(len(shard.pixels) + 8 * len(shard) for shard in shards)
    assert sum(prepared.shard_bytes()) == pixels
    test = next(iter(passes_over(prepared.test_samples(), 4, MEAN, STD)))
    assert test[0].shape == (4, 3, 28, 28)


def test_what_is_no_square_image_is_refused(tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(SCENARIO))
    (tmp_path / "flat").mkdir()
    for split in ("train", "test"):
        for name in ("a", "b"):
            place = tmp_path / "flat" / split / name
            place.mkdir(parents=True)
            for number in range(4):
                (place / f"{number}.png").write_bytes(encode(random_images(RNG, 8, 12, 3)))
    data = (
        f"data={{source: image_folder, path: {tmp_path / 'flat'}, augment: resized_crop_flip, "
        "batch_size: 2, partition: {kind: iid}}"
    )
    with pytest.raises(ScenarioError, match="takes square crops"):
        prepare(load_scenario(path, (data, "evaluation={}")))
