"""Range norms in 8 bits: the formulas on the numbers of codes, straight through every rounding."""

from __future__ import annotations

import numpy as np
import plain_quantization as plain
import pytest
import torch
from plain_range_norms import plain_range_batch_norm, plain_range_evonorm, random_inputs

from edgesim.quant import autograd
from edgesim.quant.arithmetic import RangeNormShape
from edgesim.quant.range_evonorm_formulas import chunks_of


class Eight:
    """Inputs in 8 bits, and the formula's view of them: numbers of codes, in double precision."""

    def __init__(self, shape, *, integer_zero, seed=0):
        self.integer_zero = integer_zero
        changes = {} if integer_zero else {"zero_point": "float_offset"}
        self.step = plain.step(seed=3, **changes)
        inputs = random_inputs(*shape, seed, dtype=torch.float32)
        self.x, *self.parameters = inputs
        self.upstream = random_inputs(*shape, seed + 1)[0].float() * 1e-3
        self.grid = self._grid_of(self.x)

    def _grid_of(self, t):
        low, high = float(t.min()), float(t.max())
        return plain.grid_of(low, high, has_integer_zero=self.integer_zero)

    def rounded(self, t):
        """A parameter, or a norm's scales, by way of its own grid."""
        numbers = plain.rounded(
            t.detach().numpy().astype(np.float32), has_integer_zero=self.integer_zero
        )
        return torch.from_numpy(numbers).double()

    def coded(self):
        return plain.coded(self.x, self.grid, self.step)

    def x_hat(self):
        return torch.from_numpy(
            plain.numbers_of(plain.codes_of(self.x.numpy(), self.grid), self.grid)
        ).double()

    def g_hat(self):
        """The upstream gradient with its noise, counted in NHWC order."""
        grid = self._grid_of(self.upstream)
        g_NHWC = self.upstream.permute(0, 2, 3, 1).contiguous().numpy()
        codes = plain.codes_of(g_NHWC, grid, plain.place_seed(3, 1))
        return torch.from_numpy(plain.numbers_of(codes, grid)).permute(0, 3, 1, 2).double()


def assert_near(ours, exact):
    """To rounding of float32 sums whose terms are as large as the largest result."""
    size = float(exact.detach().abs().max())
    torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=1e-5 * size)


@pytest.mark.parametrize("integer_zero", [True, False], ids=["integer", "offset"])
@pytest.mark.parametrize("shape", [(2, 8, 6, 6), (3, 16, 5, 7), (1, 8, 7, 7)])
def test_range_evonorm_in_8_bits_is_the_formula_on_numbers_of_codes(shape, integer_zero):
    """With quantized parameters, scale and gradient; straight through all of them.

    Source: reference.md, section 2.
    """
    case = Eight(shape, integer_zero=integer_zero)
    leaves = [t.clone().requires_grad_() for t in (case.x, *case.parameters)]
    chunks = chunks_of(case.x[0].numel() // 8)
    y = autograd.range_evonorm(
        *leaves, x=case.coded(), shape=RangeNormShape(8, chunks), step=case.step
    )
    gradients = torch.autograd.grad(y, leaves, case.upstream)

    hats = [t.requires_grad_() for t in (case.x_hat(), *map(case.rounded, case.parameters))]
    expected = plain_range_evonorm(*hats, 8, chunks, "hard_sigmoid", case.rounded)
    assert_near(y, expected)
    exact = torch.autograd.grad(expected, hats, case.g_hat())
    for ours, theirs in zip(gradients, exact, strict=True):
        assert_near(ours, theirs)


@pytest.mark.parametrize("integer_zero", [True, False], ids=["integer", "offset"])
def test_range_batch_norm_in_8_bits_is_the_formula_on_numbers_of_codes(integer_zero):
    case = Eight((3, 8, 5, 7), integer_zero=integer_zero)
    leaves = [t.clone().requires_grad_() for t in (case.x, *case.parameters[1:])]
    y, mean, scale = autograd.range_batch_norm(*leaves, x=case.coded(), step=case.step)
    assert not mean.requires_grad
    assert not scale.requires_grad
    gradients = torch.autograd.grad(y, leaves, case.upstream)

    hats = [t.requires_grad_() for t in (case.x_hat(), *map(case.rounded, case.parameters[1:]))]
    expected, exact_mean, exact_scale = plain_range_batch_norm(*hats, case.rounded)
    assert_near(y, expected)
    assert_near(mean, exact_mean)
    assert_near(scale, exact_scale)
    exact = torch.autograd.grad(expected, hats, case.g_hat())
    for ours, theirs in zip(gradients, exact, strict=True):
        assert_near(ours, theirs)


def test_norms_in_8_bits_save_a_byte_an_entry_and_little_else():
    case = Eight((4, 16, 16, 16), integer_zero=True)
    leaves = [t.clone().requires_grad_() for t in (case.x, *case.parameters)]
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        autograd.range_evonorm(*leaves, x=case.coded(), shape=RangeNormShape(8, 16), step=case.step)
    codes = [t for t in saved if t.numel() == case.x.numel()]
    assert [t.dtype for t in codes] == [torch.uint8]
    # Places of extremes: 2 x 16 of 512 entries of a group, 4 bytes each; scales and parameters.
    assert sum(t.nbytes for t in saved) - codes[0].nbytes <= 0.3 * case.x.numel()
