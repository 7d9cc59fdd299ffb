"""Range EvoNorm and Range BatchNorm against their formulas, written out, in float64.

Source: reference.md, section 2.

reference.md, section 10 check 8: the ratio of the estimated to the true deviation. reference.md,
section 10 check 17: Range EvoNorm is EvoNorm-S0 but for this ratio and the gate.
"""

from __future__ import annotations

from math import erf, log, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_range_norms import (
    EPSILON,
    plain_range_batch_norm,
    plain_range_evonorm,
    random_inputs,
    ratio,
)

from edgesim.models.evonorm import evonorm_s0
from edgesim.models.range_norms import RangeBatchNormReLU, RangeEvoNorm
from edgesim.quant import range_batch_norm_formulas as range_batch_norm
from edgesim.quant.range_evonorm_formulas import chunks_of, kappa

GATES = pytest.mark.parametrize("gate", ["sigmoid", "hard_sigmoid"])


def module_of(norm, parameters):
    """A norm of edgesim with given parameters, in their type."""
    norm = norm.to(parameters[0].dtype)
    with torch.no_grad():
        for name, value in zip(("v", "gamma", "beta")[-len(parameters) :], parameters, strict=True):
            getattr(norm, name).copy_(value)
    return norm


def run_evonorm(inputs, groups, gate, upstream):
    """Output and gradients of the module in fp32 or fp64."""
    x, v, gamma, beta = inputs
    norm = module_of(RangeEvoNorm(len(v), groups=groups, gate=gate), [v, gamma, beta])
    x = x.clone().requires_grad_()
    y = norm(x)
    return y, torch.autograd.grad(y, [x, norm.v, norm.gamma, norm.beta], upstream)


def run_plain_evonorm(inputs, groups, gate, upstream):
    leaves = [t.double().requires_grad_() for t in inputs]
    chunks = chunks_of(leaves[0][0].numel() // groups)
    y = plain_range_evonorm(*leaves, groups, chunks, gate)
    return y, torch.autograd.grad(y, leaves, upstream.double())


# --- the estimate of the deviation


def mean_range_of_gaussians(entries):
    """E[max - min] of independent standard Gaussian numbers: integral of 1 - F^M - (1 - F)^M."""
    t = np.linspace(-9, 9, 18_001)
    F = np.array([0.5 * (1 + erf(x / sqrt(2))) for x in t])
    return np.trapezoid(1 - F**entries - (1 - F) ** entries, t)


# reference.md, section 2
RATIOS = {16: 0.811, 32: 0.849, 64: 0.878, 128: 0.900, 512: 0.931, 2048: 0.952}


@pytest.mark.parametrize(("entries", "expected"), RATIOS.items())
def test_kappa_times_the_range_of_gaussians_has_the_ratios_of_the_reference(entries, expected):
    """reference.md, section 10 check 8, by integration; R gives three digits, measured: two units
    of the last."""
    assert kappa(entries) * mean_range_of_gaussians(entries) == pytest.approx(expected, abs=2e-3)
    assert kappa(entries) == pytest.approx(0.540208 / sqrt(2 * log(entries)), rel=1e-6)


@pytest.mark.parametrize(("entries", "expected"), RATIOS.items())
def test_estimated_deviation_of_gaussian_data_has_these_ratios(entries, expected):
    """reference.md, section 10 check 8, measured through the norm: with slope 0 the sigmoid is 1/2
    everywhere.

    The mean of independent groups deviates by their deviation / sqrt(groups).
    """
    groups, deviation, samples = 8, 3.0, max(4, 2**13 // entries)
    generator = torch.Generator().manual_seed(entries)
    x = deviation * torch.randn((samples, groups, 16, entries), generator=generator)
    norm = module_of(
        RangeEvoNorm(groups, groups=groups, gate="sigmoid"),
        [torch.zeros(groups), torch.ones(groups), torch.zeros(groups)],
    )
    sizes = [t.detach().flatten(2).abs().amax(2) for t in (0.5 * x, norm(x))]
    estimates = (sizes[0] / sizes[1]).double() / deviation
    error = 5 * float(estimates.std()) / sqrt(estimates.numel())
    assert float(estimates.mean()) == pytest.approx(expected, abs=error + 1e-3)


# --- chunks


def test_a_group_is_cut_into_16_chunks():
    for side, channels, expected in [(32, 2, 128), (16, 4, 64), (8, 8, 32), (2, 64, 16)]:
        entries = side * side * channels
        assert chunks_of(entries) == 16
        # M of reference.md, section 2 for ResNet-20, and of VGG-11's last stage
        assert entries // 16 == expected


def test_seven_by_seven_pixels_are_cut_into_14_chunks():
    """reference.md, section 2: MobileNet at 224 pixels, unless 16 divides the channels of a
    group."""
    assert chunks_of(7 * 7 * 8) == 14
    assert chunks_of(7 * 7 * 12) == 14
    assert chunks_of(7 * 7 * 16) == 16


@given(st.integers(2, 10_000))
def test_chunks_are_the_most_up_to_16_of_equal_length_with_a_range(entries):
    chunks = chunks_of(entries)
    fit = [p for p in range(1, 17) if entries % p == 0 and entries // p >= 2]
    assert chunks == max(fit)


@pytest.mark.parametrize("entries", [0, 1])
def test_a_group_of_one_entry_is_refused(entries):
    with pytest.raises(ValueError, match="range"):
        chunks_of(entries)


def test_a_norm_of_one_entry_a_group_is_refused():
    with pytest.raises(ValueError, match="group of 1 entries"):
        RangeEvoNorm(8, groups=8, gate="sigmoid")(torch.ones(2, 8, 1, 1))
    with pytest.raises(ValueError, match="single value"):
        RangeBatchNormReLU(8)(torch.ones(1, 8, 1, 1))


@given(st.integers(2, 5_000))
def test_a_channel_of_a_batch_is_cut_into_16_chunks_of_at_least_two(entries):
    chunks, length = range_batch_norm.chunking(entries)
    assert 1 <= chunks <= 16
    assert length >= 2
    assert chunks * length <= entries < chunks * (length + 1)
    assert chunks == 16 or entries < 32


# --- Range EvoNorm in floats

SHAPES = [(2, 8, 4, 4), (1, 16, 3, 5), (3, 8, 7, 7), (2, 24, 1, 2), (1, 64, 7, 7), (2, 16, 8, 8)]


@GATES
@pytest.mark.parametrize("shape", SHAPES)
def test_range_evonorm_is_the_formula_with_its_gradients(shape, gate):
    inputs = random_inputs(*shape)
    upstream = random_inputs(*shape, seed=1)[0]
    y, gradients = run_evonorm(inputs, 8, gate, upstream)
    expected, expected_gradients = run_plain_evonorm(inputs, 8, gate, upstream)
    torch.testing.assert_close(y, expected)
    for ours, exact in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-9, atol=1e-9)


@GATES
@settings(max_examples=25)
@given(
    sizes=st.tuples(*[st.integers(1, n) for n in (3, 3, 6, 6)]),
    groups=st.sampled_from([1, 2, 8]),
    seed=st.integers(0, 99),
)
def test_range_evonorm_of_any_shape_is_the_formula(gate, sizes, groups, seed):
    samples, per_group, height, width = sizes
    if per_group * height * width < 2:
        return
    shape = (samples, groups * per_group, height, width)
    inputs, upstream = random_inputs(*shape, seed), random_inputs(*shape, seed + 100)[0]
    y, gradients = run_evonorm(inputs, groups, gate, upstream)
    expected, expected_gradients = run_plain_evonorm(inputs, groups, gate, upstream)
    torch.testing.assert_close(y, expected)
    for ours, exact in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-8, atol=1e-8)


@GATES
def test_range_evonorm_in_fp32_is_that_of_fp64_to_rounding(gate):
    inputs = random_inputs(4, 16, 9, 7, dtype=torch.float32)
    upstream = random_inputs(4, 16, 9, 7, seed=1)[0].float()
    y, gradients = run_evonorm(inputs, 8, gate, upstream)
    expected, expected_gradients = run_plain_evonorm(inputs, 8, gate, upstream)
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)
    for ours, exact in zip(gradients, expected_gradients, strict=True):
        # Sums of a few hundred terms of order 1, each rounded to 2^-24.
        torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=1e-4)


@GATES
def test_gradients_of_range_evonorm_are_those_of_finite_differences(gate):
    inputs = [t.requires_grad_() for t in random_inputs(2, 8, 3, 2)]

    def norm(x, v, gamma, beta):
        module = RangeEvoNorm(8, groups=4, gate=gate).double()
        for name in ("v", "gamma", "beta"):
            delattr(module, name)
        module.v, module.gamma, module.beta = v, gamma, beta
        return module(x)

    assert torch.autograd.gradcheck(norm, inputs)


def in_both_layouts(run):
    """What `run` gives for the same activations and upstream gradient in two memory layouts."""
    inputs = random_inputs(3, 16, 5, 4, dtype=torch.float32)
    upstream = random_inputs(3, 16, 5, 4, seed=1)[0].float()
    results = []
    for layout in (torch.contiguous_format, torch.channels_last):
        own = [inputs[0].contiguous(memory_format=layout), *inputs[1:]]
        y, gradients = run(own, upstream.contiguous(memory_format=layout))
        results.append([y, *gradients])
    return results


@GATES
def test_memory_layout_changes_no_bit_of_range_evonorm(gate):
    results = in_both_layouts(lambda inputs, g: run_evonorm(inputs, 8, gate, g))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_memory_layout_changes_no_bit_of_range_batch_norm():
    results = in_both_layouts(lambda inputs, g: run_batch_norm(inputs, g)[1:])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@GATES
def test_range_evonorm_is_evonorm_but_for_the_ratio_and_the_gate(gate):
    """reference.md, section 10 check 17: entry by entry with the ratio of each group's two
    deviations, and on average the ratio of reference.md, section 2 for chunks of 128 Gaussian
    numbers."""
    generator = torch.Generator().manual_seed(4)
    x = torch.randn((16, 16, 32, 32), generator=generator, dtype=torch.float64)
    ones, zeros = torch.ones(16, dtype=torch.float64), torch.zeros(16, dtype=torch.float64)
    norm = module_of(RangeEvoNorm(16, groups=8, gate=gate), [ones, ones, zeros])
    quotient = norm(x).detach() / evonorm_s0(x, ones, zeros, ones, 8)
    if gate == "hard_sigmoid":
        beyond = x <= -3  # where this gate is shut
        assert quotient[beyond].eq(0).all()
        gates = ((x + 3) / 6).clamp(0, 1) / torch.sigmoid(x)
        quotient, kept = quotient / gates, ~beyond
    else:
        kept = torch.ones_like(x, dtype=torch.bool)
    by_group, kept = quotient.reshape(16, 8, -1), kept.reshape(16, 8, -1)
    ratios = torch.nanmean(torch.where(kept, by_group, torch.nan), dim=2)
    spread = torch.where(kept, by_group - ratios[:, :, None], 0.0)
    assert spread.abs().max() < 1e-9
    error = 5 * float(ratios.std()) / sqrt(ratios.numel())
    assert float((1 / ratios).mean()) == pytest.approx(RATIOS[128], abs=error + 1e-3)


def tied(shape):
    """Inputs of whole numbers from -2 to 2: each chunk has its extremes several times."""
    inputs = random_inputs(*shape)
    return [inputs[0].round().clamp(-2, 2), *inputs[1:]], random_inputs(*shape, seed=1)[0]


@GATES
def test_the_first_of_equal_extremes_is_taken_by_range_evonorm(gate):
    """In the order of channel, height, width: gradients must not depend on who looks for them."""
    inputs, upstream = tied((3, 8, 4, 6))
    _, gradients = run_evonorm(inputs, 4, gate, upstream)
    _, expected = run_plain_evonorm(inputs, 4, gate, upstream)
    torch.testing.assert_close(gradients[0], expected[0], rtol=1e-9, atol=1e-9)


def test_the_first_of_equal_extremes_is_taken_by_range_batch_norm():
    """In the order of sample, height, width."""
    inputs, upstream = tied((3, 8, 4, 6))
    *_, gradients = run_batch_norm(inputs, upstream)
    leaves = [t.requires_grad_() for t in (inputs[0], *inputs[2:])]
    exact = torch.autograd.grad(plain_range_batch_norm(*leaves)[0], leaves, upstream)
    torch.testing.assert_close(gradients[0], exact[0], rtol=1e-9, atol=1e-9)


def test_the_gradient_of_tied_extremes_goes_to_the_first():
    """By hand."""
    x = torch.tensor([1.0, 5.0, 5.0, -2.0, 0.0, -2.0, 5.0, 1.0]).view(1, 1, 2, 4)
    norm = module_of(
        RangeEvoNorm(1, groups=1, gate="sigmoid"), [torch.zeros(1), torch.ones(1), torch.zeros(1)]
    )
    x.requires_grad_()
    assert chunks_of(8) == 4
    # Chunks (1, 5), (5, -2), (0, -2), (5, 1): extremes by place, then what each entry of y = x s/2
    # adds to the scale's gradient.
    norm(x).sum().backward()
    R = (5 + 5 + 0 + 5 - (1 - 2 - 2 + 1)) / 4
    s = 1 / (ratio(2) * R + EPSILON)
    g_R = 0.5 * 13 * -(s**2) * ratio(2) / 4  # x sums to 13
    expected = s / 2 + g_R * torch.tensor([-1.0, 1, 1, -1, 1, -1, 1, -1])
    torch.testing.assert_close(x.grad.flatten(), expected)


# --- Range BatchNorm in floats


def run_batch_norm(inputs, upstream):
    x, _, gamma, beta = inputs
    norm = module_of(RangeBatchNormReLU(len(gamma)), [gamma, beta])
    x = x.clone().requires_grad_()
    y = norm(x)
    return norm, y, torch.autograd.grad(y, [x, norm.gamma, norm.beta], upstream)


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (1, 8, 3, 5), (5, 2, 1, 1), (2, 1, 1, 1)])
def test_range_batch_norm_is_the_formula_with_its_gradients(shape):
    """Also where 16 chunks leave a rest, and where there are fewer."""
    inputs, upstream = random_inputs(*shape), random_inputs(*shape, seed=1)[0]
    norm, y, gradients = run_batch_norm(inputs, upstream)
    leaves = [t.requires_grad_() for t in (inputs[0], *inputs[2:])]
    expected, mean, scale = plain_range_batch_norm(*leaves)
    torch.testing.assert_close(y, expected)
    exact = torch.autograd.grad(expected, leaves, upstream)
    for ours, theirs in zip(gradients, exact, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    # reference.md, section 2: 0.1 old, 0.9 new
    torch.testing.assert_close(norm.running_mean, (0.9 * mean).detach())
    torch.testing.assert_close(norm.running_scale, (0.1 + 0.9 * scale).detach())


def test_gradients_of_range_batch_norm_are_those_of_finite_differences():
    x, _, gamma, beta = random_inputs(3, 3, 2, 4)

    def norm(x, gamma, beta):
        module = RangeBatchNormReLU(3).double()
        del module.gamma, module.beta
        module.gamma, module.beta = gamma, beta
        return module(x)

    inputs = [t.requires_grad_() for t in (x, gamma.abs() + 0.5, beta)]
    assert torch.autograd.gradcheck(norm, inputs)


def test_running_statistics_are_a_tenth_of_the_old_and_nine_of_the_new():
    norm = RangeBatchNormReLU(4).double()
    means, scales = torch.zeros(4).double(), torch.ones(4).double()
    for seed in range(3):
        x = random_inputs(2, 4, 5, 5, seed)[0]
        norm(x)
        _, mean, scale = plain_range_batch_norm(x, torch.ones(4), torch.zeros(4))
        means, scales = 0.1 * means + 0.9 * mean, 0.1 * scales + 0.9 * scale
    torch.testing.assert_close(norm.running_mean, means)
    torch.testing.assert_close(norm.running_scale, scales)


def test_evaluation_takes_the_running_statistics_and_leaves_them_alone():
    x, _, gamma, beta = random_inputs(2, 4, 5, 5)
    norm = module_of(RangeBatchNormReLU(4), [gamma, beta])
    norm(x)
    norm.eval()
    mean, scale = norm.running_mean.clone(), norm.running_scale.clone()
    one = x[:1, :, :1, :1]  # a single value of a channel
    expected = ((one - mean.view(1, 4, 1, 1)) * (scale * gamma).view(1, 4, 1, 1)) + beta.view(
        1, 4, 1, 1
    )
    torch.testing.assert_close(norm(one), expected.relu())
    assert torch.equal(norm.running_mean, mean)
    assert torch.equal(norm.running_scale, scale)
