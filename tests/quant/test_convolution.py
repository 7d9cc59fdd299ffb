"""8-bit convolutions and linear layers: sums of integers, and reference.md, section 10 check 10 on
their gradients."""

from __future__ import annotations

import numpy as np
import plain_quantization as plain
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn.grad import conv2d_weight

from edgesim.quant import autograd
from edgesim.quant.affine import Grid
from edgesim.quant.arithmetic import Geometry
from edgesim.quant.reference import Reference


def odd(kernel, stride=1, groups=1):
    """A square kernel, padded so that stride 1 keeps the image's size."""
    return Geometry.square(kernel, stride=stride, padding=kernel // 2, groups=groups)


def row(kernel, stride=1, padding=0, dilation=1, groups=1):
    """The kernel of a signal."""
    return Geometry((1, kernel), (1, stride), (0, padding), (1, dilation), groups)


# geometry, channels in and out, height, width
CASES = {
    "1x1": (odd(1), 5, 4, 4, 3),
    "1x1 stride 2": (odd(1, 2), 4, 6, 5, 6),
    "3x3": (odd(3), 4, 5, 5, 7),
    "3x3 stride 2, odd": (odd(3, 2), 4, 3, 7, 5),
    "3x3 stride 2, even": (odd(3, 2), 3, 8, 6, 4),
    "7x7 stride 2": (odd(7, 2), 3, 4, 9, 8),
    "7x7": (odd(7), 2, 3, 5, 4),
    "one channel": (odd(3), 1, 4, 6, 5),
    "groups": (odd(3, 1, 3), 6, 9, 5, 4),
    "groups, stride 2": (odd(3, 2, 2), 4, 4, 5, 5),
    "depthwise": (odd(3, 1, 5), 5, 5, 4, 6),
    "depthwise, stride 2": (odd(3, 2, 4), 4, 4, 7, 6),
    "depthwise that widens": (odd(3, 1, 3), 3, 6, 4, 4),
    "one pixel": (odd(1), 9, 7, 1, 1),
    "kernel beyond the image": (odd(3), 2, 2, 1, 2),
    "signal": (row(5, padding=2), 3, 4, 1, 9),
    "signal, stride 3": (row(4, stride=3, padding=1), 3, 4, 1, 11),
    "signal, stride beyond the kernel": (row(2, stride=5), 2, 3, 1, 17),
    "signal, dilated": (row(3, padding=4, dilation=4), 4, 3, 1, 10),
    "signal, dilation and stride": (row(3, stride=2, padding=3, dilation=3), 2, 5, 1, 12),
    "signal, dilation and stride with a common divisor": (row(3, 4, 5, 6), 2, 2, 1, 21),
    "signal, groups": (row(3, padding=1, groups=2), 4, 6, 1, 7),
    "signal, depthwise": (row(7, stride=2, padding=3, groups=5), 5, 5, 1, 16),
    "signal, pointwise with stride": (row(1, stride=2), 5, 4, 1, 7),
    "3x1": (Geometry((3, 1), (1, 1), (1, 0), (1, 1), 1), 4, 5, 6, 5),
    "2x5, strides, paddings": (Geometry((2, 5), (2, 1), (1, 2), (1, 1), 1), 3, 4, 7, 6),
    "3x3 dilated, groups": (Geometry((3, 3), (2, 1), (2, 2), (2, 2), 3), 6, 3, 9, 6),
    "padding unlike": (Geometry((3, 3), (1, 1), (0, 2), (1, 1), 1), 3, 2, 5, 4),
}
EVERY_CASE = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


class Case:
    """A convolution with Gaussian numbers, and what of it is the same for all ways to check it."""

    def __init__(self, case, seed=0, *, bias=True, samples=2):
        self.geometry, channels_in, channels_out, height, width = case
        rng = np.random.default_rng(seed)
        self.x = rng.normal(0.3, 1, (samples, height, width, channels_in)).astype(np.float32)
        shape = (channels_out, channels_in // self.geometry.groups, *self.geometry.kernel)
        self.w = rng.normal(0, 0.1, shape).astype(np.float32)
        self.b = rng.normal(0, 1, channels_out).astype(np.float32) if bias else None
        size = plain.out_size(height, width, self.geometry)
        self.g = rng.normal(0, 1e-3, (samples, *size, channels_out)).astype(np.float32)
        self.grid = plain.grid_of(self.x.min(), self.x.max())

    def run(self, step):
        """The output, and the gradients at input, weights and biases for g, as NHWC arrays."""
        x = images(self.x).requires_grad_()
        w = torch.from_numpy(self.w).requires_grad_()
        b = None if self.b is None else torch.from_numpy(self.b).requires_grad_()
        x_8 = plain.coded(x, self.grid, step)
        y = autograd.convolution(x, w, b, x=x_8, geometry=self.geometry, step=step)
        wanted = [t for t in (x, w, b) if t is not None]
        g_x, g_w, *g_b = torch.autograd.grad(y, wanted, images(self.g))
        return rows(y), rows(g_x), g_w.numpy(), g_b[0].numpy() if g_b else None

    def codes(self):
        return plain.codes_of(self.x, self.grid)

    def sums(self, k):
        """Sums of products of codes, exact."""
        centered = self.codes() - int(self.grid.zero_point)
        return plain.convolution(centered, k, self.geometry)

    def exact_weight_gradient(self, g):
        """In double precision, from the numbers of the codes; and the sum of its terms' sizes."""
        x_hat = plain.numbers_of(self.codes(), self.grid).astype(np.float64)
        g = g.astype(np.float64)
        terms = [(x_hat, g), (np.abs(x_hat), np.abs(g))]
        return [plain.weight_gradient(*pair, self.geometry, self.w.shape) for pair in terms]


def images(x_NHWC):
    """NCHW, channels_last."""
    return torch.from_numpy(x_NHWC.copy()).permute(0, 3, 1, 2)


def rows(x_NCHW):
    return x_NCHW.detach().permute(0, 2, 3, 1).contiguous().numpy()


def power_of_two(case):
    """The same with a scale whose products are exact."""
    case.grid = Grid(2.0**-5, 100.0, 0.0)
    return case


def assert_sum_of(actual, exact_and_size):
    """A sum of n float32 products is off by at most n 2^-24 of the sizes of its terms; n is below
    200 here, and roundings to both sides leave far less."""
    exact, size = exact_and_size
    assert (np.abs(actual - exact) <= 2e-6 * size + 1e-30).all()


@EVERY_CASE
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("weight_range", ["per_tensor", "per_out_channel"])
def test_output_is_sums_of_integers_times_both_scales(case, bias, weight_range):
    """Bit by bit: the sums are below 2^24, one factor, one product, one sum."""
    case = Case(case, bias=bias)
    k, scales = plain.weight_codes(case.w, per_out_channel=weight_range == "per_out_channel")
    sums = case.sums(k)
    assert np.abs(sums).max() < 2**24
    expected = sums.astype(np.float32) * (scales * np.float32(case.grid.scale))
    if bias:
        expected = expected + plain.rounded(case.b)
    y, *_ = case.run(plain.step(weight_range=weight_range))
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("samples", [1, 20])
def test_sums_are_exact_in_whatever_algorithm_torch_takes(samples):
    """Its choice depends on the batch's size; a Winograd transform would divide."""
    case = Case((odd(3), 16, 24, 14, 13), bias=False, samples=samples)
    step = plain.step()
    k, scales = plain.weight_codes(case.w, per_out_channel=False)
    y, g_x, *_ = case.run(step)
    factor = scales * np.float32(case.grid.scale)
    np.testing.assert_array_equal(y, case.sums(k).astype(np.float32) * factor)
    np.testing.assert_array_equal(g_x, input_gradient(case, step, k, scales, case.g))


def pairs(least, most):
    return st.tuples(st.integers(least, most), st.integers(least, most))


@settings(max_examples=80)
@given(
    kernel=st.one_of(pairs(1, 4), st.sampled_from([(1, 1), (3, 3), (7, 7)])),
    stride=pairs(1, 3),
    padding=pairs(0, 3),
    dilation=pairs(1, 3),
    sizes=st.tuples(*[st.integers(1, n) for n in (2, 8, 8, 3, 3)]),
    groups=st.sampled_from([1, 2, 3]),
    seed=st.integers(0, 99),
)
def test_any_geometry_is_exact_forward_and_back(
    kernel, stride, padding, dilation, sizes, groups, seed
):
    samples, height, width, channels_in, channels_out = sizes
    geometry = Geometry(kernel, stride, padding, dilation, groups)
    assume(min(plain.out_size(height, width, geometry)) > 0)
    of_case = (geometry, groups * channels_in, groups * channels_out, height, width)
    case = Case(of_case, seed, bias=False, samples=samples)
    step = plain.step()
    k, scales = plain.weight_codes(case.w, per_out_channel=False)
    y, g_x, g_w, _ = case.run(step)
    factor = scales * np.float32(case.grid.scale)
    np.testing.assert_array_equal(y, case.sums(k).astype(np.float32) * factor)
    np.testing.assert_array_equal(g_x, input_gradient(case, step, k, scales, case.g))
    assert_sum_of(g_w, case.exact_weight_gradient(case.g))


def input_gradient(case, step, k, scales, g):
    """Q8(g) w^ from int64 sums; `scales` are those that are not yet in g."""
    g_grid = plain.grid_of(g.min(), g.max())
    g_codes = plain.codes_of(g, g_grid, step.gradient_seed) - int(g_grid.zero_point)
    sums = plain.input_gradient(g_codes, k, case.geometry, case.x.shape[1:3])
    assert np.abs(sums).max() < 2**24
    return sums.astype(np.float32) * (np.float32(g_grid.scale) * scales)


@EVERY_CASE
@pytest.mark.parametrize("gradient_rounding", ["stochastic", "nearest"])
def test_input_gradient_is_the_product_with_the_quantized_gradient(case, gradient_rounding):
    """reference.md, section 10 check 10, bit by bit; every pixel of stride 2 included, also those
    never multiplied."""
    case = Case(case)
    step = plain.step(seed=5, gradient_rounding=gradient_rounding)
    k, scales = plain.weight_codes(case.w, per_out_channel=False)
    _, g_x, *_ = case.run(step)
    np.testing.assert_array_equal(g_x, input_gradient(case, step, k, scales, case.g))


@EVERY_CASE
def test_scales_of_output_channels_are_folded_into_the_gradient_before_it_is_quantized(case):
    case = Case(case)
    step = plain.step(seed=5, weight_range="per_out_channel")
    k, scales = plain.weight_codes(case.w, per_out_channel=True)
    _, g_x, g_w, _ = case.run(step)
    folded = case.g * scales if len(scales) > 1 else case.g
    left = np.float32(1) if len(scales) > 1 else scales
    np.testing.assert_array_equal(g_x, input_gradient(case, step, k, left, folded))
    assert_sum_of(g_w, case.exact_weight_gradient(case.g))


@EVERY_CASE
def test_weight_gradient_is_that_of_the_fp32_gradient(case):
    """reference.md, section 10 check 10: bit by bit what torch gives for the dequantized input and
    the gradient as it came, wherever the input's scale is a power of two: it then changes no
    rounding. Rounding of gradients, which the input's gradient sees, must not matter."""
    case = power_of_two(Case(case))
    x_hat = images(plain.numbers_of(case.codes(), case.grid))
    geometry = case.geometry
    expected = conv2d_weight(x_hat, case.w.shape, images(case.g), *geometry[1:])
    for changes in ({"seed": 1}, {"seed": 2}, {"gradient_rounding": "nearest"}):
        _, _, g_w, g_b = case.run(plain.step(**changes))
        np.testing.assert_array_equal(g_w, expected.numpy())
        exact = case.g.astype(np.float64).sum((0, 1, 2))
        assert_sum_of(g_b, (exact, np.abs(case.g.astype(np.float64)).sum((0, 1, 2))))


@EVERY_CASE
def test_weight_gradient_of_any_scale_is_the_sum_to_rounding(case):
    case = Case(case)
    _, _, g_w, _ = case.run(plain.step())
    assert_sum_of(g_w, case.exact_weight_gradient(case.g))


def to_fp16(g):
    """Eleven digits of each number below the largest's power of two, fewer near fp16's end."""
    power = np.float64(2) ** (14 - np.frexp(np.abs(g).max())[1])
    return ((g * power).astype(np.float16) / power).astype(np.float32)


def to_bf16(g):
    """The upper half of each number, rounded to nearest, half to even."""
    bits = g.view(np.uint32).astype(np.uint64)
    rounded = bits + 0x7FFF + (bits >> 16 & 1)
    return (rounded & 0xFFFF0000).astype(np.uint32).view(np.float32)


def to_int8(g):
    """Its own grid and the noise of the gradient's place."""
    grid = plain.grid_of(g.min(), g.max())
    return plain.numbers_of(plain.codes_of(g, grid, plain.step(seed=5).gradient_seed), grid)


ROUNDINGS = {"fp16": to_fp16, "bf16": to_bf16, "int8": to_int8}


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12], ids=["small", "one", "large"])
@pytest.mark.parametrize("kind", ROUNDINGS)
def test_weight_gradient_in_fewer_bits_is_that_of_the_rounded_gradient(kind, size):
    """Also of gradients beyond the reach of fp16."""
    case = power_of_two(Case(CASES["3x3 stride 2, odd"]))
    case.g *= np.float32(size)
    g_hat = ROUNDINGS[kind](case.g)
    assert not np.array_equal(g_hat, case.g)
    _, _, g_w, g_b = case.run(plain.step(seed=5, weight_gradient=kind))
    x_hat = images(plain.numbers_of(case.codes(), case.grid))
    expected = conv2d_weight(x_hat, case.w.shape, images(g_hat), stride=2, padding=1)
    np.testing.assert_array_equal(g_w, expected.numpy())
    exact = g_hat.astype(np.float64).sum((0, 1, 2))
    assert_sum_of(g_b, (exact, np.abs(g_hat.astype(np.float64)).sum((0, 1, 2))))


@pytest.mark.parametrize("kind", ["fp16", "bf16", "int8"])
def test_input_gradient_does_not_depend_on_the_weights_bits(kind):
    case = Case(CASES["3x3"])
    results = [case.run(plain.step(weight_gradient=k)) for k in ("fp32", kind)]
    np.testing.assert_array_equal(results[0][1], results[1][1])


@pytest.mark.parametrize("kind", ROUNDINGS)
def test_gradients_of_zero_stay_zero(kind):
    case = Case(CASES["3x3"])
    case.g[:] = 0
    _, g_x, g_w, g_b = case.run(plain.step(weight_gradient=kind))
    assert not g_x.any()
    assert not g_w.any()
    assert not g_b.any()


def test_the_smallest_gradients_pass_through_fp16():
    case = Case(CASES["3x3"])
    case.g *= np.float32(1e-33)
    _, _, g_w, _ = case.run(plain.step(weight_gradient="fp16"))
    assert np.isfinite(g_w).all()


def test_clipped_numbers_get_their_gradient_all_the_same():
    """Straight-through: the grid below ends inside the data, on both sides.

    Source: reference.md, section 1.1.
    """
    case = Case(CASES["3x3"])
    case.grid = plain.grid_of(-0.1, 0.2)
    codes = case.codes()
    clipped = (codes == 0) | (codes == 255)
    assert clipped.mean() > 0.5
    step = plain.step(seed=5)
    k, scales = plain.weight_codes(case.w, per_out_channel=False)
    _, g_x, *_ = case.run(step)
    assert (g_x[clipped] != 0).mean() > 0.99
    np.testing.assert_array_equal(g_x, input_gradient(case, step, k, scales, case.g))


def test_stochastic_activations_have_the_noise_of_their_place():
    case = Case(CASES["3x3"], bias=False)
    step = plain.step(seed=9, activation_rounding="stochastic")
    codes = plain.codes_of(case.x, case.grid, plain.place_seed(9, 0))
    k, scales = plain.weight_codes(case.w, per_out_channel=False)
    sums = plain.convolution(codes - int(case.grid.zero_point), k, case.geometry)
    expected = sums.astype(np.float32) * (scales * np.float32(case.grid.scale))
    np.testing.assert_array_equal(case.run(step)[0], expected)
    assert not np.array_equal(case.run(plain.step(seed=9))[0], expected)


@EVERY_CASE
def test_float_offset_is_a_convolution_of_dequantized_numbers(case):
    """reference.md, section 1.1: no zero among the numbers, so the padding's zeros are not on the
    grid either."""
    case = Case(case)
    case.x += 3  # all numbers on one side of zero
    case.grid = plain.grid_of(case.x.min(), case.x.max(), has_integer_zero=False)
    step = plain.step(seed=5, zero_point="float_offset")
    y, g_x, g_w, _ = case.run(step)
    x_hat = plain.numbers_of(case.codes(), case.grid).astype(np.float64)
    w_hat = plain.rounded(case.w, has_integer_zero=False).astype(np.float64)
    b_hat = plain.rounded(case.b, has_integer_zero=False)
    g_grid = plain.grid_of(case.g.min(), case.g.max(), has_integer_zero=False)
    g_hat = plain.numbers_of(plain.codes_of(case.g, g_grid, step.gradient_seed), g_grid)
    g_hat = g_hat.astype(np.float64)
    sizes, geometry = case.x.shape[1:3], case.geometry
    products = [
        (y - b_hat, plain.convolution, (x_hat, w_hat, geometry)),
        (g_x, plain.input_gradient, (g_hat, w_hat, geometry, sizes)),
    ]
    for actual, product, (first, second, *shape) in products:
        exact = product(first, second, *shape)
        size = product(np.abs(first), np.abs(second), *shape)
        assert_sum_of(actual, (exact, size + (2 if product is plain.convolution else 0)))
    assert_sum_of(g_w, case.exact_weight_gradient(case.g))


class NoInputGradient(Reference):
    """A back end that must not be asked for the gradient at an input."""

    def input_gradient(self, *args):
        raise AssertionError("nobody wants this gradient")


def test_the_first_layer_computes_no_gradient_at_the_images():
    case = Case(CASES["3x3"])
    step = plain.step()
    first = type(step)(NoInputGradient(has_integer_zero=True), step.settings, "first", 0, True)
    w = torch.from_numpy(case.w).requires_grad_()
    x = images(case.x)
    x_8 = plain.coded(x, case.grid, first)
    y = autograd.convolution(x, w, None, x=x_8, geometry=case.geometry, step=first)
    y.backward(images(case.g))
    np.testing.assert_array_equal(w.grad.numpy(), case.run(step)[2])


@pytest.mark.parametrize("zero_point", ["integer", "float_offset"])
def test_a_byte_an_entry_is_saved_for_the_backward_pass(zero_point):
    case = Case(CASES["3x3"])
    saved, x, step = [], images(case.x).requires_grad_(), plain.step(zero_point=zero_point)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        autograd.convolution(
            x,
            torch.from_numpy(case.w).requires_grad_(),
            torch.from_numpy(case.b).requires_grad_(),
            x=plain.coded(x, case.grid, step),
            geometry=case.geometry,
            step=step,
        )
    scale_bytes = 4
    assert sum(t.nbytes for t in saved) == case.x.size + case.w.size + scale_bytes
    assert {t.dtype for t in saved if t.numel() > 1} <= {torch.uint8, torch.int8}


def test_layers_of_one_pixel_are_matrix_products():
    """A fully connected layer, against a matrix product of its own."""
    case = Case(CASES["one pixel"], samples=6)
    k, scales = plain.weight_codes(case.w, per_out_channel=False)
    codes = case.codes().reshape(6, -1) - int(case.grid.zero_point)
    sums = codes @ k[:, :, 0, 0].T
    y, _, g_w, _ = case.run(plain.step())
    expected = sums.astype(np.float32) * (scales * np.float32(case.grid.scale))
    np.testing.assert_array_equal(y.reshape(6, -1), expected + plain.rounded(case.b))
    x_hat = plain.numbers_of(case.codes(), case.grid).reshape(6, -1).astype(np.float64)
    np.testing.assert_allclose(
        g_w[:, :, 0, 0], case.g.reshape(6, -1).T.astype(np.float64) @ x_hat, rtol=0, atol=1e-8
    )


def test_a_graph_can_be_used_twice():
    case = Case(CASES["3x3"])
    x, w = images(case.x).requires_grad_(), torch.from_numpy(case.w).requires_grad_()
    step = plain.step()
    x_8 = plain.coded(x, case.grid, step)
    y = autograd.convolution(x, w, None, x=x_8, geometry=case.geometry, step=step)
    first = torch.autograd.grad(y, [x, w], images(case.g), retain_graph=True)
    second = torch.autograd.grad(y, [x, w], images(case.g))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_memory_layout_changes_no_bit():
    case = Case(CASES["3x3 stride 2, odd"])
    results = []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        x = images(case.x).contiguous(memory_format=memory_format).requires_grad_()
        w = torch.from_numpy(case.w).requires_grad_()
        g = images(case.g).contiguous(memory_format=memory_format)
        step = plain.step()
        x_8 = plain.coded(x, case.grid, step)
        y = autograd.convolution(x, w, None, x=x_8, geometry=case.geometry, step=step)
        results.append([y, *torch.autograd.grad(y, [x, w], g)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
