"""Mini-batches: pure functions of the round, and augmentation that does what torchvision's does."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import torch
from data_files import random_images
from hypothesis import given
from hypothesis import strategies as st

from edgesim.data.batches import (
    BatchStream,
    augment_images,
    evaluation_batches,
    normalise,
    normalised_bytes,
)
from edgesim.data.images import LabelledImages

MEAN, STD = (0.25, 0.5, 0.75), (0.5, 0.25, 2.0)


def numbered_shard(num_samples: int) -> LabelledImages:
    """Each sample's label is its position, and so are its pixels."""
    labels = np.arange(num_samples)
    images = np.broadcast_to(labels[:, None, None, None], (num_samples, 4, 5, 3))
    return LabelledImages(images.astype(np.uint8), labels)


def stream_of(num_samples: int, batch_size: int, augment="none", seed=1, device=0) -> BatchStream:
    return BatchStream(numbered_shard(num_samples), batch_size, augment, MEAN, STD, seed, device)


def labels_of(stream: BatchStream, rounds) -> list[list[int]]:
    return [stream.batch(r)[1].tolist() for r in rounds]


@given(num_samples=st.integers(1, 40), batch_size=st.integers(1, 12), epoch=st.integers(0, 3))
def test_each_epoch_holds_every_sample_once_and_keeps_the_last_partial_batch(
    num_samples, batch_size, epoch
):
    stream = stream_of(num_samples, batch_size)
    count = stream.batches_per_epoch
    batches = labels_of(stream, range(epoch * count, (epoch + 1) * count))
    assert sorted(chain(*batches)) == list(range(num_samples))
    assert [len(b) for b in batches[:-1]] == [batch_size] * (count - 1)
    assert 1 <= len(batches[-1]) <= batch_size


@pytest.mark.parametrize("augment", ["none", "flip", "crop_flip"])
def test_batch_is_a_pure_function_of_the_round(augment):
    images = random_images(np.random.default_rng(0), 10, 8, 8, 3)
    shard = LabelledImages(images, np.arange(10))
    make = lambda: BatchStream(shard, 4, augment, MEAN, STD, 1, 0)  # noqa: E731
    in_order = make()
    expected = [in_order.batch(r) for r in range(7)]
    backwards = make()
    for r in reversed(range(7)):
        for got, wanted in zip(backwards.batch(r), expected[r], strict=True):
            assert torch.equal(got, wanted)


@given(num_samples=st.integers(1, 20), batch_size=st.integers(1, 6))
def test_kept_inputs_are_the_bits_that_a_batch_makes_anew_and_a_batch_may_be_changed(
    num_samples, batch_size
):
    images = random_images(np.random.default_rng(num_samples), num_samples, 4, 5, 3)
    shard = LabelledImages(images, np.arange(num_samples))
    kept = BatchStream(shard, batch_size, "none", MEAN, STD, 1, 0, keep_inputs=True)
    anew = BatchStream(shard, batch_size, "none", MEAN, STD, 1, 0)
    for round_index in range(2 * kept.batches_per_epoch):
        inputs, labels = kept.batch(round_index)
        expected, expected_labels = anew.batch(round_index)
        assert torch.equal(inputs, expected)
        assert inputs.stride() == expected.stride()
        assert torch.equal(labels, expected_labels)
        inputs.zero_()
        labels.zero_()
    assert normalised_bytes(shard) == sum(
        anew.batch(r)[0].nbytes for r in range(anew.batches_per_epoch)
    )


def test_an_epochs_order_is_drawn_by_seed_device_and_epoch():
    """StreamPurpose 2. Numbers of purposes are part of every result."""
    for seed, device, epoch in ((1, 0, 0), (1, 3, 0), (5, 3, 2)):
        entropy = np.random.SeedSequence(seed, spawn_key=(2, device, epoch))
        order = np.random.Generator(np.random.PCG64(entropy)).permutation(10).tolist()
        batches = stream_of(10, 4, seed=seed, device=device)
        assert labels_of(batches, range(3 * epoch, 3 * epoch + 3)) == [
            order[:4],
            order[4:8],
            order[8:],
        ]
        assert [batches.size(r) for r in range(3 * epoch, 3 * epoch + 3)] == [4, 4, 2]


def test_a_rounds_augmentation_is_drawn_by_seed_device_and_round():
    """StreamPurpose 3."""
    shard = LabelledImages(random_images(np.random.default_rng(0), 9, 8, 8, 3), np.arange(9))
    images, labels = BatchStream(shard, 4, "crop_flip", MEAN, STD, 5, 3).batch(4)
    entropy = np.random.SeedSequence(5, spawn_key=(3, 3, 4))
    rng = np.random.Generator(np.random.PCG64(entropy))
    own = np.moveaxis(shard.images_NHWC[labels.numpy()], 3, 1)
    assert torch.equal(images, normalise(augment_images(own, "crop_flip", rng), MEAN, STD))


def test_epochs_devices_and_seeds_have_orders_of_their_own():
    base = stream_of(40, 40)
    orders = [*labels_of(base, [0, 1])]
    orders += labels_of(stream_of(40, 40, device=1), [0]) + labels_of(
        stream_of(40, 40, seed=2), [0]
    )
    assert len({tuple(order) for order in orders}) == 4


def test_every_round_device_and_seed_draws_an_augmentation_of_its_own():
    """All samples are one picture, so batches that look alike were augmented alike."""
    picture = random_images(np.random.default_rng(0), 8, 8, 3)
    shard = LabelledImages(np.stack([picture] * 12), np.arange(12))
    first_epoch, second_epoch = [0, 1, 2], [3]
    seen = [
        BatchStream(shard, 4, "crop_flip", MEAN, STD, seed, device).batch(r)[0]
        for seed, device, rounds in (
            (1, 0, first_epoch + second_epoch),
            (2, 0, first_epoch),
            (1, 1, first_epoch),
        )
        for r in rounds
    ]
    assert len({images.numpy().tobytes() for images in seen}) == 10


def test_images_belong_to_their_labels():
    images_NCHW, labels_N = stream_of(20, 7).batch(1)
    assert images_NCHW.shape == (7, 3, 4, 5)
    assert images_NCHW.dtype == torch.float32
    assert images_NCHW.is_contiguous()
    assert labels_N.dtype == torch.int64
    expected = (labels_N[:, None].double() / 255 - torch.tensor(MEAN).double()) / torch.tensor(STD)
    assert torch.allclose(images_NCHW[:, :, 0, 0].double(), expected, atol=1e-6)


def test_normalising_scales_by_channel():
    pixels = np.array([0, 51, 255], np.uint8).reshape(1, 3, 1, 1)
    # 0 becomes -0.25 / 0.5, 51 / 255 = 0.2 becomes -0.3 / 0.25, and 1 becomes 0.25 / 2
    assert normalise(pixels, MEAN, STD).flatten().tolist() == pytest.approx([-0.5, -1.2, 0.125])


def test_normalising_equals_torchvision_bit_for_bit():
    from edgesim.data.torchvision_compat import torchvision_datasets

    torchvision_datasets()
    from torchvision.transforms import functional

    image = random_images(np.random.default_rng(0), 6, 5, 3)
    expected = functional.normalize(functional.to_tensor(image), MEAN, STD)
    assert torch.equal(normalise(np.moveaxis(image[None], 3, 1), MEAN, STD)[0], expected)


def test_flip_mirrors_about_half_of_the_images_and_no_others():
    images = random_images(np.random.default_rng(0), 400, 3, 4, 4)
    flipped = augment_images(images, "flip", np.random.default_rng(1))
    is_same = (flipped == images).all(axis=(1, 2, 3))
    is_mirrored = (flipped == images[..., ::-1]).all(axis=(1, 2, 3))
    assert (is_same ^ is_mirrored).all()
    assert 160 < is_same.sum() < 240  # binomial(400, 1/2): four standard deviations


def test_crop_takes_any_window_of_the_black_bordered_image_alike():
    """Oracle: each result is sought among the 2 x 81 that RandomCrop(padding=4) can give."""
    height, width = 6, 7
    images = random_images(np.random.default_rng(0), 3000, 1, height, width)
    cropped = augment_images(images, "crop_flip", np.random.default_rng(1))
    assert cropped.dtype == np.uint8
    found = np.zeros((2, 9, 9), np.int64)
    for flip, source in enumerate((images, images[..., ::-1])):
        padded = np.pad(source, ((0, 0), (0, 0), (4, 4), (4, 4)))
        for top in range(9):
            for left in range(9):
                window = padded[:, :, top : top + height, left : left + width]
                found[flip, top, left] = (window == cropped).all(axis=(1, 2, 3)).sum()
    assert found.sum() >= 3000  # noise: a window is hardly ever another one's likeness
    assert found.sum() <= 3010
    assert found.min() >= 4  # Poisson with mean 18.5
    assert found.max() <= 42


@pytest.mark.parametrize("augment", ["none", "flip", "crop_flip"])
def test_read_only_shards_are_served_and_never_written(augment):
    """Shards arrive through shared memory, read-only; torch warns of views on such arrays."""
    shard = numbered_shard(9)
    before = shard.images_NHWC.copy()
    shard.images_NHWC.flags.writeable = shard.labels.flags.writeable = False
    images_NCHW, labels_N = BatchStream(shard, 4, augment, MEAN, STD, 1, 0).batch(0)
    images_NCHW.zero_()
    labels_N.zero_()
    for images, labels in evaluation_batches(shard.images_NHWC, shard.labels, 4, MEAN, STD):
        images.zero_()
        labels.zero_()
    assert (shard.images_NHWC == before).all()
    assert shard.labels.tolist() == list(range(9))


def test_evaluation_passes_over_all_samples_in_order():
    shard = numbered_shard(10)
    batches = list(evaluation_batches(shard.images_NHWC, shard.labels, 4, MEAN, STD))
    assert [len(labels) for _, labels in batches] == [4, 4, 2]
    assert torch.cat([labels for _, labels in batches]).tolist() == list(range(10))
    red = torch.cat([images[:, 0, 0, 0] for images, _ in batches])
    assert torch.allclose(red, (torch.arange(10) / 255 - MEAN[0]) / STD[0])


@pytest.mark.parametrize(
    ("num_samples", "batch_size", "augment"), [(0, 4, "none"), (4, 0, "none"), (4, 2, "rotate")]
)
def test_impossible_streams_are_refused(num_samples, batch_size, augment):
    with pytest.raises(ValueError, match=r"no batches|augment is 'rotate'"):
        stream_of(num_samples, batch_size, augment)
