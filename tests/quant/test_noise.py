"""Noise of stochastic rounding against whole-number arithmetic, and its statistics."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from plain_quantization import lowbias32, noise, place_seed, splitmix64

from edgesim.quant.rounding_noise import derive, mix, rounding_noise

CPU = torch.device("cpu")
WORDS, SEEDS = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
MANY = 2**19


def draw(num_entries, seed):
    return rounding_noise(num_entries, seed, CPU).numpy()


@given(SEEDS)
def test_hash_of_seeds_is_splitmix64s_and_a_bijection(x):
    """Each step can be undone: x ^= x >> n by repeating it, an odd factor by its inverse."""
    hashed = mix(x)
    assert hashed == splitmix64(x)
    hashed = unshift(hashed, 31, 64) * pow(0x94D049BB133111EB, -1, 2**64) % 2**64
    hashed = unshift(hashed, 27, 64) * pow(0xBF58476D1CE4E5B9, -1, 2**64) % 2**64
    assert unshift(hashed, 30, 64) == x


@given(WORDS)
def test_hash_of_counters_is_a_bijection(x):
    assert counter_of(lowbias32(x)) == x


def unshift(y, by, bits):
    """The x of which y is x ^ (x >> by)."""
    x = y
    for shift in range(by, bits, by):
        x ^= y >> shift
    return x


def counter_of(word):
    """The counter of which a word is the hash."""
    word = unshift(word, 16, 32) * pow(0x846CA68B, -1, 2**32) % 2**32
    word = unshift(word, 15, 32) * pow(0x7FEB352D, -1, 2**32) % 2**32
    return unshift(word, 16, 32)


@given(st.integers(1, 60), SEEDS)
def test_entries_are_the_halves_of_hashed_counters(num_entries, seed):
    np.testing.assert_array_equal(draw(num_entries, seed), noise(num_entries, seed))


def test_counters_wrap_at_32_bits():
    """i * 0x9E3779B9 leaves 32 bits at i = 2 and 40 bits at i = 2^9."""
    step, half = 0x9E3779B9, 70_001 // 2 + 1
    u = draw(70_001, (step << 32) + 2**32 - 1)
    for i in (0, 1, 2, 511, 512, half - 1):
        word = lowbias32((i * step + 2**32 - 1) % 2**32)
        assert u[i] == word % 65536 / 65536
        if half + i < len(u):
            assert u[half + i] == word // 65536 / 65536


def test_noise_is_inside_the_unit_interval_on_its_65536_numbers():
    steps = draw(MANY, 7).astype(np.float64) * 65536
    assert ((steps == np.rint(steps)) & (steps >= 0) & (steps <= 65535)).all()


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**64 - 1, derive(3), derive(4, 7)])
def test_noise_is_uniform_in_its_upper_and_in_its_lower_bits(seed):
    """Chi-square of 256 bins: mean 255, deviation sqrt(2 * 255); six of them are allowed."""
    h = (draw(MANY, seed).astype(np.float64) * 65536).astype(np.int64)
    for bins in (h >> 8, h & 255):
        counts = np.bincount(bins, minlength=256)
        chi_square = ((counts - MANY / 256) ** 2).sum() / (MANY / 256)
        assert abs(chi_square - 255) < 6 * sqrt(510)


def test_neighbours_and_the_two_halves_of_a_hash_are_uncorrelated():
    """The correlation of n independent pairs deviates by 1 / sqrt(n)."""
    u = draw(MANY, derive(3)).astype(np.float64)
    half = MANY // 2
    pairs = [(u[:-1], u[1:]), (u[:half], u[half:]), (u[: half - 1], u[half + 1 :])]
    for first, second in pairs:
        assert abs(np.corrcoef(first, second)[0, 1]) < 5 / sqrt(len(first))


@given(SEEDS, SEEDS)
def test_other_seeds_give_other_noise(seed, other):
    """But for the bit that makes a step odd."""
    is_same = seed | 1 << 32 == other | 1 << 32
    assert np.array_equal(draw(64, seed), draw(64, other)) == is_same


def counters(seed, number=3):
    """The first counters of a seed's noise, taken back from the noise itself."""
    halves = (draw(2 * number, seed) * 65536).astype(int).tolist()
    words = zip(halves[:number], halves[number:], strict=True)
    return [counter_of(low + (high << 16)) for low, high in words]


def test_no_two_streams_are_windows_of_one_sequence():
    """Layers, tensors of a layer, and steps: 3 x 60 x 56 streams, each with its own step from a
    counter to the next. All of 2^31 steps are equally likely, so two of these streams share one
    with a probability of 2.4 %; with one step for all, 10^8 of 10^8 pairs do, and streams of a
    million entries overlap in one pair of 4,000.
    """
    seeds = [
        derive(derive(step, layer), tensor)
        for step in range(56)
        for layer in range(60)
        for tensor in range(3)
    ]
    steps = set()
    for seed in seeds:
        first, second, third = counters(seed)
        assert (third - second) % 2**32 == (second - first) % 2**32
        steps.add((second - first) % 2**32)
    assert len(steps) == len(seeds)


def test_streams_are_uncorrelated_at_every_shift():
    """Two layers of a step, two steps of a layer, and streams with neighbouring counters.

    Of 2^17 shifts the largest correlation of normal numbers is near sqrt(2 ln 2^17) = 4.9
    deviations, above 6.5 once in ten million.
    """
    low = derive(1, 1) % 2**32
    pairs = [
        (derive(derive(1, 4), 0), derive(derive(1, 5), 0)),
        (derive(derive(1, 4), 0), derive(derive(2, 4), 0)),
        (derive(derive(1, 4), 0), derive(derive(1, 4), 1)),
        (derive(1, 1), derive(1, 2) >> 32 << 32 | (low + 1000) % 2**32),
    ]
    for pair in pairs:
        first, second = (np.fft.rfft(standard_noise(2**17, seed)) for seed in pair)
        correlation = np.fft.irfft(first * second.conj()) / sqrt(2**17)
        assert np.abs(correlation).max() < 6.5


def standard_noise(num_entries, seed):
    """With mean 0 and variance 1."""
    return (draw(num_entries, seed).astype(np.float64) - 0.5) * sqrt(12)


@given(SEEDS, st.lists(st.integers(0, 1000), max_size=3))
def test_seed_of_a_place_is_a_pure_function_of_64_bits(seed, places):
    derived = derive(seed, *places)
    assert derived == place_seed(seed, *places) == derive(seed, *places)
    assert 0 <= derived < 2**64


@given(SEEDS)
def test_places_of_a_seed_have_different_seeds(seed):
    """Not by chance: the last step is a bijection of the place, modulo 2^64."""
    assert len({derive(seed, place) for place in range(200)}) == 200


def test_a_place_within_a_place_is_neither_of_the_two():
    seeds = {
        derive(5),
        derive(5, 0),
        derive(5, 1),
        derive(5, 0, 0),
        derive(5, 0, 1),
        derive(5, 1, 0),
    }
    assert len(seeds) == 6


@given(SEEDS, SEEDS)
def test_every_bit_of_a_seed_counts(seed, other):
    """Not by chance, either."""
    assert (derive(seed, 3) == derive(other, 3)) == (seed == other)
