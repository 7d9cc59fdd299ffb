"""The integer back end against the plain one: integers exactly, floats to 1e-5, on every layer."""

import numpy as np
import plain_quantization as plain
import pytest
import torch
from plain_range_norms import plain_range_batch_norm, plain_range_evonorm

from edgesim.assembly.build import quantization_settings
from edgesim.quant import autograd, int8_cpu
from edgesim.quant.affine import Quantized, grid_of, quantize_weight
from edgesim.quant.arithmetic import Geometry, RangeNormShape
from edgesim.quant.backends import choose_backend, describe_backend, make_backend
from edgesim.quant.errors import BackendError
from edgesim.quant.kernels.convolution.convolution import Convolution
from edgesim.quant.kernels.convolution.unfolded import UnfoldedConvolution
from edgesim.quant.kernels.errors import KernelError
from edgesim.quant.layer_step import LayerStep
from edgesim.quant.range_evonorm_formulas import chunks_of, kappa
from edgesim.quant.reference import Reference
from edgesim.quant.settings import QuantizationSettings

SETTINGS = quantization_settings()
REFERENCE, INT8 = make_backend("reference", SETTINGS), make_backend("int8_cpu", SETTINGS)

# (channels, out channels, kernel, stride, groups), the image's height and width
CONVOLUTIONS = [
    ((3, 16, 3, 1, 1), (9, 7)),
    ((16, 16, 3, 1, 1), (8, 8)),
    ((16, 32, 3, 2, 1), (9, 11)),
    ((16, 32, 1, 2, 1), (8, 8)),
    ((1, 5, 7, 2, 1), (13, 12)),
    ((12, 12, 3, 1, 12), (7, 5)),
    ((12, 12, 3, 2, 12), (8, 7)),
    ((8, 12, 3, 1, 4), (5, 6)),
    ((33, 17, 1, 1, 1), (1, 1)),
    ((64, 64, 3, 1, 1), (2, 2)),
]
GEOMETRIES = [  # channels in and out, geometry, image
    (9, 24, Geometry((1, 5), (1, 1), (0, 2), (1, 1), 1), (1, 128)),
    (24, 40, Geometry((1, 5), (1, 2), (0, 2), (1, 1), 1), (1, 33)),
    (16, 16, Geometry((1, 3), (1, 1), (0, 8), (1, 8), 1), (1, 50)),
    (6, 4, Geometry((1, 4), (1, 3), (0, 5), (1, 2), 2), (1, 20)),
    (12, 12, Geometry((1, 7), (1, 2), (0, 3), (1, 1), 12), (1, 31)),
    (33, 17, Geometry((1, 1), (1, 2), (0, 0), (1, 1), 1), (1, 9)),
    (16, 16, Geometry((3, 1), (1, 1), (1, 0), (1, 1), 1), (7, 9)),
    (8, 12, Geometry((2, 5), (2, 1), (1, 2), (1, 2), 4), (9, 11)),
    (64, 32, Geometry((3, 3), (2, 2), (2, 2), (2, 2), 1), (70, 40)),  # several blocks of samples
]


def normal(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator)


def step(arithmetic, **changes):
    settings = QuantizationSettings(
        **{**{f: getattr(SETTINGS, f) for f in SETTINGS.__slots__}, **changes}
    )
    return LayerStep(arithmetic, settings, "layer", seed=7, training=True)


def assert_close(actual, expected, least_scale=0.0):
    """To 1e-5 of the largest entry, or of what cancels in it: sums differ in their order."""
    scale = max(float(expected.abs().max()), least_scale)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5 * scale)


def both(function):
    """What a function of a back end gives with the integer one, and with the plain one."""
    return function(INT8), function(REFERENCE)


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (2, 7, 5, 3), (3, 8, 8, 16)])
def test_ranges_codes_and_their_numbers_are_equal(shape, seed):
    x = normal(*shape)
    for ask in (lambda a: a.full_range(x), lambda a: a.sample_range(x)):
        low_high, expected = both(ask)
        assert low_high == expected
    grid = grid_of(*REFERENCE.full_range(x / 2), has_integer_zero=True)  # half is off the grid
    assert torch.equal(*both(lambda a: a.quantize(x, grid, seed)))


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (2, 7, 5, 3), (3, 8, 8, 16)])
def test_codes_on_the_grid_of_the_range_are_those_of_two_calls(shape, seed):
    x = normal(*shape)
    for arithmetic in (INT8, REFERENCE):
        for ask, range_of in (
            (arithmetic.quantize_by_samples, REFERENCE.sample_range),
            (arithmetic.quantize_whole, REFERENCE.full_range),
        ):
            quantized, extremes = ask(x, seed)
            assert extremes == range_of(x)
            assert quantized.grid == grid_of(*extremes, has_integer_zero=True)
            assert torch.equal(quantized.codes, REFERENCE.quantize(x, quantized.grid, seed))
        values, whole = arithmetic.requantize_whole(x, seed)
        assert whole == extremes
        assert torch.equal(values, quantized.grid.dequantize(quantized.codes))


@pytest.mark.parametrize("seeds", [None, (3, 4)])
def test_residual_sums_are_equal(seeds):
    a, b = normal(2, 5, 3, 8), normal(2, 5, 3, 8, seed=2) * 3
    grids = [grid_of(*REFERENCE.sample_range(x), has_integer_zero=True) for x in (a, b)]
    actual, expected = both(lambda one: one.residual_sum(a, grids[0], b, grids[1], seeds))
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("weight_range", ["per_tensor", "per_out_channel"])
@pytest.mark.parametrize(
    ("channels", "out_channels", "geometry", "image"),
    [
        *(
            (c, o, Geometry.square(k, stride=s, padding=k // 2, groups=g), image)
            for (c, o, k, s, g), image in CONVOLUTIONS
        ),
        *GEOMETRIES,
    ],
)
def test_convolutions_and_their_gradients_agree(
    channels, out_channels, geometry, image, weight_range
):
    x_NCHW = normal(3, channels, *image)
    weight = normal(out_channels, channels // geometry.groups, *geometry.kernel, seed=2)
    bias = normal(out_channels, seed=3)
    grid = grid_of(*REFERENCE.sample_range(x_NCHW), has_integer_zero=True)

    def run(arithmetic):
        leaves = [t.clone().requires_grad_() for t in (x_NCHW, weight, bias)]
        place = step(arithmetic, weight_range=weight_range)
        x = plain.coded(x_NCHW, grid, place)
        y = autograd.convolution(*leaves, x=x, geometry=geometry, step=place)
        y.backward(normal(*y.shape, seed=4))
        return y.detach(), [leaf.grad for leaf in leaves]

    (y, (g_x, *g_parameters)), (expected, (expected_g_x, *expected_g_parameters)) = both(run)
    assert torch.equal(y, expected)  # sums of integers below 2^24, the same two roundings
    assert torch.equal(g_x, expected_g_x)
    for gradient, expected_gradient in zip(g_parameters, expected_g_parameters, strict=True):
        assert_close(gradient, expected_gradient)


@pytest.mark.parametrize("arithmetic", [INT8, REFERENCE], ids=["int8_cpu", "reference"])
@pytest.mark.parametrize("image", [(1, 1), (1, 2), (2, 2), (3, 4)], ids=str)
@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    ("groups", "channels", "out_channels"),
    [(1, 6, 4), (2, 6, 4), (3, 6, 6), (6, 6, 6), (6, 6, 12), (4, 64, 32), (32, 32, 32)],
)
def test_gradients_are_torchs_for_all_groups_kernels_and_images(
    arithmetic, image, kernel, stride, groups, channels, out_channels
):
    """Against a convolution in float64 of the numbers that the codes stand for. The weights' and
    the biases' gradients see the gradient as it comes, the input's its nearest codes."""
    geometry = Geometry.square(kernel, stride=stride, padding=kernel // 2, groups=groups)
    x_NCHW = normal(2, channels, *image).to(memory_format=torch.channels_last)
    leaves = [
        x_NCHW,
        normal(out_channels, channels // groups, kernel, kernel),
        normal(out_channels),
    ]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    grid = grid_of(*REFERENCE.sample_range(x_NCHW.detach()), has_integer_zero=True)
    place = step(arithmetic, gradient_rounding="nearest")
    x = plain.coded(x_NCHW, grid, place)
    y = autograd.convolution(*leaves, x=x, geometry=geometry, step=place)
    g = normal(*y.shape, seed=4)
    y.backward(g)

    weight = quantize_weight(leaves[1].detach(), per_out_channel=False, has_integer_zero=True)
    numbers = [
        grid.dequantize(x.codes).permute(0, 3, 1, 2),
        (weight.centered() * weight.scales),
        plain.rounded(leaves[2].detach().numpy()),
    ]
    exact = [torch.as_tensor(n).double().requires_grad_() for n in numbers]
    expected = torch.nn.functional.conv2d(*exact, *geometry[1:])
    assert_close(y.detach().double(), expected.detach(), least_scale=1.0)
    g_grid = grid_of(float(g.min()), float(g.max()), has_integer_zero=True)
    g_hat = g_grid.dequantize(g_grid.quantize(g, None)).double()
    (g_x,) = torch.autograd.grad(expected, exact[:1], g_hat, retain_graph=True)
    expected_gradients = [g_x, *torch.autograd.grad(expected, exact[1:], g.double())]
    for leaf, expected_gradient in zip(leaves, expected_gradients, strict=True):
        assert_close(leaf.grad.double(), expected_gradient, least_scale=1.0)


@pytest.mark.parametrize(("sizes", "image"), CONVOLUTIONS)
def test_convolutions_of_patches_have_the_bits_of_those_without(sizes, image):
    channels, out_channels, kernel, stride, groups = sizes
    geometry = Geometry.square(kernel, stride=stride, padding=kernel // 2, groups=groups)
    weight = normal(out_channels, channels // groups, kernel, kernel)
    w = quantize_weight(weight, per_out_channel=False, has_integer_zero=True)
    bias = normal(out_channels).numpy()
    made = [make(image, weight.shape, geometry) for make in (int8_cpu._shape, int8_cpu._window)]
    ways = Convolution(made[0]), UnfoldedConvolution(made[1])
    generator = torch.Generator().manual_seed(1)
    results = []
    for way in ways:
        y = np.empty((3, *geometry.out_size(image), out_channels), np.float32)
        g_x = np.empty((3, *image, channels), np.float32)
        codes, g = (
            torch.randint(256, a.shape, generator=generator.manual_seed(1), dtype=torch.uint8)
            for a in (g_x, y)
        )
        weights, scales = w.codes.numpy(), w.scales.numpy()
        way.convolve(codes.numpy(), 77, 0.3, weights, scales, bias, y)
        way.input_gradient(g.numpy(), 131, 0.7, weights, scales, g_x)
        results.append((y, g_x))
    for direct, of_patches in zip(*results, strict=True):
        np.testing.assert_array_equal(direct, of_patches)


def test_a_kernel_larger_than_the_image_is_refused():
    geometry = Geometry((1, 5), (1, 1), (0, 0), (1, 3), 1)
    with pytest.raises(KernelError, match=r"kernel of 1 x 5 with dilation \(1, 3\) doesn't fit"):
        UnfoldedConvolution(int8_cpu._window((1, 12), torch.Size((2, 2, 1, 5)), geometry))


def test_patches_are_not_made_of_codes_of_another_shape():
    geometry = Geometry((1, 3), (1, 1), (0, 1), (1, 1), 1)
    way = UnfoldedConvolution(int8_cpu._window((1, 12), torch.Size((2, 4, 1, 3)), geometry))
    weights = np.zeros((2, 4, 1, 3), np.int8)
    codes, y = np.zeros((1, 1, 12, 3), np.uint8), np.empty((1, 1, 12, 2), np.float32)
    with pytest.raises(KernelError, match="codes"):
        way.convolve(codes, 0, 1.0, weights, np.ones(1, np.float32), None, y)


def test_sums_of_products_are_those_of_64_bits_where_32_bit_floats_would_round():
    codes = torch.full((1, 4, 4, 512), 255, dtype=torch.uint8)
    weight = torch.full((8, 512, 3, 3), 127 / 128) * torch.linspace(0.9, 1, 8).view(-1, 1, 1, 1)
    grid = grid_of(0.0, 255.0, has_integer_zero=True)
    quantized = quantize_weight(weight, per_out_channel=False, has_integer_zero=True)
    y = INT8.convolve(codes, grid, quantized, None, Geometry.square(3, padding=1))
    sums = 255 * 9 * 512 * quantized.codes[:, 0, 0, 0].to(torch.int64)  # inside the image
    expected = sums.to(torch.float32) * quantized.scales
    assert sums.max() > 2**24
    assert torch.equal(y[0, 1, 1], expected)


@pytest.mark.parametrize(
    "shape_NCHW", [(4, 16, 8, 8), (2, 24, 7, 5), (3, 64, 2, 2), (2, 256, 4, 4)]
)
def test_range_evonorm_agrees(shape_NCHW):
    _, C, H, W = shape_NCHW
    x_NCHW = normal(*shape_NCHW) * 2 + 0.3
    parameters = [1 + 0.3 * normal(C, seed=s) for s in (2, 3, 4)]
    grid = grid_of(*REFERENCE.sample_range(x_NCHW), has_integer_zero=True)
    shape = RangeNormShape(8, chunks_of(C // 8 * H * W))

    def run(arithmetic):
        leaves = [t.clone().requires_grad_() for t in (x_NCHW, *parameters)]
        place = step(arithmetic)
        x = plain.coded(x_NCHW, grid, place)
        y = autograd.range_evonorm(*leaves, x=x, shape=shape, step=place)
        y.backward(normal(*y.shape, seed=4))
        return y.detach(), [leaf.grad for leaf in leaves]

    (y, gradients), (expected, expected_gradients) = both(run)
    assert torch.equal(y, expected)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        assert_close(gradient, expected_gradient)


def with_flat_groups():
    """Groups of 2 channels: one is clipped everywhere, one is 0, one has a chunk with two codes."""
    x_NCHW = normal(4, 16, 8, 8) * 2 + 0.3
    x_NCHW[0, 0], x_NCHW[0, 1] = 100.0, -100.0
    x_NCHW[1, 2:4] = 0.0
    x_NCHW[2, 4:6] = 0.3
    x_NCHW[2, 4, 0, 0] = 0.4
    return x_NCHW


@pytest.mark.parametrize("has_integer_zero", [True, False])
def test_a_group_without_ranges_in_its_chunks_has_no_endless_scale(has_integer_zero):
    """Nor do other groups vanish beside it on the common grid of scales."""
    x_NCHW = with_flat_groups()
    parameters = [1 + 0.3 * normal(16, seed=s) for s in (2, 3, 4)]
    grid = grid_of(-6.0, 6.5, has_integer_zero=has_integer_zero)
    shape = RangeNormShape(8, 16)
    arithmetics = [Reference(has_integer_zero=has_integer_zero)]
    arithmetics += [INT8] if has_integer_zero else []
    codes = grid.quantize(x_NCHW.permute(0, 2, 3, 1).contiguous(), None)
    numbers = grid.dequantize(codes).permute(0, 3, 1, 2).double().requires_grad_()
    exact = [numbers, *(p.double().requires_grad_() for p in parameters)]
    g_NCHW = normal(4, 16, 8, 8, seed=4)
    for arithmetic in arithmetics:
        s_hat_of = []

        def quantize(s, arithmetic=arithmetic, s_hat_of=s_hat_of):
            s_hat_of.append(arithmetic.requantize_whole(s.float(), None)[0])
            return s_hat_of[0].double()

        expected = plain_range_evonorm(
            *exact, 8, 16, "hard_sigmoid", quantize=quantize, step=grid.scale
        )
        forward = arithmetic.range_evonorm(codes, grid, *parameters, shape)
        y, saved = forward.y, forward.saved
        assert_close(y.permute(0, 3, 1, 2).double(), expected.detach())
        s, s_hat = saved[:2]
        assert s.max() <= 1 / (kappa(8) * grid.scale)
        assert s[0, 0] == pytest.approx(1 / (kappa(8) * (grid.scale * 255 / 16)), rel=1e-3)
        assert (s_hat > 0).all()
        g_grid = grid_of(float(g_NCHW.min()), float(g_NCHW.max()), has_integer_zero=True)
        g_codes = g_grid.quantize(g_NCHW.permute(0, 2, 3, 1).contiguous(), None)
        found = arithmetic.range_evonorm_backward(
            codes, grid, *parameters[:2], shape, saved, Quantized(g_codes, g_grid)
        )
        wanted = torch.autograd.grad(
            expected, exact, g_grid.dequantize(g_codes).permute(0, 3, 1, 2).double()
        )
        gradients = [found.x.permute(0, 3, 1, 2), found.v, found.gamma, found.beta]
        for gradient, expected_gradient in zip(gradients, wanted, strict=True):
            assert_close(gradient.double(), expected_gradient, least_scale=1.0)


@pytest.mark.parametrize("has_integer_zero", [True, False])
def test_a_channel_of_one_code_leaves_the_scales_of_the_others(has_integer_zero):
    x_NCHW = with_flat_groups()
    x_NCHW[:, 3] = x_NCHW[:, 5] = 1.0
    x_NCHW[0, 5, 0, 0] = 1.1  # one chunk has two codes
    grid = grid_of(-6.0, 6.5, has_integer_zero=has_integer_zero)
    codes = grid.quantize(x_NCHW.permute(0, 2, 3, 1).contiguous(), None)
    gamma, beta = (1 + 0.3 * normal(16, seed=s) for s in (2, 3))
    numbers = grid.dequantize(codes).permute(0, 3, 1, 2).double()
    exact = [t.detach().double().requires_grad_() for t in (numbers, gamma, beta)]
    g_NHWC = normal(4, 8, 8, 16, seed=4)
    g_grid = grid_of(float(g_NHWC.min()), float(g_NHWC.max()), has_integer_zero=True)
    g_codes = g_grid.quantize(g_NHWC, None)
    arithmetics = [Reference(has_integer_zero=has_integer_zero)]
    arithmetics += [INT8] if has_integer_zero else []
    for arithmetic in arithmetics:
        forward = arithmetic.range_batch_norm(codes, grid, gamma, beta)
        s, s_hat = forward.saved[1:3]
        assert int(s.argmax()) == 3
        assert s[3] == pytest.approx(1 / (kappa(16) * grid.scale), rel=1e-3)
        assert (s_hat[:3] > 0.5 * s[:3]).all()

        def quantize(s, arithmetic=arithmetic):
            return arithmetic.requantize_whole(s.detach().float(), None)[0].double()

        expected, _, scales = plain_range_batch_norm(*exact, quantize=quantize, step=grid.scale)
        assert_close(s.double(), scales.detach())
        assert_close(forward.y.permute(0, 3, 1, 2).double(), expected.detach())
        found = arithmetic.range_batch_norm_backward(
            codes, grid, gamma, beta, forward.saved, Quantized(g_codes.clone(), g_grid)
        )
        g_NCHW = g_grid.dequantize(g_codes).permute(0, 3, 1, 2).double()
        wanted = torch.autograd.grad(expected, exact, g_NCHW)
        gradients = [found.x.permute(0, 3, 1, 2), found.gamma, found.beta]
        for gradient, expected_gradient in zip(gradients, wanted, strict=True):
            assert_close(gradient.double(), expected_gradient, least_scale=1.0)


@pytest.mark.parametrize("shape_NCHW", [(4, 16, 8, 8), (3, 5, 7, 5), (2, 64, 1, 1)])
def test_range_batch_norm_agrees(shape_NCHW):
    x_NCHW = normal(*shape_NCHW) * 2 + 0.3
    parameters = [1 + 0.3 * normal(shape_NCHW[1], seed=s) for s in (2, 3)]
    grid = grid_of(*REFERENCE.sample_range(x_NCHW), has_integer_zero=True)

    def run(arithmetic):
        leaves = [t.clone().requires_grad_() for t in (x_NCHW, *parameters)]
        place = step(arithmetic)
        x = plain.coded(x_NCHW, grid, place)
        y, *moments = autograd.range_batch_norm(*leaves, x=x, step=place)
        y.backward(normal(*y.shape, seed=4))
        return y.detach(), moments, [leaf.grad for leaf in leaves]

    (y, moments, gradients), (expected, expected_moments, expected_gradients) = both(run)
    for actual, wanted in zip(
        [y, *moments, *gradients], [expected, *expected_moments, *expected_gradients], strict=True
    ):
        assert_close(actual, wanted, least_scale=1.0)  # two samples of a channel nearly cancel


def test_what_is_not_finite_has_no_finite_range():
    for bad in (np.nan, np.inf, -np.inf):
        x = normal(3, 4, 4, 2)
        x[1, 2, 3, 0] = bad
        for arithmetic in (INT8, REFERENCE):
            for low, high in (
                arithmetic.full_range(x),
                arithmetic.sample_range(x),
                arithmetic.quantize_by_samples(x, None)[1],
                arithmetic.quantize_whole(x, 3)[1],
                arithmetic.requantize_whole(x, 3)[1],
            ):
                assert not np.isfinite(high - low)


def test_the_choice_falls_on_integers_where_they_can_serve():
    assert choose_backend("auto", SETTINGS, "cpu") == "int8_cpu"
    assert choose_backend("reference", SETTINGS, "cpu") == "reference"
    assert choose_backend("auto", SETTINGS, "cuda") == "reference"
    assert describe_backend("int8_cpu").startswith("int8_cpu (")


@pytest.mark.parametrize(
    "products", ["matrix tiles and byte dot products", "byte dot products", "16-bit multiply-adds"]
)
def test_people_are_told_which_products_the_processor_computes(products, monkeypatch):
    has_bytes, has_tiles = "byte" in products, "tiles" in products
    monkeypatch.setattr("edgesim.quant.int8_cpu.dot_product_is_native", lambda: has_bytes)
    monkeypatch.setattr("edgesim.quant.kernels.products.amx.is_native", lambda: has_tiles)
    assert f"kernels: {products}" in describe_backend("int8_cpu")


def test_integers_asked_for_by_name_are_refused_where_they_cannot_serve(monkeypatch):
    floats = step(REFERENCE, zero_point="float_offset").settings
    assert choose_backend("auto", floats, "cpu") == "reference"
    for settings, accelerator, reason in [
        (floats, "cpu", "float_offset"),
        (SETTINGS, "cuda", "compute on cuda"),
    ]:
        with pytest.raises(
            BackendError, match=f"backend is int8_cpu, but .*{reason}.*; choose auto"
        ):
            choose_backend("int8_cpu", settings, accelerator)
    is_native = "edgesim.quant.kernels.products.native.multiply_add_is_native"
    monkeypatch.setattr(is_native, lambda: False)
    assert choose_backend("auto", SETTINGS, "cpu") == "reference"
    with pytest.raises(BackendError, match="lacks"):
        choose_backend("int8_cpu", SETTINGS, "cpu")


@pytest.mark.parametrize("per_out_channel", [False, True])
@pytest.mark.parametrize("shape", [(5, 3, 3, 3), (16, 16, 1, 1), (4, 1, 7, 7)])
def test_codes_and_scales_of_weights_are_equal(shape, per_out_channel):
    weight = normal(*shape)
    weight[0] = 0.0  # a channel without a range
    ours, theirs = both(lambda a: a.quantize_weight(weight, per_out_channel=per_out_channel))
    assert torch.equal(ours.codes, theirs.codes)
    assert torch.equal(ours.scales, theirs.scales)


def test_numbers_of_whole_tensors_and_their_ranges_are_equal():
    for x in (normal(17), normal(17) + 9, torch.zeros(3), torch.full((4,), -2.5)):
        (ours, our_range), (theirs, their_range) = both(lambda a, x=x: a.requantize_whole(x, None))
        assert torch.equal(ours, theirs)
        assert our_range == their_range


def test_parameters_together_are_as_each_on_its_own():
    parameters = (normal(17), normal(17, seed=2) + 9, torch.zeros(17), torch.full((17,), -2.5))
    for arithmetic in (INT8, REFERENCE):
        together = arithmetic.requantize_parameters(parameters)
        for parameter, values, extremes in zip(parameters, *together, strict=True):
            expected, expected_range = arithmetic.requantize_whole(parameter, None)
            assert torch.equal(values, expected)
            assert extremes == expected_range
