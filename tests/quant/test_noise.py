"""Noise of stochastic rounding against whole-number arithmetic, and its statistics."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from plain_quantization import lowbias32, noise, place_seed

from edgesim.quant.noise import derive, mix, rounding_noise

CPU = torch.device("cpu")
WORDS = st.integers(0, 2**32 - 1)
MANY = 2**19


def draw(num_entries, seed):
    return rounding_noise(num_entries, seed, CPU).numpy()


@given(WORDS)
def test_hash_is_lowbias32(x):
    assert mix(x) == lowbias32(x)


@given(WORDS)
def test_hash_is_a_bijection(x):
    """Each step can be undone: x ^= x >> n by repeating it, an odd factor by its inverse."""

    def unshift(y, bits):
        x = y
        for by in range(bits, 32, bits):
            x ^= y >> by
        return x

    hashed = mix(x)
    hashed = unshift(hashed, 16) * pow(0x846CA68B, -1, 2**32) % 2**32
    hashed = unshift(hashed, 15) * pow(0x7FEB352D, -1, 2**32) % 2**32
    assert unshift(hashed, 16) == x


@given(st.integers(1, 60), WORDS)
def test_entries_are_the_halves_of_hashed_counters(num_entries, seed):
    np.testing.assert_array_equal(draw(num_entries, seed), noise(num_entries, seed))


def test_counters_wrap_at_32_bits():
    """i * 0x9E3779B9 leaves 32 bits at i = 2 and 40 bits at i = 2^9."""
    seed, half = 2**32 - 1, 70_001 // 2 + 1
    u = draw(70_001, seed)
    for i in (0, 1, 2, 511, 512, half - 1):
        word = lowbias32((i * 0x9E3779B9 + seed) % 2**32)
        assert u[i] == word % 65536 / 65536
        if half + i < len(u):
            assert u[half + i] == word // 65536 / 65536


def test_noise_is_inside_the_unit_interval_on_its_65536_numbers():
    steps = draw(MANY, 7).astype(np.float64) * 65536
    assert ((steps == np.rint(steps)) & (steps >= 0) & (steps <= 65535)).all()


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_noise_is_uniform_in_its_upper_and_in_its_lower_bits(seed):
    """Chi-square of 256 bins: mean 255, deviation sqrt(2 * 255); six of them are allowed."""
    h = (draw(MANY, seed).astype(np.float64) * 65536).astype(np.int64)
    for bins in (h >> 8, h & 255):
        counts = np.bincount(bins, minlength=256)
        chi_square = ((counts - MANY / 256) ** 2).sum() / (MANY / 256)
        assert abs(chi_square - 255) < 6 * sqrt(510)


def test_neighbours_and_the_two_halves_of_a_hash_are_uncorrelated():
    """The correlation of n independent pairs deviates by 1 / sqrt(n)."""
    u = draw(MANY, 3).astype(np.float64)
    half = MANY // 2
    pairs = [(u[:-1], u[1:]), (u[:half], u[half:]), (u[: half - 1], u[half + 1 :])]
    for first, second in pairs:
        assert abs(np.corrcoef(first, second)[0, 1]) < 5 / sqrt(len(first))


@given(WORDS, WORDS)
def test_other_seeds_give_other_noise(seed, other):
    assert np.array_equal(draw(32, seed), draw(32, other)) == (seed == other)


def test_noise_of_neighbouring_seeds_is_uncorrelated():
    first, second = draw(MANY, 10).astype(np.float64), draw(MANY, 11).astype(np.float64)
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / sqrt(MANY)


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 1000), max_size=3))
def test_seed_of_a_place_is_a_pure_function_of_32_bits(seed, places):
    derived = derive(seed, *places)
    assert derived == place_seed(seed, *places) == derive(seed, *places)
    assert 0 <= derived < 2**32


@given(st.integers(0, 2**64 - 1))
def test_places_of_a_seed_have_different_seeds(seed):
    """Not by chance: the last step is a bijection of the place, modulo 2^32."""
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


@given(WORDS, WORDS, WORDS)
def test_both_halves_of_a_64_bit_seed_count(low, high, other):
    if high != other:
        assert derive(low + (high << 32), 3) != derive(low + (other << 32), 3)
        assert derive(high + (low << 32), 3) != derive(other + (low << 32), 3)
