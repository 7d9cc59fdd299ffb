"""Partitions: published counts, and no sample is lost or given twice.

Source: reference.md, section 4 and section 10, check 2.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgesim.data.errors import PartitionError
from edgesim.data.partition import dirichlet, iid, label_skew

SEED = 1234  # of the reference code
# reference.md, section 4
IMAGENETTE_CLASS_SIZES = [963, 955, 993, 858, 941, 956, 961, 931, 951, 960]

label_arrays = st.lists(st.integers(0, 4), min_size=1, max_size=60).map(
    lambda labels: np.array(labels, np.int64)
)


def shuffled_labels(class_sizes: list[int]) -> np.ndarray:
    labels = np.repeat(np.arange(len(class_sizes)), class_sizes)
    return np.random.default_rng(0).permutation(labels)


CIFAR10 = shuffled_labels([5000] * 10)
IMAGENETTE = shuffled_labels(IMAGENETTE_CLASS_SIZES)
AG_NEWS = shuffled_labels([30_000] * 4)


def sizes(shards: list[np.ndarray]) -> list[int]:
    return [len(shard) for shard in shards]


def assert_disjoint(shards: list[np.ndarray], num_samples: int) -> None:
    everything = np.concatenate(shards)
    assert len(np.unique(everything)) == len(everything)
    assert everything.min() >= 0
    assert everything.max() < num_samples


@pytest.mark.parametrize(
    ("num_devices", "skew", "from_sorted", "from_pool"),
    [
        (8, 0.0, 0, 6250),
        (8, 0.4, 2500, 3750),
        (8, 0.8, 5000, 1249),  # 1 - 0.8 is 0.19999...
        (8, 0.9, 5625, 624),
        (8, 1.0, 6250, 0),
        (16, 0.4, 1250, 1875),
        (16, 0.8, 2500, 624),
        (16, 0.9, 2812, 312),
    ],
)
def test_cifar10_shards_have_the_sizes_of_the_reference(num_devices, skew, from_sorted, from_pool):
    shards = label_skew(CIFAR10, num_devices, skew, SEED)
    assert sizes(shards) == [from_sorted + from_pool] * num_devices
    assert_disjoint(shards, len(CIFAR10))
    for shard in shards:  # the sorted part comes first
        assert (np.diff(CIFAR10[shard[:from_sorted]]) >= 0).all()


@pytest.mark.parametrize(
    ("skew", "major_minor"),
    [
        (0.4, [(2000, 500), (1500, 1000), (1000, 1500), (500, 2000)]),
        (0.8, [(4000, 1000), (3000, 2000), (2000, 3000), (1000, 4000)]),
        (0.9, [(4500, 1125), (3375, 2250), (2250, 3375), (1125, 4500)]),
    ],
)
def test_each_of_eight_cifar10_devices_has_two_neighbouring_classes(skew, major_minor):
    shards = label_skew(CIFAR10, 8, skew, SEED)
    for device, shard in enumerate(shards):
        first_class = device % 4 + 5 * (device // 4)  # the pattern repeats with classes + 5
        sorted_part = CIFAR10[shard[: sum(major_minor[0])]]
        expected = np.zeros(10, np.int64)
        expected[first_class : first_class + 2] = major_minor[device % 4]
        assert np.bincount(sorted_part, minlength=10).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("num_devices", "expected"),
    [(4, [1420 + 946] * 3 + [1416 + 946]), (8, [710 + 473] * 7 + [706 + 473])],
)
def test_imagenette_leaves_the_last_device_four_samples_short(num_devices, expected):
    shards = label_skew(IMAGENETTE, num_devices, 0.6, SEED)
    assert sizes(shards) == expected
    assert_disjoint(shards, len(IMAGENETTE))


@pytest.mark.parametrize(("skew", "own", "others"), [(0.5, 15_000, 15_000), (0.9, 27_000, 2_999)])
def test_each_ag_news_device_has_one_class_and_a_random_rest(skew, own, others):
    for device, shard in enumerate(label_skew(AG_NEWS, 4, skew, SEED)):
        assert len(shard) == own + others
        assert set(AG_NEWS[shard[:own]]) == {device}


def test_pool_is_shuffled_by_pythons_generator():
    """reference.md, section 4, written as it is there: lists, in order, taken from the front."""
    labels, num_devices, skew = np.array([2, 0, 1, 1, 0, 2, 2, 0, 1, 0, 2, 1]), 2, 0.5
    in_class_order = [1, 4, 7, 9, 2, 3, 8, 11, 0, 5, 6, 10]
    sorted_list = [1, 4, 2, 3, 0, 5]
    pool = [i for i in in_class_order if i not in sorted_list]
    random.Random(SEED).shuffle(pool)
    expected = [sorted_list[:3] + pool[:3], sorted_list[3:] + pool[3:]]
    shards = label_skew(labels, num_devices, skew, SEED)
    assert [shard.tolist() for shard in shards] == expected


def test_another_seed_changes_the_pool_and_not_the_sorted_part():
    one, other = (label_skew(CIFAR10, 8, 0.8, seed)[0] for seed in (1, 2))
    assert (one[:5000] == other[:5000]).all()
    assert (one[5000:] != other[5000:]).any()


@given(labels=label_arrays, num_devices=st.integers(1, 6), skew=st.floats(0, 1))
def test_label_skew_gives_no_sample_twice_or_refuses(labels, num_devices, skew):
    try:
        shards = label_skew(labels, num_devices, skew, SEED)
    except PartitionError:
        return
    assert len(shards) == num_devices
    assert min(sizes(shards)) >= 1
    assert_disjoint(shards, len(labels))


@given(num_devices=st.integers(1, 20), extra=st.integers(0, 100), seed=st.integers(0, 9))
def test_iid_deals_every_sample_once_and_evenly(num_devices, extra, seed):
    num_samples = num_devices + extra
    shards = iid(num_samples, num_devices, np.random.default_rng(seed))
    assert sorted(np.concatenate(shards)) == list(range(num_samples))
    assert max(sizes(shards)) - min(sizes(shards)) <= 1


@given(alpha=st.floats(0.5, 1e6), num_devices=st.integers(1, 6), seed=st.integers(0, 9))
def test_dirichlet_deals_every_sample_once(alpha, num_devices, seed):
    labels = shuffled_labels([30, 40, 50])
    shards = dirichlet(labels, num_devices, alpha, np.random.default_rng(seed))
    assert len(shards) == num_devices
    assert sorted(np.concatenate(shards)) == list(range(120))
    assert min(sizes(shards)) >= 1


def dirichlet_oracle(labels, num_devices: int, alpha: float, rng) -> list[list[int]]:
    """One sample after the other: each goes to the device in whose part of the class it falls."""
    shards: list[list[int]] = [[] for _ in range(num_devices)]
    for label in sorted(set(labels.tolist())):
        proportions = rng.dirichlet([alpha] * num_devices)
        members = rng.permutation([i for i, other in enumerate(labels) if other == label])
        ends = [round(sum(proportions[: d + 1]) * len(members)) for d in range(num_devices - 1)]
        for place, member in enumerate(members.tolist()):
            shards[sum(place >= end for end in ends)].append(member)
    return shards


@pytest.mark.parametrize(("alpha", "num_draws"), [(5.0, 1), (0.5, 1), (0.08, None)])
def test_dirichlet_equals_its_definition_and_draws_again_until_nobody_is_left_out(alpha, num_draws):
    labels = shuffled_labels([30, 41, 7])
    oracle_rng, draws, shards = np.random.default_rng(4), 0, [[]]
    while not all(shards):
        shards, draws = dirichlet_oracle(labels, 4, alpha, oracle_rng), draws + 1
    assert draws == num_draws if num_draws else 1 < draws < 100
    found = dirichlet(labels, 4, alpha, np.random.default_rng(4))
    assert [shard.tolist() for shard in found] == shards


def test_small_alpha_concentrates_classes_and_large_alpha_spreads_them():
    def mean_largest_share(alpha: float) -> float:
        shards = dirichlet(CIFAR10, 8, alpha, np.random.default_rng(0))
        counts = np.stack([np.bincount(CIFAR10[shard], minlength=10) for shard in shards])
        return float((counts.max(axis=0) / counts.sum(axis=0)).mean())

    # the largest of 8 shares tends to 1/8 as alpha grows; at 0.1 most of a class is in one place
    assert mean_largest_share(1e6) == pytest.approx(1 / 8, abs=0.005)
    assert mean_largest_share(0.1) > 0.5


def test_same_generator_state_gives_the_same_partition():
    one, other = (dirichlet(CIFAR10, 8, 0.3, np.random.default_rng(5)) for _ in range(2))
    assert all((a == b).all() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("skew", [1.4, -0.1, float("nan")])
def test_skew_outside_unit_interval_is_refused(skew):
    with pytest.raises(PartitionError, match=r"data\.partition\.skew is .*must be in \[0, 1\]"):
        label_skew(CIFAR10, 8, skew, SEED)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_alpha_that_is_not_positive_is_refused(alpha):
    with pytest.raises(PartitionError, match=r"data\.partition\.alpha is .*positive"):
        dirichlet(CIFAR10, 8, alpha, np.random.default_rng(0))


@pytest.mark.parametrize(
    "divide",
    [
        lambda n: label_skew(np.zeros(5, np.int64), n, 0.5, SEED),
        lambda n: dirichlet(np.zeros(5, np.int64), n, 1.0, np.random.default_rng(0)),
        lambda n: iid(5, n, np.random.default_rng(0)),
    ],
    ids=["label_skew", "dirichlet", "iid"],
)
def test_more_devices_than_samples_are_refused(divide):
    with pytest.raises(PartitionError, match=r"fleet\.devices is 6, but .* only 5 training"):
        divide(6)
    with pytest.raises(PartitionError, match=r"fleet\.devices is 0; it must be at least 1"):
        divide(0)


def test_device_left_without_samples_by_rounding_is_refused():
    # every class has one sample, int(0.9 * 1) = 0: the sorted list is empty, the pool's share 0
    with pytest.raises(PartitionError, match="device 0 would get no samples; lower"):
        label_skew(np.arange(5), 4, 0.9, SEED)


def test_device_left_without_samples_by_every_draw_is_refused():
    # one class and alpha near 0: all of it goes to one device
    with pytest.raises(PartitionError, match=r"would get no samples; raise data\.partition\.alpha"):
        dirichlet(np.zeros(50, np.int64), 8, 1e-4, np.random.default_rng(0))
