"""Integer convolutions against sums in 64-bit integers, written tap by tap."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
from convolution_shapes import shape_of
from hypothesis import given, settings
from hypothesis import strategies as st

from edgesim.quant.kernels.convolution.amx_tiles import TILE, AmxTiles
from edgesim.quant.kernels.convolution.convolution import Convolution, Method
from edgesim.quant.kernels.convolution.depthwise import Depthwise
from edgesim.quant.kernels.convolution.direct import Direct
from edgesim.quant.kernels.convolution.winograd import Winograd
from edgesim.quant.kernels.errors import KernelError
from edgesim.quant.kernels.geometry import MAX_TERMS, ConvolutionShape, forward_tables
from edgesim.quant.kernels.instructions import has_dot_product, has_native_instruction
from edgesim.quant.kernels.products import amx, native
from edgesim.quant.kernels.products.native import dot_product_is_native, multiply_add_is_native
from edgesim.quant.kernels.products.tile import PAIRS, QUADS

Int64 = npt.NDArray[np.int64]
Choice = Method | Literal["with bytes", "without bytes", "matrix tiles"] | None


def convolved(x_NHWC: Int64, w_OIkk: Int64, shape: ConvolutionShape) -> Int64:
    """Sum over taps of the pixels under the tap, times its weights, group by group."""
    p, s, G = shape.padding, shape.stride, shape.groups
    padded = np.pad(x_NHWC, ((0, 0), (p, p), (p, p), (0, 0)))
    out = np.zeros((len(x_NHWC), shape.out_height, shape.out_width, shape.out_channels), np.int64)
    ends = s * (shape.out_height - 1) + 1, s * (shape.out_width - 1) + 1
    for r in range(shape.kernel):
        for c in range(shape.kernel):
            seen = padded[:, r : r + ends[0] : s, c : c + ends[1] : s]
            by_group = zip(np.split(seen, G, 3), np.split(w_OIkk[:, :, r, c], G), strict=True)
            out += np.concatenate([part @ weights.T for part, weights in by_group], 3)
    return out


def gradient(g_NHWO: Int64, w_OIkk: Int64, shape: ConvolutionShape) -> Int64:
    """What each output sends back to the pixels that it saw, added where they were."""
    p, s, k, G = shape.padding, shape.stride, shape.kernel, shape.groups
    size = shape.height + 2 * p, shape.width + 2 * p
    padded = np.zeros((len(g_NHWO), *size, shape.channels), np.int64)
    for r in range(k):
        for c in range(k):
            by_group = zip(np.split(g_NHWO, G, 3), np.split(w_OIkk[:, :, r, c], G), strict=True)
            sent = np.concatenate([part @ weights for part, weights in by_group], 3)
            rows = slice(r, r + s * (shape.out_height - 1) + 1, s)
            padded[:, rows, c : c + s * (shape.out_width - 1) + 1 : s] += sent
    return padded[:, p : p + shape.height, p : p + shape.width]


def weights_for(shape: ConvolutionShape, rng: np.random.Generator) -> npt.NDArray[np.int8]:
    """In channels_last memory."""
    out, inputs, k, _ = shape.weight_shape
    return rng.integers(-127, 128, (out, k, k, inputs), dtype=np.int8).transpose(0, 3, 1, 2)


def convolution_of(shape: ConvolutionShape, choice: Choice) -> Convolution:
    """By a method, or by those that a processor with or without byte products chooses."""
    if choice not in ("with bytes", "without bytes", "matrix tiles"):
        return Convolution(shape, choice)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "dot_product_is_native", lambda: choice == "with bytes")
        if choice != "matrix tiles":
            patch.setattr(amx, "is_native", lambda: False)
        patch.setattr(AmxTiles, "suits", lambda _tables: True)
        return Convolution(shape)


def check_both_directions(
    shape: ConvolutionShape, samples: int, rng: np.random.Generator, choice: Choice = None
) -> None:
    """Both directions equal the oracle bit for bit, scales and biases included."""
    convolution = convolution_of(shape, choice)
    w = weights_for(shape, rng)
    x_shape = (samples, shape.height, shape.width, shape.channels)
    y_shape = (samples, shape.out_height, shape.out_width, shape.out_channels)
    x, g = (rng.integers(0, 256, size, dtype=np.uint8) for size in (x_shape, y_shape))
    zero = int(rng.integers(0, 256))
    scale = rng.uniform(1e-5, 1e-2, shape.out_channels).astype(np.float32)
    bias = rng.normal(size=shape.out_channels).astype(np.float32)
    y, dx = np.full(y_shape, np.nan, np.float32), np.full(x_shape, np.nan, np.float32)

    convolution.convolve(x, zero, 0.37, w, scale, bias, y)
    sums = convolved(x.astype(np.int64) - zero, w.astype(np.int64), shape)
    scales = scale * np.float32(0.37)
    np.testing.assert_array_equal(y, sums.astype(np.float32) * scales + bias)

    convolution.input_gradient(g, zero, 0.001, w, scale[:1], dx)
    sums = gradient(g.astype(np.int64) - zero, w.astype(np.int64), shape)
    np.testing.assert_array_equal(dx, sums.astype(np.float32) * (scale[0] * np.float32(0.001)))


LAYERS = {
    "stem of three channels": shape_of(3, 16, 11, 9, 3, 1, 1),
    "stem of seven taps": shape_of(3, 24, 21, 18, 7, 2, 3),
    "more samples than a block holds": shape_of(16, 32, 17, 17, 3, 2, 1),
    "shortcut": shape_of(16, 32, 9, 8, 1, 2, 0),
    "weights longer than a strip": shape_of(272, 17, 4, 5, 3, 2, 1),
    "winograd, even": shape_of(16, 32, 8, 8, 3, 1, 1),
    "winograd, odd": shape_of(32, 16, 7, 9, 3, 1, 1),
    "winograd without padding": shape_of(16, 16, 9, 8, 3, 1, 0),
    "winograd with more padding than taps": shape_of(16, 16, 5, 8, 3, 1, 3),
    "winograd, wide": shape_of(256, 80, 6, 6, 3, 1, 1),
    "winograd gains nothing": shape_of(16, 16, 1, 1, 3, 1, 1),
    "fully connected": shape_of(70, 10, 1, 1, 1, 1, 0),
    "grouped": shape_of(12, 40, 7, 6, 3, 2, 1, groups=4),
    "depthwise": shape_of(32, 32, 8, 7, 3, 1, 1, groups=32),
    "depthwise, stride 2, broken band": shape_of(21, 21, 9, 8, 3, 2, 1, groups=21),
    "depthwise, no tap meets some inputs": shape_of(20, 20, 5, 4, 1, 2, 0, groups=20),
    "depthwise with multiplier": shape_of(6, 18, 5, 5, 3, 1, 1, groups=6),
    "no tap meets some inputs": shape_of(5, 4, 8, 7, 1, 3, 0),
    "last inputs unseen": shape_of(4, 4, 8, 8, 3, 3, 0),
}


needs_tiles = pytest.mark.skipif(not amx.is_native(), reason="needs Intel's AMX")
EVERY_CHOICE = pytest.mark.parametrize(
    "choice",
    ["without bytes", "direct", "direct_bytes", pytest.param("matrix tiles", marks=needs_tiles)],
)


@EVERY_CHOICE
@pytest.mark.parametrize("shape", LAYERS.values(), ids=LAYERS)
def test_convolution_and_input_gradient_are_exact(shape, choice):
    check_both_directions(shape, 23, np.random.default_rng(0), choice)


@EVERY_CHOICE
@pytest.mark.parametrize("samples", [1, 2, 5])
def test_samples_of_one_pixel_may_be_fewer_than_a_tile_has(samples, choice):
    check_both_directions(
        shape_of(33, 19, 1, 1, 1, 1, 0), samples, np.random.default_rng(0), choice
    )


@EVERY_CHOICE
@settings(deadline=None, max_examples=80)
@given(data=st.data())
def test_every_geometry_is_exact(data, choice):
    draw = data.draw
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    kernel, padding = draw(st.integers(1, 7)), draw(st.integers(0, 4))
    smallest = max(1, kernel - 2 * padding)
    shape = shape_of(
        groups * draw(st.integers(1, 18)),
        groups * draw(st.integers(1, 18)),
        draw(st.integers(smallest, smallest + 8)),
        draw(st.integers(smallest, smallest + 8)),
        kernel,
        draw(st.integers(1, 3)),
        padding,
        groups,
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    check_both_directions(shape, draw(st.integers(1, 4)), rng, choice)


@pytest.mark.parametrize(
    ("shape", "methods"),
    [
        (shape_of(16, 16, 6, 7, 3, 1, 1), ["direct", "direct_bytes", "winograd"]),
        (shape_of(20, 20, 6, 7, 3, 2, 1, groups=20), ["direct", "direct_bytes", "depthwise"]),
    ],
)
def test_every_method_is_exact(shape, methods):
    for method in methods:
        check_both_directions(shape, 3, np.random.default_rng(1), method)


@EVERY_CHOICE
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("zero_point", [0, 255])
@pytest.mark.parametrize(
    "shape",
    [
        shape_of(MAX_TERMS // 16 * 16, 16, 1, 1, 1, 1, 0),
        shape_of(MAX_TERMS // 36 // 16 * 16, 16, 4, 4, 3, 1, 1),  # Winograd's limit
        shape_of(16, 16, 4, 4, 3, 1, 1, groups=16),
    ],
)
def test_largest_sums_do_not_overflow(shape, zero_point, sign, choice):
    convolution = convolution_of(shape, choice)
    w = np.full(shape.weight_shape, 127 * sign, np.int8)
    x = np.full((1, shape.height, shape.width, shape.channels), 255 - zero_point, np.uint8)
    y = np.empty((1, shape.out_height, shape.out_width, shape.out_channels), np.float32)
    ones = np.ones(shape.out_channels, np.float32)
    convolution.convolve(x, zero_point, 1.0, w, ones, None, y)
    sums = convolved(x.astype(np.int64) - zero_point, w.astype(np.int64), shape)
    np.testing.assert_array_equal(y, sums.astype(np.float32))


@EVERY_CHOICE
@settings(deadline=None, max_examples=20)
@given(zero_point=st.sampled_from([0, 1, 128, 254, 255]), seed=st.integers(0, 2**32))
def test_extreme_codes_and_weights_are_exact(zero_point, seed, choice):
    """Two products of bytes can leave 16 bits; many, begun at -z sum w, 32 bits in between."""
    terms, out = MAX_TERMS // 9, 17
    shape, rng = shape_of(terms, out, 3, 2, 3, 1, 1), np.random.default_rng(seed)
    signs = [[0.0, 1.0], [0.5, 0.5]][seed % 2]
    w = rng.choice(np.array([-127, 127], np.int8), (out, 3, 3, terms), p=signs)
    w = w.transpose(0, 3, 1, 2)
    x = rng.choice(np.array([0, 255], np.uint8), (1, 3, 2, terms))
    y, ones = np.empty((1, 3, 2, out), np.float32), np.ones(1, np.float32)
    convolution_of(shape, choice).convolve(x, zero_point, 1.0, w, ones, None, y)
    sums = convolved(x.astype(np.int64) - zero_point, w.astype(np.int64), shape)
    np.testing.assert_array_equal(y, sums.astype(np.float32))


@EVERY_CHOICE
def test_weights_may_lie_anyhow_in_memory(choice):
    shape = shape_of(16, 16, 4, 4, 3, 1, 1)
    rng = np.random.default_rng(2)
    w, x = weights_for(shape, rng), rng.integers(0, 256, (2, 4, 4, 16), dtype=np.uint8)
    convolution, ones = convolution_of(shape, choice), np.ones(1, np.float32)
    y, of_copy = np.empty((2, 2, 4, 4, 16), np.float32)
    convolution.convolve(x, 9, 1.0, w, ones, None, y)
    convolution.convolve(x, 9, 1.0, np.ascontiguousarray(w), ones, None, of_copy)
    np.testing.assert_array_equal(y, of_copy)


def test_no_samples_are_no_work():
    shape = shape_of(4, 4, 4, 4, 3, 1, 1)
    w = weights_for(shape, np.random.default_rng(0))
    x, y = np.empty((0, 4, 4, 4), np.uint8), np.empty((0, 4, 4, 4), np.float32)
    Convolution(shape).convolve(x, 0, 1.0, w, np.ones(4, np.float32), None, y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"channels": MAX_TERMS // 9 + 1}, "32 bits hold"),
        ({"groups": 3}, "can't be divided"),
        ({"kernel": 9}, "doesn't fit"),
        ({"stride": 0}, "must be > 0"),
        ({"padding": -1}, "must be >= 0"),
    ],
)
def test_impossible_shapes_are_refused(change, message):
    with pytest.raises(KernelError, match=message):
        replace(shape_of(4, 4, 4, 4, 3, 1, 1), **change)


@pytest.mark.parametrize("method", ["winograd", "depthwise"])
def test_method_that_does_not_fit_is_refused(method):
    with pytest.raises(KernelError, match="choose method direct"):
        Convolution(shape_of(8, 8, 4, 4, 3, 2, 1), method)


def test_arrays_that_do_not_fit_are_refused():
    convolve = Convolution(shape_of(4, 8, 5, 5, 3, 1, 1)).convolve
    w = np.zeros((8, 4, 3, 3), np.int8)
    x, y = np.zeros((2, 5, 5, 4), np.uint8), np.empty((2, 5, 5, 8), np.float32)
    scale = np.ones(8, np.float32)
    with pytest.raises(KernelError, match="weights are int8 of shape"):
        convolve(x, 0, 1.0, w[..., :1], scale, None, y)
    with pytest.raises(KernelError, match="codes of a convolution are int8"):
        convolve(x.view(np.int8), 0, 1.0, w, scale, None, y)
    with pytest.raises(KernelError, match="not contiguous"):
        convolve(x.transpose(0, 2, 1, 3), 0, 1.0, w, scale, None, y)
    with pytest.raises(KernelError, match="output of a convolution"):
        convolve(x, 0, 1.0, w, scale, None, y[:1])
    with pytest.raises(KernelError, match="scales of a convolution"):
        convolve(x, 0, 1.0, w, scale[:2], None, y)
    with pytest.raises(KernelError, match="biases of a convolution"):
        convolve(x, 0, 1.0, w, scale, scale[:2], y)


def test_the_probes_find_the_instructions_where_they_are():
    assert multiply_add_is_native() == has_native_instruction()
    assert dot_product_is_native() == has_dot_product()


def test_bytes_are_multiplied_where_the_processor_can():
    """16-bit products elsewhere, and for depthwise convolutions, whose sums are short."""
    ways = {"stem of three channels": Direct, "winograd, even": Winograd, "depthwise": Depthwise}
    for name, way in ways.items():
        for choice in ("with bytes", "without bytes"):
            found = convolution_of(LAYERS[name], choice)
            of_bytes = choice == "with bytes" and way is not Depthwise
            expected = Direct if of_bytes else way
            for method in (found._forward, found._gradient):
                assert type(method) is expected
                if isinstance(method, Direct):
                    assert method.tile is (QUADS if of_bytes else PAIRS)


@needs_tiles
def test_matrix_tiles_refuse_groups():
    shape = shape_of(32, 32, 7, 6, 3, 1, 1, groups=2)
    with pytest.raises(KernelError, match="one group, not 2"):
        AmxTiles(forward_tables(shape, TILE))


@needs_tiles
def test_matrix_tiles_are_used_where_their_pieces_are_long():
    for name, expected in (("winograd, odd", AmxTiles), ("stem of three channels", Direct)):
        found = Convolution(LAYERS[name])
        assert type(found._forward) is expected
    assert type(Convolution(shape_of(64, 64, 7, 6, 3, 1, 1, groups=2))._forward) is Direct


_WITHOUT = """
import numpy as np
import test_int8_convolution as tests
from edgesim.quant.kernels.products import amx
from edgesim.quant.kernels.products.native import dot_product_is_native, multiply_add_is_native

assert not multiply_add_is_native()
assert not dot_product_is_native()
assert not amx.is_native()
for name in ("winograd, odd", "depthwise, stride 2, broken band"):
    tests.check_both_directions(tests.LAYERS[name], 2, np.random.default_rng(0))
tests.check_both_directions(tests.LAYERS["grouped"], 2, np.random.default_rng(0), "direct_bytes")
"""


def test_processors_without_the_instruction_give_the_same():
    """Compiled for the plainest processor of this kind, as it would be for others."""
    environment = {
        **os.environ,
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_OPT": "1",
    }
    run = subprocess.run(
        [sys.executable, "-c", _WITHOUT],
        cwd=Path(__file__).parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
