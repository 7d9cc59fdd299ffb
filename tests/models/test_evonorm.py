"""EvoNorm-S0 in torch operations against the formula of reference.md, and its gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgesim.models import EvoNormS0, ModelError, evonorm_s0

SIZES = st.tuples(
    st.integers(1, 3),  # N
    st.sampled_from([1, 2, 8]),  # G
    st.integers(1, 3),  # K
    st.integers(1, 5),  # H
    st.integers(1, 5),  # W
    st.integers(0, 2**31),  # seed
)


def formula(x_NCHW, gamma, beta, v, groups):
    """y = x sigmoid(v x) / sqrt(Var + eps) gamma + beta, sample by sample and group by group."""
    y = torch.empty_like(x_NCHW)
    for n, sample in enumerate(x_NCHW):
        for channels in torch.arange(len(v)).chunk(groups):
            variance = sample[channels].var(correction=0)
            for c in channels:
                x = sample[c]
                y[n, c] = (
                    x * torch.sigmoid(v[c] * x) / (variance + 1e-5).sqrt() * gamma[c] + beta[c]
                )
    return y


def random_inputs(N, G, K, H, W, seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(N, G * K, H, W), (G * K,), (G * K,), (G * K,)]
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


@given(SIZES)
def test_output_is_the_formula(sizes):
    inputs = random_inputs(*sizes)
    torch.testing.assert_close(evonorm_s0(*inputs, sizes[1]), formula(*inputs, sizes[1]))


@pytest.mark.parametrize("sizes", [(2, 8, 2, 3, 2, 0), (3, 2, 3, 1, 4, 1), (2, 4, 2, 1, 1, 2)])
def test_gradients_are_those_of_finite_differences(sizes):
    inputs = [tensor.requires_grad_() for tensor in random_inputs(*sizes)]
    assert torch.autograd.gradcheck(lambda *tensors: evonorm_s0(*tensors, sizes[1]), inputs)


def test_gradients_hold_where_gamma_or_v_is_zero():
    """Zero-initialised scales are common; nothing may be divided by them."""
    x, gamma, beta, v = random_inputs(2, 2, 2, 3, 3, 0)
    inputs = [x, torch.zeros_like(gamma), beta, torch.zeros_like(v)]
    for tensor in inputs:
        tensor.requires_grad_()
    assert torch.autograd.gradcheck(lambda *tensors: evonorm_s0(*tensors, 2), inputs)


def test_gradients_in_fp32_are_those_of_autograd_in_fp64():
    inputs = random_inputs(4, 8, 2, 9, 7, 3)
    upstream = random_inputs(4, 8, 2, 9, 7, 4)[0]
    singles = [tensor.float().requires_grad_() for tensor in inputs]
    doubles = [tensor.requires_grad_() for tensor in inputs]
    ours = torch.autograd.grad(evonorm_s0(*singles, 8), singles, upstream.float())
    exact = torch.autograd.grad(formula(*doubles, 8), doubles, upstream)
    for gradient, expected in zip(ours, exact, strict=True):
        # Sums of a few hundred terms of order 1, each rounded to 2^-24.
        torch.testing.assert_close(gradient.double(), expected, rtol=1e-5, atol=1e-4)


def test_a_large_mean_does_not_drown_the_variance():
    """In fp32, E[x^2] - E[x]^2 has an error of about 1e6 * 2^-24 here, of the variance's order."""
    x, gamma, beta, v = random_inputs(2, 8, 2, 16, 16, 5)
    x = (1000 + 0.3 * x).float()
    ours = evonorm_s0(x, gamma.float(), beta.float(), v.abs().float(), 8)
    expected = formula(x.double(), gamma, beta, v.abs(), 8)
    torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=1e-5)


@given(SIZES)
def test_memory_layout_changes_no_bit(sizes):
    x, *scales = random_inputs(*sizes, dtype=torch.float32)
    plain = x.clone().requires_grad_()
    last = x.clone(memory_format=torch.channels_last).requires_grad_()
    outputs = [evonorm_s0(tensor, *scales, sizes[1]) for tensor in (plain, last)]
    gradients = [
        torch.autograd.grad(y, tensor, x)[0]
        for y, tensor in zip(outputs, (plain, last), strict=True)
    ]
    assert torch.equal(*outputs)
    assert torch.equal(*gradients)


def test_output_is_channels_last():
    x, *scales = random_inputs(2, 8, 2, 4, 4, 0)
    assert evonorm_s0(x, *scales, 8).is_contiguous(memory_format=torch.channels_last)


def test_two_tensors_of_the_inputs_size_are_saved_and_the_input_is_one_of_them():
    layer = EvoNormS0(16)
    x = torch.randn((4, 16, 8, 8), generator=torch.Generator().manual_seed(0))
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        layer(x)
    large = [tensor for tensor in saved if tensor.numel() == x.numel()]
    assert len(large) == 2
    assert large[0].data_ptr() == x.data_ptr()


def test_backward_leaves_what_is_saved_untouched():
    """So that a graph can be used twice."""
    inputs = [t.requires_grad_() for t in random_inputs(2, 2, 2, 3, 3, 0)]
    y = evonorm_s0(*inputs, 2).square().sum()
    first = torch.autograd.grad(y, inputs, retain_graph=True)
    second = torch.autograd.grad(y, inputs)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("side", "dtype", "is_compiled"),
    [(16, torch.float32, True), (15, torch.float32, False), (16, torch.float64, False)],
)
def test_large_images_in_fp32_take_the_kernel(side, dtype, is_compiled):
    inputs = random_inputs(2, 8, 2, side, side, 0, dtype)  # 16 channels: 4,096 entries from 16 on
    inputs[0].requires_grad_()
    y = evonorm_s0(*inputs, 8)
    assert ("Compiled" in y.grad_fn.name()) == is_compiled


def test_channels_that_do_not_fit_the_groups_are_refused():
    with pytest.raises(ModelError, match="12 channels"):
        EvoNormS0(12)
