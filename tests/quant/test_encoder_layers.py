"""Products, layer norms and embeddings in 8 bits: exact sums, gradients, both back ends."""

from __future__ import annotations

import numpy as np
import plain_quantization as plain
import pytest
import torch
from torch import nn

from edgesim.quant import encoder_autograd, layer_norm_formulas
from edgesim.quant.affine import Grid, Quantized
from edgesim.quant.backends import make_backend
from edgesim.quant.encoder_layers import (
    QuantizedEmbedding,
    QuantizedLayerNorm,
    QuantizedMatrixProduct,
)
from edgesim.quant.errors import NonFiniteError
from edgesim.quant.kernels.products import native
from edgesim.quant.layer_step import LayerStep
from edgesim.quant.layers import name_layers_, seed_rounding_

SETTINGS = plain.settings()
REFERENCE, INT8 = make_backend("reference", SETTINGS), make_backend("int8_cpu", SETTINGS)
BACKENDS = {"reference": REFERENCE, "int8_cpu": INT8}
FORMS = ("plain", "rows", "columns")


def normal(*shape, seed=1, mean=0.0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) + mean


def coded(x, arithmetic=REFERENCE):
    return arithmetic.quantize_whole(x.contiguous(), None)[0]


def named(layer, seed=3):
    model = nn.ModuleDict({"one": layer})
    name_layers_(model)
    seed_rounding_(model, seed)
    return layer


def as_matrices(a, b, form):
    """The factors as matrices to be multiplied plainly."""
    return (
        a.transpose(-1, -2) if form == "columns" else a,
        b.transpose(-1, -2) if form == "rows" else b,
    )


def stored(rows, terms, columns, form, codes):
    """Codes of both factors, each in the order of axes of a form."""
    a = codes(2, 3, *((terms, rows) if form == "columns" else (rows, terms)))
    b = codes(2, 3, *((columns, terms) if form == "rows" else (terms, columns)))
    return a, b


# --- products


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (13, 7, 17), (12, 64, 16), (32, 33, 5)])
def test_products_of_codes_are_exact_sums_of_integers_in_both_back_ends(form, sizes):
    rng = np.random.default_rng(sum(sizes))
    a, b = stored(*sizes, form, lambda *s: torch.from_numpy(rng.integers(0, 256, s, np.uint8)))
    grids = Grid(0.5, 3.0, 0.0), Grid(0.25, 200.0, 0.0)
    left, right = as_matrices(a.long() - 3, b.long() - 200, form)
    expected = (left.double() @ right.double()).float() * 0.125
    for arithmetic in BACKENDS.values():
        y = arithmetic.multiply(Quantized(a, grids[0]), Quantized(b, grids[1]), form)
        assert torch.equal(y, expected)


@pytest.mark.parametrize("zero_point", [0, 255])
def test_the_largest_sums_do_not_overflow(zero_point):
    codes = torch.full((1, 4, 256), 255 - zero_point, dtype=torch.uint8)
    x = Quantized(codes, Grid(1.0, float(zero_point), 0.0))
    for arithmetic in BACKENDS.values():
        assert arithmetic.multiply(x, x, "rows").unique().tolist() == [256 * 255**2]


def test_pairs_of_16_bits_give_the_sums_of_bytes(monkeypatch):
    """As on processors without VNNI."""
    a, b = coded(normal(2, 13, 21)), coded(normal(2, 21, 18, seed=2))
    as_bytes = INT8.multiply(a, b, "plain")
    monkeypatch.setattr(native, "dot_product_is_native", lambda: False)
    assert torch.equal(INT8.multiply(a, b, "plain"), as_bytes)


@pytest.mark.parametrize("transposed", [False, True])
def test_both_gradients_of_a_product_come_from_the_gradient_in_8_bits(transposed):
    """y = a b with the numbers of the codes; g_a = Q8(g) b^T, g_b = a^T Q8(g)."""
    a, b = normal(2, 3, 5, 8), normal(2, 3, 8, 7, seed=2)
    b = b.transpose(-1, -2).contiguous() if transposed else b
    leaves = [a.clone().requires_grad_(), b.clone().requires_grad_()]
    step = plain.step()
    codes = coded(a), coded(b)
    y = encoder_autograd.product(*leaves, codes=codes, transposed=transposed, step=step)
    g = normal(*y.shape, seed=4)
    y.backward(g)

    hats = [x.grid.dequantize(x.codes).requires_grad_() for x in codes]
    g_hat = step.requantize_gradient(g)
    assert not torch.equal(g_hat, g)
    y_hat = hats[0] @ (hats[1].transpose(-1, -2) if transposed else hats[1])
    y_hat.backward(g_hat)
    torch.testing.assert_close(y, y_hat)
    for leaf, hat in zip(leaves, hats, strict=True):
        torch.testing.assert_close(leaf.grad, hat.grad)


# --- layer norms


def test_the_formulas_of_layer_norm_are_torchs_and_their_gradients_are_finite_differences():
    """With r not rounded; in float64."""
    q, g = (normal(3, 11, seed=s).double() for s in (1, 2))
    gamma, beta = normal(11, seed=3).double(), normal(11, seed=4).double()
    factor, epsilon = 0.7, 1e-3

    def run(q, gamma, beta):
        return layer_norm_formulas.forward(q, factor, gamma, beta, epsilon, lambda r: r)

    y, saved = run(q, gamma, beta)
    expected = nn.functional.layer_norm(q * factor, (11,), gamma, beta, epsilon)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)
    gradients = layer_norm_formulas.backward(q, factor, gamma, saved, g)
    h = 1e-6
    for place, gradient in enumerate(gradients):
        arguments = [q, gamma, beta]
        for entry in range(arguments[place].numel()):
            values = []
            for sign in (1, -1):
                moved = [x.clone() for x in arguments]
                # The gradient is that at x = factor q.
                moved[place].view(-1)[entry] += sign * h / (factor if place == 0 else 1)
                values.append(float((run(*moved)[0] * g).sum()))
            difference = (values[0] - values[1]) / (2 * h)
            assert float(gradient.reshape(-1)[entry]) == pytest.approx(difference, abs=1e-7)


def test_the_scale_of_a_layer_norm_is_in_8_bits_and_its_derivative_uses_the_true_one():
    x, gamma, beta = coded(normal(4, 6, 16)), normal(16, seed=2), normal(16, seed=3)
    y, (_, r, r_hat) = REFERENCE.layer_norm(x, gamma, beta, 1e-5)
    assert r.shape == r_hat.shape == (24, 1)
    assert torch.equal(r_hat, REFERENCE.requantize_whole(r, None)[0])
    assert not torch.equal(r_hat, r)
    numbers = x.grid.dequantize(x.codes).flatten(0, 1)
    expected = (numbers - numbers.mean(1, keepdim=True)) * r_hat * gamma + beta
    torch.testing.assert_close(y.flatten(0, 1), expected)
    true = 1 / torch.sqrt(numbers.var(1, unbiased=False, keepdim=True) + 1e-5)
    torch.testing.assert_close(r, true)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_a_token_keeps_its_gradient_beside_one_that_is_ten_thousand_times_larger(backend, rounding):
    """A classifier reads one token; its gradient would take the 256 codes of all others.

    Each entry of the gradient is off by a step of its own row at most. The gradient at the input is
    linear in that at the output, row by row.
    """
    options = {
        "arithmetic": BACKENDS[backend],
        "settings": plain.settings(gradient_rounding=rounding),
    }
    layer = named(QuantizedLayerNorm(64, 1e-12, **options))
    x, g = normal(2, 5, 64).requires_grad_(), normal(2, 5, 64, seed=2)
    g[:, 0] *= 1e4
    layer(x).backward(g)
    exact = x.detach().clone().requires_grad_()
    nn.functional.layer_norm(exact, (64,), layer.weight, layer.bias, layer.eps).backward(g)
    error = (x.grad - exact.grad).norm(dim=-1)
    # A row of 64 normal entries spans about 5 deviations: a step is 0.02 of one. Codes of x and of
    # its scale add 1 %.
    assert (error / exact.grad.norm(dim=-1)).max() < 0.05


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_range_of_a_layer_norm_is_that_of_the_batch_so_that_no_input_is_clipped(backend):
    """One text has an entry far beyond those of the others, as a rare word's."""
    layer = make("layer_norm", BACKENDS[backend])
    x = normal(3, 10, 24)
    x[1, 1, 1] = 20.0
    y = layer(x)
    quantizer = layer.input
    assert (quantizer.low.item(), quantizer.high.item()) == (float(x.min()), 20.0)
    exact = nn.functional.layer_norm(x, (24,), layer.weight, layer.bias, layer.eps)
    # A step is 0.09 of a deviation of the other rows, and the scale is in 8 bits too.
    assert (y - exact).abs().max() < 0.2
    quantizer.reset_ranges()
    assert torch.equal(layer.eval()(x), y)  # before the first batch: that of the evaluated batch


@pytest.mark.parametrize("seed", [None, 0, 2**64 - 1])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 64), (40, 77), (2, 3, 700)])
def test_rows_have_equal_codes_and_grids_in_both_back_ends(shape, seed):
    """Rows of odd lengths end within a block of the noise."""
    x = normal(*shape) * torch.logspace(-12, 3, shape[0]).view(-1, *[1] * (len(shape) - 1))
    (ours, extremes), (theirs, expected) = (
        arithmetic.quantize_by_rows(x, seed) for arithmetic in (INT8, REFERENCE)
    )
    assert extremes == expected == (float(x.min()), float(x.max()))
    assert torch.equal(ours.codes, theirs.codes)
    assert torch.equal(ours.grids, theirs.grids)
    assert torch.equal(ours.dequantize(), theirs.dequantize())


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("row", [0, 2])
def test_a_gradient_of_a_layer_norm_that_is_not_finite_is_told_with_the_layer(bad, row):
    for arithmetic in BACKENDS.values():
        layer = make("layer_norm", arithmetic)
        y = layer(normal(3, 24).requires_grad_())
        g = torch.ones_like(y)
        g[row, 5] = bad
        with pytest.raises(NonFiniteError, match="one"):
            y.backward(g)


# --- embeddings


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_of_an_embedding_have_scales_of_their_own_and_an_exact_gradient(backend):
    options = {"arithmetic": BACKENDS[backend], "settings": SETTINGS}
    layer = named(QuantizedEmbedding(6, 4, 0, **options))
    with torch.no_grad():
        layer.weight.mul_(torch.tensor([1.0, 10.0, 0.1, 100.0, 1.0, 0.0])[:, None])
    tokens = torch.tensor([[1, 3, 1], [2, 5, 0]])
    y = layer(tokens)
    for token, row in zip(tokens.flatten().tolist(), y.flatten(0, 1), strict=True):
        k, scale = plain.weight_codes(
            layer.weight[token].detach().numpy().reshape(1, 4, 1, 1), per_out_channel=True
        )
        np.testing.assert_array_equal(row.detach().numpy(), (k * scale).astype(np.float32).ravel())
    g = normal(*y.shape)
    y.backward(g)
    expected = torch.zeros(6, 4)
    expected.index_add_(0, tokens.flatten(), g.flatten(0, 1))
    expected[0] = 0  # padding is not trained
    assert torch.equal(layer.weight.grad, expected)


def test_a_row_that_is_not_in_use_may_hold_anything():
    options = {"arithmetic": INT8, "settings": SETTINGS}
    layer = named(QuantizedEmbedding(3, 4, None, **options))
    with torch.no_grad():
        layer.weight[2] = torch.nan
    assert layer(torch.tensor([0, 1])).isfinite().all()
    with pytest.raises(NonFiniteError, match="one"):
        layer(torch.tensor([2]))


@pytest.mark.parametrize("token", [-1, 3])
def test_a_token_that_has_no_row_is_refused(token):
    """A negative index would be a row from the end of the table."""
    layer = named(QuantizedEmbedding(3, 4, None, arithmetic=INT8, settings=SETTINGS))
    with pytest.raises(IndexError, match=rf"a token is {token}; the table has rows 0 to 2"):
        layer(torch.tensor([0, token]))


# --- both back ends


def make(kind, arithmetic, **changes):
    options = {"arithmetic": arithmetic, "settings": plain.settings(**changes)}
    match kind:
        case "scores" | "context":
            layer = QuantizedMatrixProduct(transposed=kind == "scores", **options)
        case "layer_norm":
            layer = QuantizedLayerNorm(24, 1e-12, **options)
        case "embedding":
            layer = QuantizedEmbedding(30, 24, 0, **options)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0.5, 0.3, generator=generator)
    return named(layer)


def inputs_of(kind, seed):
    if kind == "embedding":
        generator = torch.Generator().manual_seed(seed)
        return [torch.randint(0, 30, (3, 10), generator=generator)]
    if kind == "layer_norm":
        return [normal(3, 10, 24, seed=seed)]
    # Views, as attention has them: (N, T, heads, size) with heads before T.
    a, b = (normal(3, 10, 2, 12, seed=seed + i).transpose(1, 2) for i in range(2))
    if kind == "context":
        a = torch.softmax(normal(3, 2, 10, 10, seed=seed), -1)
    return [a, b]


@pytest.mark.parametrize("kind", ["scores", "context", "layer_norm", "embedding"])
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_both_back_ends_give_equal_layers(kind, rounding):
    """Results and gradients of two steps, and an evaluation; floats to rounding."""
    results = []
    for arithmetic in (REFERENCE, INT8):
        layer = make(kind, arithmetic, activation_rounding=rounding)
        found = []
        for seed in (0, 5):
            xs = [x.requires_grad_() if x.is_floating_point() else x for x in inputs_of(kind, seed)]
            y = layer(*xs)
            leaves = [x for x in xs if x.requires_grad] + list(layer.parameters())
            found += [y.detach(), *torch.autograd.grad(y, leaves, normal(*y.shape, seed=9))]
        found += [b.clone() for b in layer.buffers()]
        found.append(layer.eval()(*inputs_of(kind, 7)).detach())
        results.append(found)
    for expected, actual in zip(*results, strict=True):
        scale = float(expected.abs().max())
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5 * scale)


@pytest.mark.parametrize("kind", ["scores", "layer_norm"])
def test_numbers_that_are_not_finite_are_told_with_the_layer(kind):
    layer = make(kind, INT8)
    xs = inputs_of(kind, 0)
    xs[0][0, 0] = torch.inf
    with pytest.raises(NonFiniteError, match="one"):
        layer(*xs)


def test_layer_step_is_what_the_quantizers_use():
    layer = make("scores", REFERENCE)
    assert isinstance(layer.input.layer_step(), LayerStep)
    assert layer.input.layer_step().seed != layer.second.layer_step().seed
