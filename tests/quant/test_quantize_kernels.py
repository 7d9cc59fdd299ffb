"""Ranges, grids, codes and residual sums of the compiled kernels, against plain numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edgesim.quant.kernels.errors import KernelError
from edgesim.quant.kernels.rounding import quantize as kernels

F = np.float32
GRID = np.array([0.0371, 97], F)

finite = st.floats(-(2.0**100), 2.0**100, width=32)
tensors = arrays.arrays(F, arrays.array_shapes(min_dims=2, max_dims=3, max_side=9), elements=finite)


def steps(x, grid):
    """x / s + z, each operation rounded to float32."""
    with np.errstate(over="ignore"):
        return x.reshape(-1) * (F(1) / grid[0]) + grid[1]


def nearest(x, grid):
    return np.clip(np.rint(steps(x, grid)), 0, 255).astype(np.uint8).reshape(x.shape)


def noise(length, seed):
    """Of stochastic rounding, by the formulas of quant/rounding_noise.py in 64-bit integers."""
    mask = 0xFFFFFFFF
    half = (length + 1) // 2
    words = []
    for i in range(half):
        x = (i * (seed >> 32 | 1) + (seed & mask)) & mask
        x = ((x ^ x >> 16) * 0x7FEB352D) & mask
        x = ((x ^ x >> 15) * 0x846CA68B) & mask
        words.append(x ^ x >> 16)
    halves = [word & 0xFFFF for word in words] + [word >> 16 for word in words]
    return (np.array(halves[:length]) / 65536).astype(F)


def stochastic(x, grid, seed):
    codes = np.clip(np.floor(steps(x, grid) + noise(x.size, seed)), 0, 255)
    return codes.astype(np.uint8).reshape(x.shape)


def numbers(codes, grid):
    return (codes.astype(F) - grid[1]) * grid[0]


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(0, 3, shape).astype(F)


@given(tensors)
def test_full_range_is_minimum_and_maximum(x):
    assert kernels.full_range(x).tolist() == [x.min(), x.max()]


@given(tensors)
def test_sample_range_is_the_mean_of_the_samples_extremes(x):
    flat = x.reshape(len(x), -1).astype(np.float64)
    expected = np.array([flat.min(1).mean(), flat.max(1).mean()])
    # One rounding to float32, and float64 sums in another order.
    slack = 2**-50 * np.abs(flat).max()
    np.testing.assert_allclose(kernels.sample_range(x), expected, rtol=2**-23, atol=slack)


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 17, 63])
def test_range_of_what_is_not_finite_is_nan(bad, place):
    x = normal(2, 32)
    x.reshape(-1)[place] = bad
    assert np.isnan(kernels.full_range(x)).all()
    assert np.isnan(kernels.sample_range(x)).all()
    assert np.isnan(kernels.make_grid(kernels.full_range(x))).all()


@given(finite, finite)
def test_grid_holds_zero_and_both_ends(a, b):
    range_ = np.array(sorted([a, b]), F)
    scale, z = kernels.make_grid(range_)
    low, high = min(range_[0], F(0)), max(range_[1], F(0))
    assert scale == max((high - low) / F(255), F(1e-30))
    assert z == np.clip(np.rint(-low * (F(1) / scale)), 0, 255)
    # Zero is moved to a code by at most half a step; the rest is the rounding of float32.
    assert (0 - z) * scale <= low + 0.5001 * scale
    assert (255 - z) * scale >= high - 0.5001 * scale


@given(tensors)
def test_nearest_codes_are_those_of_float32_operations_one_by_one(x):
    grid = kernels.make_grid(kernels.full_range(x))
    codes = np.empty(x.shape, np.uint8)
    kernels.quantize_nearest(x, grid, codes)
    np.testing.assert_array_equal(codes, nearest(x, grid))


def test_halves_are_rounded_to_even_codes():
    codes = np.empty(6, np.uint8)
    kernels.quantize_nearest(
        np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], F), np.array([1, 8], F), codes
    )
    assert codes.tolist() == [6, 6, 8, 8, 10, 10]


def test_numbers_off_the_grid_take_its_nearest_end():
    x = np.array([-3e38, -1e10, 1e10, 3e38], F)
    codes = np.empty(4, np.uint8)
    kernels.quantize_nearest(x, GRID, codes)
    assert codes.tolist() == [0, 0, 255, 255]
    kernels.quantize_stochastic(x, GRID, 3, codes)
    assert codes.tolist() == [0, 0, 255, 255]


@given(st.integers(0, 255), st.floats(2.0**-24, 2.0**24, width=32))
def test_numbers_of_the_grid_keep_their_codes(z, scale):
    grid = np.array([scale, z], F)
    every_code = np.arange(256, dtype=np.uint8)
    x, again = np.empty(256, F), np.empty(256, np.uint8)
    kernels.dequantize(every_code, grid, x)
    np.testing.assert_array_equal(x, numbers(every_code, grid))
    kernels.quantize_nearest(x, grid, again)
    np.testing.assert_array_equal(again, every_code)


@pytest.mark.parametrize("length", [1, 2, 3, 63, 64, 1023, 1024, 1025, 1026, 3000])
@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**64 - 1, 0xDEADBEEF_00C0FFEE])
def test_stochastic_codes_take_the_noise_of_their_place(length, seed):
    """Lengths around the kernel's block of 512 pairs; odd ones have an entry without a partner."""
    x = normal(length)
    codes = np.empty(length, np.uint8)
    kernels.quantize_stochastic(x, GRID, seed, codes)
    np.testing.assert_array_equal(codes, stochastic(x, GRID, seed))


def test_stochastic_rounding_is_unbiased():
    x = np.linspace(-3, 5, 101, dtype=F)
    codes = np.empty(x.shape, np.uint8)
    num_draws = 4000
    sums = np.zeros(x.shape)
    for seed in range(num_draws):
        kernels.quantize_stochastic(x, GRID, seed, codes)
        sums += numbers(codes, GRID)
    # A draw's deviation is at most half a step; of 101 means, five such is never exceeded.
    assert np.abs(sums / num_draws - x).max() < 5 * 0.5 * GRID[0] / np.sqrt(num_draws)


@given(tensors)
@settings(max_examples=30)
def test_requantizing_is_quantizing_and_back(x):
    grid = kernels.make_grid(kernels.full_range(x))
    out = np.empty(x.shape, F)
    kernels.requantize_nearest(x, grid, out)
    np.testing.assert_array_equal(out, numbers(nearest(x, grid), grid))
    kernels.requantize_whole(x, 9, out)
    np.testing.assert_array_equal(out, numbers(stochastic(x, grid, 9), grid))


@pytest.mark.parametrize("shape", [(2, 3), (5, 5, 5), (3, 2000)])
def test_residual_sum_is_that_of_both_rounded_operands(shape):
    a, b = normal(*shape, seed=1), normal(*shape, seed=2)
    a_grid, b_grid = (kernels.make_grid(kernels.sample_range(x)) for x in (a, b))
    out = np.empty(shape, F)
    kernels.residual_sum(a, b, a_grid, b_grid, out)
    expected = numbers(nearest(a, a_grid), a_grid) + numbers(nearest(b, b_grid), b_grid)
    np.testing.assert_array_equal(out, expected)
    kernels.residual_sum_stochastic(a, b, a_grid, b_grid, (11, 12), out)
    expected = numbers(stochastic(a, a_grid, 11), a_grid)
    expected += numbers(stochastic(b, b_grid, 12), b_grid)
    np.testing.assert_array_equal(out, expected)


def test_arrays_that_a_kernel_would_overrun_are_refused():
    x = normal(4, 6)
    for out in (np.empty((4, 5), np.uint8), np.empty((4, 6), F), np.empty((8, 6), np.uint8)[::2]):
        with pytest.raises(KernelError, match=r"out is .*takes contiguous uint8 of shape \(4, 6\)"):
            kernels.quantize_nearest(x, GRID, out)
    with pytest.raises(KernelError, match="strided float32"):
        kernels.full_range(x[:, 1:])
