"""The compiled EvoNorm-S0 against the torch operations, which have tests of their own."""

import pytest
import torch
from hypothesis import given
from test_evonorm import SIZES, formula, random_inputs

from edgesim.models import evonorm_s0
from edgesim.models.compiled_evonorm import compiled_evonorm_s0
from edgesim.models.evonorm import EPSILON


def compiled(x, gamma, beta, v, groups):
    return compiled_evonorm_s0(x, gamma, beta, v, groups, EPSILON)


@given(SIZES)
def test_it_gives_what_the_torch_operations_give_in_fp64(sizes):
    inputs = [tensor.requires_grad_() for tensor in random_inputs(*sizes)]
    singles = [tensor.detach().float().requires_grad_() for tensor in inputs]
    upstream = random_inputs(*sizes[:-1], sizes[-1] + 1)[0]
    y, exact = compiled(*singles, sizes[1]), evonorm_s0(*inputs, sizes[1])
    # Where a group has a single entry, or close ones, 1 / deviation multiplies every error by 300.
    torch.testing.assert_close(y.double(), exact, rtol=1e-4, atol=1e-4)
    ours = torch.autograd.grad(y, singles, upstream.float())
    expected = torch.autograd.grad(exact, inputs, upstream)
    for gradient, wanted in zip(ours, expected, strict=True):
        scale = wanted.abs().max().item() + 1
        torch.testing.assert_close(gradient.double(), wanted, rtol=0, atol=1e-3 * scale)


@pytest.mark.parametrize("slope", [-100.0, -20.0, -1.0, 0.0, 1.0, 20.0, 100.0])
def test_its_gate_is_the_sigmoid(slope):
    x = torch.linspace(-4, 4, 2 * 8 * 25).reshape(2, 8, 5, 5)
    ones, zeros = torch.ones(8), torch.zeros(8)
    y = compiled(x, ones, zeros, torch.full((8,), slope), 8).double()
    expected = formula(x.double(), ones.double(), zeros.double(), slope * ones.double(), 8)
    torch.testing.assert_close(y, expected, rtol=3e-6, atol=1e-30)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_spoils_its_group_and_no_other(value):
    """So that a run that diverged is seen."""
    x, gamma, beta, v = random_inputs(2, 4, 2, 3, 3, 0, dtype=torch.float32)
    x[1, 3, 2, 1] = value
    spoilt = compiled(x, gamma, beta, v, 4).isfinite().logical_not()
    assert spoilt[1, 3, 2, 1]
    spoilt[1, 2:4] = False
    assert not spoilt.any()


def test_sums_of_many_rows_are_exact_enough():
    """Each lane has 8,192 rows; in float32 alone their sum would lose 3 to 4 digits more."""
    inputs = random_inputs(1, 2, 1, 512, 1024, 1)
    upstream = random_inputs(1, 2, 1, 512, 1024, 2)[0] + 1
    singles = [tensor.float().requires_grad_() for tensor in inputs]
    doubles = [tensor.requires_grad_() for tensor in inputs]
    ours = torch.autograd.grad(compiled(*singles, 2), singles[1:], upstream.float())
    exact = torch.autograd.grad(evonorm_s0(*doubles, 2), doubles[1:], upstream)
    for gradient, expected in zip(ours, exact, strict=True):
        torch.testing.assert_close(gradient.double(), expected, rtol=2e-6, atol=0.5)


@given(SIZES)
def test_memory_layout_changes_no_bit(sizes):
    x, *scales = random_inputs(*sizes, dtype=torch.float32)
    plain = x.clone().requires_grad_()
    last = x.clone(memory_format=torch.channels_last).requires_grad_()
    outputs = [compiled(tensor, *scales, sizes[1]) for tensor in (plain, last)]
    gradients = [
        torch.autograd.grad(y, tensor, x)[0]
        for y, tensor in zip(outputs, (plain, last), strict=True)
    ]
    assert torch.equal(*outputs)
    assert torch.equal(*gradients)


def test_a_large_mean_does_not_drown_the_variance():
    """In fp32, E[x^2] - E[x]^2 has an error of about 1e6 * 2^-24 here, of the variance's order."""
    x, gamma, beta, v = random_inputs(2, 8, 2, 16, 16, 5)
    x = (1000 + 0.3 * x).float()
    ours = compiled(x, gamma.float(), beta.float(), v.abs().float(), 8)
    expected = formula(x.double(), gamma, beta, v.abs(), 8)
    torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=1e-5)


def test_two_tensors_of_the_inputs_size_are_saved_and_the_input_is_one_of_them():
    x, *scales = random_inputs(4, 8, 2, 8, 8, 0, dtype=torch.float32)
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        y = compiled(x, *scales, 8)
    large = [tensor for tensor in saved if tensor.numel() == x.numel()]
    assert len(large) == 2
    assert large[0].data_ptr() == x.data_ptr()
    assert y.is_contiguous(memory_format=torch.channels_last)


def test_backward_leaves_what_is_saved_untouched():
    """So that a graph can be used twice."""
    inputs = [t.requires_grad_() for t in random_inputs(2, 2, 2, 3, 3, 0, torch.float32)]
    y = compiled(*inputs, 2).square().sum()
    first = torch.autograd.grad(y, inputs, retain_graph=True)
    second = torch.autograd.grad(y, inputs)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
