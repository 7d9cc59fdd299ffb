"""The compiled Range EvoNorm in fp32 against the torch operations, which have their own tests."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_evonorm import random_inputs

from edgesim.models.compiled_range_evonorm import compiled_range_evonorm
from edgesim.models.range_norms import RangeEvoNorm, by_torch_operations
from edgesim.quant.arithmetic import RangeNormShape
from edgesim.quant.range_evonorm_formulas import chunks_of

GATES = ["sigmoid", "hard_sigmoid"]
SIZES = st.tuples(
    st.integers(1, 3),  # N
    st.sampled_from([1, 2, 8]),  # G
    st.integers(1, 5),  # K
    st.integers(1, 9),  # H
    st.integers(2, 9),  # W
    st.integers(0, 2**31),  # seed
)


def shape_of(x, groups):
    return RangeNormShape(groups, chunks_of(x[0].numel() // groups))


def compiled(x, gamma, beta, v, groups, gate):
    return compiled_range_evonorm(x, v, gamma, beta, shape_of(x, groups), gate)


def by_torch(x, gamma, beta, v, groups, gate):
    return by_torch_operations(x, v, gamma, beta, shape_of(x, groups), gate)


def gradients_agree(inputs, sizes, gate, *, rtol=0.0, atol=1e-3):
    """Outputs and gradients of the kernel in fp32 are those of torch in fp64."""
    doubles = [tensor.double().requires_grad_() for tensor in inputs]
    singles = [tensor.float().requires_grad_() for tensor in inputs]
    upstream = random_inputs(*sizes[:-1], sizes[-1] + 1)[0]
    y = compiled(*singles, sizes[1], gate)
    exact = by_torch(*doubles, sizes[1], gate)
    torch.testing.assert_close(y.double(), exact, rtol=1e-4, atol=1e-4)
    ours = torch.autograd.grad(y, singles, upstream.float())
    expected = torch.autograd.grad(exact, doubles, upstream)
    for gradient, wanted in zip(ours, expected, strict=True):
        scale = wanted.abs().max().item() + 1
        torch.testing.assert_close(gradient.double(), wanted, rtol=rtol, atol=atol * scale)


@given(SIZES, st.sampled_from(GATES))
def test_it_gives_what_the_torch_operations_give_in_fp64(sizes, gate):
    x, *scales = random_inputs(*sizes)
    # Equal in both precisions, so that both see the same side of the gate's corners.
    x = x.float().double() + torch.where(x > 0, 0.25, -0.25)
    gradients_agree([x, *(scale.float().double() for scale in scales)], sizes, gate)


@given(SIZES, st.sampled_from(GATES))
def test_of_equal_extremes_the_first_one_has_the_gradient(sizes, gate):
    """Whole numbers from -1 to 1: most chunks have several. Slopes of 1 keep inside the gate."""
    x, gamma, beta, v = random_inputs(*sizes)
    gradients_agree([x.round().clamp(-1, 1), gamma, beta, torch.ones_like(v)], sizes, gate)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("size", [(32, 16, 32), (32, 32, 16), (32, 64, 8)])
def test_sizes_of_a_resnet_20(size, gate):
    N, C, H = size
    sizes = (N, 8, C // 8, H, H, 7)
    x, *scales = random_inputs(*sizes)
    gradients_agree([x.float().double(), *(s.float().double() for s in scales)], sizes, gate)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_not_finite_spoils_its_group_and_no_other(value, gate):
    """So that a run that diverged is seen."""
    x, *scales = random_inputs(2, 4, 2, 3, 3, 0, dtype=torch.float32)
    x[1, 3, 2, 1] = value
    spoilt = compiled(x, *scales, 4, gate).isfinite().logical_not()
    assert spoilt[1, 2:4].all()
    spoilt[1, 2:4] = False
    assert not spoilt.any()


@pytest.mark.parametrize("gate", GATES)
def test_chunks_of_values_that_are_no_numbers_have_gradients_that_are_none(gate):
    x, *scales = random_inputs(1, 2, 2, 4, 4, 0, dtype=torch.float32)
    x[0, :2] = float("nan")
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(compiled(x, *scales, 2, gate).sum(), x)
    assert gradient[0, :2].isnan().all()
    assert gradient[0, 2:].isfinite().all()


def test_sums_of_many_rows_are_exact_enough():
    """Each lane has 8,192 rows; in float32 alone their sum would lose 3 to 4 digits more."""
    inputs = random_inputs(1, 2, 1, 512, 1024, 1)
    upstream = random_inputs(1, 2, 1, 512, 1024, 2)[0] + 1
    singles = [tensor.float().requires_grad_() for tensor in inputs]
    doubles = [tensor.requires_grad_() for tensor in inputs]
    ours = torch.autograd.grad(compiled(*singles, 2, "sigmoid"), singles[1:], upstream.float())
    exact = torch.autograd.grad(by_torch(*doubles, 2, "sigmoid"), doubles[1:], upstream)
    for gradient, expected in zip(ours, exact, strict=True):
        torch.testing.assert_close(gradient.double(), expected, rtol=2e-6, atol=0.5)


@given(SIZES, st.sampled_from(GATES))
def test_memory_layout_changes_no_bit(sizes, gate):
    x, *scales = random_inputs(*sizes, dtype=torch.float32)
    plain = x.clone().requires_grad_()
    last = x.clone(memory_format=torch.channels_last).requires_grad_()
    outputs = [compiled(tensor, *scales, sizes[1], gate) for tensor in (plain, last)]
    gradients = [
        torch.autograd.grad(y, tensor, x)[0]
        for y, tensor in zip(outputs, (plain, last), strict=True)
    ]
    assert torch.equal(*outputs)
    assert torch.equal(*gradients)


def test_of_the_input_s_size_the_input_alone_is_saved():
    x, *scales = random_inputs(4, 8, 2, 8, 8, 0, dtype=torch.float32)
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        y = compiled(x, *scales, 8, "sigmoid")
    (large,) = (tensor for tensor in saved if tensor.numel() == x.numel())
    assert large.data_ptr() == x.data_ptr()
    assert y.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("gate", GATES)
def test_backward_leaves_what_is_saved_untouched(gate):
    """So that a graph can be used twice."""
    inputs = [t.requires_grad_() for t in random_inputs(2, 2, 2, 3, 3, 0, torch.float32)]
    y = compiled(*inputs, 2, gate).square().sum()
    first = torch.autograd.grad(y, inputs, retain_graph=True)
    second = torch.autograd.grad(y, inputs)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(("dtype", "is_compiled"), [(torch.float32, True), (torch.float64, False)])
def test_the_module_takes_the_kernel_in_fp32(dtype, is_compiled):
    norm = RangeEvoNorm(8, groups=4, gate="sigmoid").to(dtype)
    y = norm(torch.randn(2, 8, 4, 4, dtype=dtype).requires_grad_())
    assert ("Compiled" in y.grad_fn.name()) == is_compiled
