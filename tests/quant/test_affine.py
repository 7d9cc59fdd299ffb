"""8-bit grids: reference.md, section 10 check 9, integer zeros, and the reference code's float
offset (reference.md, section 1.1)."""

from __future__ import annotations

from math import sqrt

import numpy as np
import plain_quantization as plain
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from edgesim.quant.affine import Grid, grid_of, quantize_rows, quantize_weight

EPS = 2.0**-23  # distance of neighbouring float32 numbers, relative
NUMBERS = st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False)
RANGES = st.tuples(NUMBERS, NUMBERS).map(lambda pair: (min(pair), max(pair)))
UNITS = arrays(np.float32, array_shapes(max_dims=4, max_side=5), elements=st.floats(0, 1, width=32))
ZERO_POINTS = pytest.mark.parametrize("integer_zero", [True, False], ids=["integer", "offset"])


def within(unit, low, high):
    """Numbers of a range, float32, from such of [0, 1]."""
    span = unit.astype(np.float64) * (high - low) + low
    return np.clip(span.astype(np.float32), np.float32(low), np.float32(high))


def number_rounding(grid: Grid, x) -> np.ndarray:
    """What float32 loses on the way from a number near x to its code and back: a few roundings of
    a number of up to 256 steps, and of the number itself."""
    return EPS * (4 * 256 * grid.scale + 2 * np.abs(x.astype(np.float64)) + 2 * abs(grid.offset))


@settings(max_examples=50)
@given(RANGES)
def test_grids_are_those_of_the_definition(extremes):
    assert grid_of(*extremes, has_integer_zero=True) == plain.grid_of(*extremes)
    grid = grid_of(*extremes, has_integer_zero=False)
    expected = plain.grid_of(*extremes, has_integer_zero=False)
    if extremes[0]:
        assert grid == expected
    else:  # offset 0 is zero point 0
        assert (grid.scale, grid.zero_point, grid.offset) == (expected.scale, 0, 0)


@settings(max_examples=50)
@given(RANGES)
def test_zero_is_a_code_where_it_is_to_be_one(extremes):
    grid = grid_of(*extremes, has_integer_zero=True)
    codes = grid.quantize(torch.zeros(3), None)
    assert grid.zero_point == int(grid.zero_point)
    assert 0 <= grid.zero_point <= 255
    assert codes.eq(int(grid.zero_point)).all()
    assert grid.dequantize(codes).eq(0).all()


def test_zero_stays_zero_when_rounded_stochastically():
    zeros = torch.zeros(2**20)
    for zero_point in (0.0, 100.0, 200.0, 255.0):
        assert Grid(0.5, zero_point, 0.0).quantize(zeros, 1).eq(int(zero_point)).all(), zero_point


@ZERO_POINTS
@settings(max_examples=50)
@given(UNITS, RANGES, st.none() | st.integers(0, 2**32 - 1))
@example(np.linspace(0, 1, 256, dtype=np.float32), (-1.0, 1.0), None)
def test_codes_and_numbers_are_those_of_the_definition(integer_zero, unit, extremes, seed):
    x = within(unit, *extremes)
    grid = grid_of(*extremes, has_integer_zero=integer_zero)
    codes = grid.quantize(torch.from_numpy(x), seed)
    assert codes.dtype == torch.uint8
    assert codes.shape == x.shape
    np.testing.assert_array_equal(codes.numpy(), plain.codes_of(x, grid, seed))
    np.testing.assert_array_equal(
        grid.dequantize(codes).numpy(), plain.numbers_of(codes.numpy(), grid)
    )


@settings(max_examples=50)
@given(RANGES, UNITS)
def test_float_offset_is_the_formula_of_the_reference_code(extremes, unit):
    """reference.md, section 1.1: t = (x - lo) / step, k = round(clip(t, 0, 255)), k step + lo, with
    step >= 1e-8.

    In double precision; a code may differ by one where t is that close to a half.
    """
    low, high = (float(np.float32(extreme)) for extreme in extremes)
    x = within(unit, low, high)
    step = max((high - low) / 255, 1e-8)
    t = np.clip((x.astype(np.float64) - low) / step, 0, 255)
    grid = grid_of(low, high, has_integer_zero=False)
    codes = grid.quantize(torch.from_numpy(x), None)
    half_away = np.abs(t % 1 - 0.5)
    near_half = half_away * step < number_rounding(grid, x)
    differs = codes.numpy() != np.rint(t)
    assert (~differs | near_half).all()
    expected = np.rint(t) * step + low
    numbers = grid.dequantize(codes).numpy()
    tolerance = number_rounding(grid, x) + differs * step
    assert (np.abs(numbers - expected) <= tolerance).all()


@ZERO_POINTS
@settings(max_examples=50)
@given(UNITS, RANGES)
def test_error_is_at_most_half_a_step_inside_the_range(integer_zero, unit, extremes):
    x = within(unit, *extremes)
    grid = grid_of(*extremes, has_integer_zero=integer_zero)
    numbers = grid.dequantize(grid.quantize(torch.from_numpy(x), None)).numpy()
    error = np.abs(numbers.astype(np.float64) - x)
    assert (error <= grid.scale / 2 + number_rounding(grid, x)).all()


@settings(max_examples=50)
@given(UNITS, RANGES, st.integers(0, 2**32 - 1))
def test_stochastic_error_is_below_one_step_inside_the_range(unit, extremes, seed):
    x = within(unit, *extremes)
    grid = grid_of(*extremes, has_integer_zero=True)
    numbers = grid.dequantize(grid.quantize(torch.from_numpy(x), seed)).numpy()
    assert (np.abs(numbers.astype(np.float64) - x) <= grid.scale + number_rounding(grid, x)).all()


@ZERO_POINTS
@settings(max_examples=50)
@given(RANGES)
def test_numbers_on_the_grid_stay_where_they_are(integer_zero, extremes):
    grid = grid_of(*extremes, has_integer_zero=integer_zero)
    # An offset of a million steps leaves no digits for a step: then codes mean the same numbers.
    assume(abs(grid.offset) < 1e4 * grid.scale)
    codes = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(grid.quantize(grid.dequantize(codes), None), codes)


@pytest.mark.parametrize("grid", [Grid(0.25, 3.0, 0.0), Grid(0.25, 200.0, 0.0), Grid(0.5, 0.0, 7)])
@pytest.mark.parametrize("place", [0.0, 0.001, 0.25, 0.5, 0.9, 0.999])
def test_stochastic_rounding_is_unbiased(grid, place):
    """The mean of n draws of probability p deviates by sqrt(p (1 - p) / n); five are allowed, and
    2^-16 of a step for the 16 bits of the noise."""
    count = 2**18
    steps = 30 + place
    number = grid.scale * (steps - grid.zero_point) + grid.offset
    numbers = grid.dequantize(grid.quantize(torch.full((count,), number), 11))
    bias = (numbers.double().mean().item() - number) / grid.scale
    assert abs(bias) <= 5 * sqrt(place * (1 - place) / count) + 2**-16


@ZERO_POINTS
@pytest.mark.parametrize("seed", [None, 1])
def test_numbers_off_the_grid_take_its_ends(integer_zero, seed):
    grid = grid_of(-1.0, 3.0, has_integer_zero=integer_zero)
    codes = grid.quantize(torch.tensor([-1e9, -1.1, 3.1, 1e9]), seed)
    assert codes.tolist() == [0, 0, 255, 255]


@settings(max_examples=50)
@given(NUMBERS)
def test_constant_tensors_are_exact_with_a_float_offset(constant):
    x = torch.full((5,), constant)
    grid = grid_of(constant, constant, has_integer_zero=False)
    assert grid.scale == np.float32(1e-8)
    assert torch.equal(grid.dequantize(grid.quantize(x, None)), x)


@settings(max_examples=50)
@given(NUMBERS)
def test_constant_tensors_are_exact_to_rounding_with_an_integer_zero(constant):
    """They are an end of the range, the other one being zero."""
    assume(abs(constant) > 255e-30 or constant == 0)
    grid = grid_of(constant, constant, has_integer_zero=True)
    back = grid.dequantize(grid.quantize(torch.full((5,), constant), None))
    np.testing.assert_allclose(back.numpy(), constant, rtol=2 * EPS)


@pytest.mark.parametrize("extremes", [(0.0, 0.0), (-1e-12, 1e-12), (0.0, 255e-9)])
def test_steps_with_a_float_offset_are_those_of_the_reference_code_also_where_they_are_coarse(
    extremes,
):
    assert grid_of(*extremes, has_integer_zero=False).scale == np.float32(1e-8)


def test_steps_with_an_integer_zero_are_finite_where_all_is_zero():
    grid = grid_of(0.0, 0.0, has_integer_zero=True)
    assert grid.scale == np.float32(1e-30)
    assert np.isfinite(np.float32(1) / np.float32(grid.scale))


@pytest.mark.parametrize("power", [-80, -40, -30, 20])
@pytest.mark.parametrize("extremes", [(-0.75, 0.25), (0.0, 1.5), (-3.0, -1.0)])
def test_an_integer_grid_scales_with_its_range_so_that_tiny_gradients_keep_their_digits(
    extremes, power
):
    """A power of two changes no digit: codes are the same, numbers are multiplied."""
    factor = 2.0**power
    low, high = extremes
    x = torch.linspace(low, high, 100)
    grid = grid_of(low, high, has_integer_zero=True)
    tiny = grid_of(low * factor, high * factor, has_integer_zero=True)
    assert tiny == Grid(grid.scale * factor, grid.zero_point, 0.0)
    for seed in (None, 1):
        assert torch.equal(tiny.quantize(x * factor, seed), grid.quantize(x, seed))


@ZERO_POINTS
@pytest.mark.parametrize("seed", [None, 5])
def test_rows_are_quantized_on_grids_of_their_own_with_the_noise_of_their_place(integer_zero, seed):
    sizes = torch.tensor([1e-12, 1.0, 0.0, 1e6, -3.0])[:, None]
    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(2)) * sizes
    rows = quantize_rows(x, seed, has_integer_zero=integer_zero)
    assert rows.codes.dtype == torch.uint8
    u = plain.noise(x.numel(), seed).reshape(x.shape) if seed is not None else None
    for row, codes, numbers, i in zip(x, rows.codes, rows.dequantize(), range(5), strict=True):
        low, high = float(row.min()), float(row.max())
        grid = plain.grid_of(low, high, has_integer_zero=integer_zero)
        expected = grid.scale, grid.zero_point, grid.offset
        assert tuple(rows.grids[i].tolist()) == expected
        steps = (row.numpy() - np.float32(grid.offset)) * (np.float32(1) / np.float32(grid.scale))
        steps = steps + np.float32(grid.zero_point)
        rounded = np.rint(steps) if u is None else np.floor(steps + u[i])
        np.testing.assert_array_equal(codes.numpy(), np.clip(rounded, 0, 255))
        np.testing.assert_array_equal(numbers.numpy(), plain.numbers_of(codes.numpy(), grid))


@settings(max_examples=50)
@given(UNITS, RANGES)
def test_centered_codes_times_factor_are_the_numbers(unit, extremes):
    x = torch.from_numpy(within(unit, *extremes))
    for integer_zero in (True, False):
        grid = grid_of(*extremes, has_integer_zero=integer_zero)
        codes = grid.quantize(x, None)
        centered = grid.centered(codes)
        assert torch.equal(centered * grid.factor, grid.dequantize(codes))
        assert grid.offset or torch.equal(centered, centered.round())


def test_quantizing_leaves_its_input_alone():
    x = torch.randn(50, generator=torch.Generator().manual_seed(0))
    before = x.clone()
    for grid in (Grid(0.1, 7.0, 0.0), Grid(0.1, 0.0, -3.0)):
        grid.quantize(x, None)
        grid.quantize(x, 1)
        grid.dequantize(grid.quantize(x, None))
    assert torch.equal(x, before)


WEIGHTS = arrays(
    np.float32,
    array_shapes(min_dims=4, max_dims=4, max_side=4),
    elements=st.floats(-1, 1, width=32),
)
SIZES = st.sampled_from([1e-30, 1e-8, 1e-3, 1.0, 1e4, 1e30])


@pytest.mark.parametrize("per_out_channel", [False, True])
@settings(max_examples=50)
@given(WEIGHTS, SIZES)
def test_weights_are_symmetric_codes_of_their_scales(per_out_channel, unit, size):
    w = unit * np.float32(size)
    weight = quantize_weight(
        torch.from_numpy(w), per_out_channel=per_out_channel, has_integer_zero=True
    )
    codes, scales = plain.weight_codes(w, per_out_channel=per_out_channel)
    assert weight.codes.dtype == torch.int8
    assert weight.scales.shape == (len(w) if per_out_channel else 1,)
    np.testing.assert_array_equal(weight.codes.numpy(), codes)
    np.testing.assert_array_equal(weight.scales.numpy(), scales)
    np.testing.assert_array_equal(weight.centered().numpy(), codes)
    error = np.abs(weight.dequantize().numpy().astype(np.float64) - w)
    assert (error <= scales.reshape(-1, 1, 1, 1) * (0.5 + 1e-4)).all()


@settings(max_examples=50)
@given(WEIGHTS, SIZES)
def test_the_negative_weights_have_the_negative_codes(unit, size):
    w = torch.from_numpy(unit * np.float32(size))
    plus, minus = (
        quantize_weight(sign * w, per_out_channel=True, has_integer_zero=True) for sign in (1, -1)
    )
    assert torch.equal(plus.codes, -minus.codes)
    assert torch.equal(plus.scales, minus.scales)


def test_the_largest_weight_of_each_channel_has_code_127():
    w = torch.tensor([0.5, -2.0, 1e-3]).view(3, 1, 1, 1) * torch.tensor([1.0, 0.1]).view(1, 2, 1, 1)
    each = quantize_weight(w, per_out_channel=True, has_integer_zero=True)
    assert each.codes[:, 0, 0, 0].tolist() == [127, -127, 127]
    in_all = quantize_weight(w, per_out_channel=False, has_integer_zero=True)
    assert in_all.codes[:, 0, 0, 0].tolist() == [32, -127, 0]  # 127 / 4 = 31.75, 127 / 2000 = 0.06


def test_weights_of_zero_are_zero():
    for per_out_channel in (False, True):
        weight = quantize_weight(
            torch.zeros(3, 2, 1, 1), per_out_channel=per_out_channel, has_integer_zero=True
        )
        assert weight.dequantize().eq(0).all()


@settings(max_examples=50)
@given(WEIGHTS, SIZES)
def test_weights_with_a_float_offset_are_on_the_grid_of_their_extremes(unit, size):
    w = unit * np.float32(size)
    weight = quantize_weight(torch.from_numpy(w), per_out_channel=False, has_integer_zero=False)
    expected = plain.rounded(w, has_integer_zero=False)
    assert weight.codes.dtype == torch.uint8
    np.testing.assert_array_equal(weight.dequantize().numpy(), expected)
