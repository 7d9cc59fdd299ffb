"""Weights' gradients in float32 against sums in float64, written tap by tap."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from convolution_shapes import shape_of
from hypothesis import given, settings
from hypothesis import strategies as st

from edgesim.quant.kernels.errors import KernelError
from edgesim.quant.kernels.geometry import ConvolutionShape
from edgesim.quant.kernels.products import amx
from edgesim.quant.kernels.weight_gradient import amx_weight_gradient
from edgesim.quant.kernels.weight_gradient.amx_weight_gradient import AmxWeightGradient
from edgesim.quant.kernels.weight_gradient.tiled_weight_gradient import TiledWeightGradient
from edgesim.quant.kernels.weight_gradient.weight_gradient import (
    WeightGradient,
    has_fused_multiply_add,
)

# Of the largest entry. Of a direct sum in float32, taken in blocks, about 1e-6 is to be expected;
# tiles of 4 x 4 multiply that by about 4 (`weight_gradient_transforms.py`).
TOLERANCE = 1e-5


def exact(x_NHWC, g_NHWO, shape: ConvolutionShape) -> npt.NDArray[np.float64]:
    """For each tap, the pixels under it times the gradients of the outputs that saw them."""
    p, s, k = shape.padding, shape.stride, shape.kernel
    padded = np.pad(x_NHWC.astype(np.float64), ((0, 0), (p, p), (p, p), (0, 0)))
    g = g_NHWO.astype(np.float64)
    ends = s * (shape.out_height - 1) + 1, s * (shape.out_width - 1) + 1
    sums = np.empty(shape.weight_shape)
    for r in range(k):
        for c in range(k):
            seen = padded[:, r : r + ends[0] : s, c : c + ends[1] : s]
            if shape.is_depthwise:
                sums[:, 0, r, c] = (seen * g).sum((0, 1, 2))
            else:
                sums[:, :, r, c] = np.tensordot(g, seen, ((0, 1, 2), (0, 1, 2)))
    return sums


def arrays_for(shape: ConvolutionShape, samples: int, rng: np.random.Generator, spread: float = 1):
    """Codes, a zero point, and gradients; with spread 1 their sizes differ by orders."""
    codes = rng.integers(0, 256, (samples, shape.height, shape.width, shape.channels), np.uint8)
    g_shape = samples, shape.out_height, shape.out_width, shape.out_channels
    g = rng.normal(size=g_shape) * np.exp(spread * rng.normal(size=g_shape) - 7)
    return codes, int(rng.integers(0, 256)), g.astype(np.float32)


@pytest.fixture(autouse=True, params=["vectors", "matrix tiles"])
def instructions(request, monkeypatch):
    """Each test by both kinds of instructions, where the processor has them."""
    if request.param == "matrix tiles" and not amx.is_native():
        pytest.skip("needs Intel's AMX")
    monkeypatch.setattr(amx, "is_native", lambda: request.param == "matrix tiles")
    monkeypatch.setattr(AmxWeightGradient, "is_fast", True)
    return request.param


def computed(shape: ConvolutionShape, codes, zero_point: int, g) -> npt.NDArray[np.float32]:
    out = np.full(shape.weight_shape, np.nan, np.float32)
    WeightGradient(shape).compute(codes, zero_point, 1.0, g, out)
    return out


def check(
    shape: ConvolutionShape, samples: int, rng: np.random.Generator, spread: float = 1
) -> None:
    codes, zero, g = arrays_for(shape, samples, rng, spread)
    expected = exact(codes.astype(np.int64) - zero, g, shape)
    tolerance = TOLERANCE * np.abs(expected).max()
    np.testing.assert_allclose(computed(shape, codes, zero, g), expected, rtol=0, atol=tolerance)


LAYERS = {
    "tiles of 4 x 4": shape_of(16, 32, 8, 8, 3, 1, 1),
    "tiles reach beyond the edges": shape_of(16, 16, 7, 9, 3, 1, 1),
    "tiles without padding": shape_of(32, 24, 10, 8, 3, 1, 0),
    "tiles with more padding than taps": shape_of(16, 16, 5, 8, 3, 1, 3),
    "tiles of few channels": shape_of(3, 5, 12, 9, 3, 1, 1),
    "tiles of broken vectors": shape_of(21, 44, 6, 6, 3, 1, 1),
    "tiles of several blocks": shape_of(80, 60, 4, 4, 3, 1, 1),
    "tiles of several blocks and chunks": shape_of(48, 40, 8, 8, 3, 1, 1),
    "tiles of 2 x 2": shape_of(48, 32, 2, 2, 3, 1, 1),
    "tiles of 2 x 2 in a strip": shape_of(16, 16, 2, 6, 3, 1, 1),
    "tiles gain nothing": shape_of(16, 16, 1, 1, 3, 1, 1),
    "stride 2": shape_of(16, 32, 9, 8, 3, 2, 1),
    "stride 2 of several chunks": shape_of(32, 64, 16, 16, 3, 2, 1),
    "shortcut": shape_of(32, 40, 9, 8, 1, 2, 0),
    "pointwise": shape_of(24, 20, 5, 7, 1, 1, 0),
    "stem of seven taps": shape_of(3, 24, 21, 18, 7, 2, 3),
    "last inputs unseen": shape_of(16, 8, 8, 8, 3, 3, 0),
    "fully connected": shape_of(70, 10, 1, 1, 1, 1, 0),
    "depthwise": shape_of(32, 32, 8, 7, 3, 1, 1, groups=32),
    "depthwise of a broken vector": shape_of(21, 21, 5, 6, 3, 1, 1, groups=21),
    "depthwise, stride 2": shape_of(24, 24, 9, 8, 3, 2, 1, groups=24),
    "depthwise, stride 3, no padding": shape_of(8, 8, 11, 10, 3, 3, 0, groups=8),
}


@pytest.mark.parametrize("shape", LAYERS.values(), ids=LAYERS)
def test_weight_gradient_is_exact_up_to_rounding(shape):
    check(shape, 23, np.random.default_rng(0))


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_few_samples_make_as_many_rows_as_are_there(samples):
    check(LAYERS["tiles reach beyond the edges"], samples, np.random.default_rng(1))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.tuples(st.integers(1, 11), st.integers(1, 11)),
    st.sampled_from([(1, 1), (1, 2), (3, 1), (3, 2), (5, 1)]),
    st.integers(0, 2),
    st.integers(1, 4),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_any_shape_is_exact_up_to_rounding(C, out, size, kernel, padding, samples, depth, seed):
    k, s = kernel
    if min(size) + 2 * padding < k:
        padding = k // 2
    is_depthwise = depth and k == 3
    shape = shape_of(C, C if is_depthwise else out, *size, k, s, padding, C if is_depthwise else 1)
    # Without outliers errors stay far below the tolerance: ever new examples are safe.
    check(shape, samples, np.random.default_rng(seed), spread=0)


@pytest.mark.parametrize("name", ["stride 2", "shortcut", "depthwise", "depthwise, stride 2"])
def test_sums_without_tiles_are_exact_for_small_whole_gradients(name):
    """All products and sums are whole and below 2^24."""
    shape = LAYERS[name]
    codes, zero, g = arrays_for(shape, 5, np.random.default_rng(2))
    whole = np.rint(g * 1e3).clip(-99, 99).astype(np.float32)
    expected = exact(codes.astype(np.int64) - zero, whole, shape)
    np.testing.assert_array_equal(computed(shape, codes, zero, whole), expected)


def test_long_sums_lose_nothing():
    """The sum of 65,536 terms of one sign, one by one, would lose two digits."""
    shape = shape_of(16, 8, 32, 32, 3, 1, 1)
    codes, _, g = arrays_for(shape, 64, np.random.default_rng(3))
    expected = exact(codes.astype(np.int64), np.abs(g), shape)
    np.testing.assert_allclose(computed(shape, codes, 0, np.abs(g)), expected, rtol=TOLERANCE)


def test_padding_has_the_code_of_zero():
    """An image of zeros gives no gradient, whatever its code."""
    shape = LAYERS["tiles with more padding than taps"]
    codes, zero, g = arrays_for(shape, 2, np.random.default_rng(4))
    assert not computed(shape, np.full_like(codes, zero), zero, g).any()


@pytest.mark.parametrize("name", ["tiles of 4 x 4", "tiles of 2 x 2", "stride 2", "depthwise"])
def test_equal_inputs_give_equal_bits_in_threads(name):
    shape = LAYERS[name]
    codes, zero, g = arrays_for(shape, 23, np.random.default_rng(5))
    gradient = WeightGradient(shape)
    outs = [np.empty(shape.weight_shape, np.float32) for _ in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(gradient.compute, codes, zero, 0.3, g, out) for out in outs]:
            future.result()
    for out in outs[1:]:
        np.testing.assert_array_equal(out, outs[0])


@pytest.mark.parametrize("shape", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_not_finite_gradients_reach_the_weights_of_their_channel(shape, wrong):
    codes, _, g = arrays_for(shape, 2, np.random.default_rng(6))
    g[1, shape.out_height // 2, -1, 2] = wrong
    out = computed(shape, codes | 128, 0, g)  # no zeros to multiply by
    channels = np.delete(out, 2, 0)
    assert not np.isfinite(out[2]).all()
    assert np.isfinite(channels).all()


def test_no_samples_give_no_gradient():
    shape = LAYERS["tiles of 4 x 4"]
    codes, zero, g = arrays_for(shape, 0, np.random.default_rng(7))
    assert not computed(shape, codes, zero, g).any()


def test_grouped_kernels_are_refused():
    with pytest.raises(KernelError, match="one group, not 4"):
        WeightGradient(shape_of(12, 40, 7, 6, 3, 2, 1, groups=4))
    with pytest.raises(KernelError, match="one group, not 8"):
        WeightGradient(shape_of(8, 8, 7, 6, 5, 1, 2, groups=8))


def test_arrays_of_other_shape_or_type_are_refused():
    shape = LAYERS["tiles of 4 x 4"]
    codes, zero, g = arrays_for(shape, 2, np.random.default_rng(8))
    out = np.zeros(shape.weight_shape, np.float32)
    gradient = WeightGradient(shape)
    with pytest.raises(KernelError, match="codes"):
        gradient.compute(codes[:, :-1], zero, 1.0, g, out)
    with pytest.raises(KernelError, match="gradient at the output"):
        gradient.compute(codes, zero, 1.0, g[:1], out)
    with pytest.raises(KernelError, match="gradient at the weights"):
        gradient.compute(codes, zero, 1.0, g, out.transpose(0, 1, 3, 2))
    with pytest.raises(KernelError, match="gradient at the weights"):
        gradient.compute(codes, zero, 1.0, g, out.astype(np.float64))


def test_only_what_gains_is_chosen():
    native = has_fused_multiply_add()
    for gains in ("tiles of 4 x 4", "tiles of 2 x 2", "stride 2", "shortcut", "depthwise"):
        assert WeightGradient.suits(LAYERS[gains]) == native
    for loses in ("stem of seven taps", "tiles of few channels", "fully connected"):
        assert not WeightGradient.suits(LAYERS[loses])
    assert not WeightGradient.suits(shape_of(32, 32, 7, 6, 3, 1, 1, groups=4))


@pytest.mark.parametrize("samples", [1, 5, 23])
@pytest.mark.parametrize("name", ["tiles of several blocks", "stride 2 of several chunks"])
def test_sums_of_many_chunks_are_exact_up_to_rounding(name, samples, monkeypatch):
    """With several panels, and a last chunk that is shorter."""
    size = {"tiles of several blocks": 40_000, "stride 2 of several chunks": 130_000}[name]
    monkeypatch.setattr(amx_weight_gradient, "_CHUNK_BYTES", size)
    if amx.is_native():
        assert 1 < AmxWeightGradient(LAYERS[name])._plan(23).chunk < 23
    check(LAYERS[name], samples, np.random.default_rng(10))


def test_matrix_tiles_are_used_where_products_take_longest(monkeypatch):
    monkeypatch.undo()
    if not amx.is_native():
        pytest.skip("needs Intel's AMX")
    for gains in (shape_of(64, 64, 8, 8, 3, 1, 1), shape_of(128, 128, 8, 8, 1, 1, 0)):
        assert type(WeightGradient(gains)._method) is AmxWeightGradient
    small, point = shape_of(512, 512, 1, 1, 3, 1, 1), shape_of(32, 64, 16, 16, 1, 1, 0)
    for loses in (shape_of(32, 32, 8, 8, 3, 1, 1), small, point):
        assert type(WeightGradient(loses)._method) is TiledWeightGradient


def test_processors_without_fused_multiply_add_leave_it_to_torch_and_are_right():
    """Compiled for a plain x86-64 or ARM, in a process of its own."""
    code = """
import numpy as np
from test_weight_gradient_kernel import LAYERS, WeightGradient, check
shape = LAYERS["tiles of 2 x 2"]
assert not WeightGradient.suits(shape)
check(shape, 3, np.random.default_rng(9))
"""
    here = Path(__file__).parent
    environment = {
        **os.environ,
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_OPT": "1",  # compiles faster
        "PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1])]),
    }
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)
