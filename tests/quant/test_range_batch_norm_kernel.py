"""Range BatchNorm kernels: forward bit by bit in numpy, backward against autograd in float64."""

import numpy as np
import pytest
import torch

from edgesim.quant.kernels.norms.range_batch_norm import (
    Settings,
    batch_moments,
    given_moments,
    range_batch_norm,
    range_batch_norm_backward,
)
from edgesim.quant.kernels.rounding.quantize import quantize_stochastic

F = np.float32
EPSILON = 1e-5
# samples, height, width, channels, chunks
GEOMETRIES = {
    "several pixels to a row": (4, 16, 16, 16, 16),
    "more rows than are summed in float32": (3, 40, 40, 16, 16),
    "a rest that counts for the mean alone": (5, 3, 7, 12, 16),
    "many channels": (8, 2, 2, 512, 16),
    "a prime number of pixels": (1, 1, 17, 6, 8),
    "two chunks": (4, 1, 1, 5, 2),
}
every_geometry = pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES)


class Case:
    """Codes, parameters and a gradient at random."""

    def __init__(self, geometry):
        *sizes, self.C, chunks = geometry
        rng = np.random.default_rng(self.C)
        shape = (*sizes, self.C)
        self.codes = np.clip(np.rint(rng.normal(110, 40, shape)), 0, 255).astype(np.uint8)
        self.grid = np.array([0.0523, 103], F)
        self.gamma = rng.normal(1, 0.4, self.C).astype(F)
        self.beta = rng.normal(0, 0.5, self.C).astype(F)
        self.L = self.codes.size // self.C
        kappa = 0.54 / np.sqrt(2 * np.log(self.L // chunks + 1))
        self.settings = Settings(chunks=chunks, kappa=kappa, epsilon=EPSILON)
        self.g_grid = np.array([0.0031, 141], F)
        self.g_codes = rng.integers(0, 256, shape).astype(np.uint8)
        self.g = (self.g_codes.astype(F) - self.g_grid[1]) * self.g_grid[0]

    def chunks(self, x_NHWC):
        """Shape (J, M, C), without what is left over."""
        J = self.settings.chunks
        return x_NHWC.reshape(self.L, self.C)[: self.L // J * J].reshape(J, -1, self.C)

    def backward(self, moments, g_codes=None):
        g_codes = self.g_codes.copy() if g_codes is None else g_codes  # it is overwritten
        return range_batch_norm_backward(
            self.codes,
            self.grid,
            moments,
            self.gamma,
            self.beta,
            self.settings,
            g_codes,
            self.g_grid,
        )


def rounded(s):
    """On the 8-bit grid of all scales, in float32 operations; scales are above zero, so z = 0."""
    scale = max(s.max() / F(255), F(1e-30))
    return np.clip(np.rint(s * (F(1) / scale)), 0, 255) * scale


@every_geometry
def test_moments_are_exact_until_they_are_rounded(geometry):
    case = Case(geometry)
    sums = case.codes.reshape(-1, case.C).sum(0, dtype=np.int64) - 103 * case.L
    chunks = case.chunks(case.codes).astype(np.int64)
    R = (chunks.max(1) - chunks.min(1)).sum(0).astype(F) * F(1 / case.settings.chunks)
    s = F(1) / (R * case.grid[0] * F(case.settings.kappa) + F(EPSILON))

    moments = batch_moments(case.codes, case.grid, case.settings)

    np.testing.assert_array_equal(moments.mean, (sums / case.L).astype(F) * case.grid[0])
    np.testing.assert_array_equal(moments.s, s)
    np.testing.assert_array_equal(moments.s_hat, rounded(s))


@every_geometry
def test_forward_is_that_of_float32_operations_one_by_one(geometry):
    """With moments that are not the batch's: evaluation does the same."""
    case = Case(geometry)
    rng = np.random.default_rng(1)
    moments = given_moments(rng.normal(0, 1, case.C).astype(F), rng.random(case.C, F) + F(0.1))
    np.testing.assert_array_equal(moments.s_hat, rounded(moments.s))
    x = (case.codes.astype(F) - case.grid[1]) * case.grid[0]
    normalized = ((x - moments.mean) * moments.s_hat) * case.gamma + case.beta

    y = range_batch_norm(case.codes, case.grid, moments, case.gamma, case.beta)

    np.testing.assert_array_equal(y, np.maximum(normalized, 0))


@every_geometry
def test_gradients_are_those_of_autograd_straight_through_the_rounding(geometry):
    case = Case(geometry)
    moments = batch_moments(case.codes, case.grid, case.settings)
    x = (torch.from_numpy(case.codes).double() - case.grid[1]) * float(case.grid[0])
    x, gamma, beta = (
        leaf.double().requires_grad_()
        for leaf in (x, torch.from_numpy(case.gamma), torch.from_numpy(case.beta))
    )
    chunks, codes = case.chunks(x), case.chunks(case.codes)
    tops, bottoms = (
        chunks.gather(1, torch.from_numpy(places)[:, None])
        for places in (codes.argmax(1), codes.argmin(1))
    )
    R = tops.mean((0, 1)) - bottoms.mean((0, 1))
    s = 1 / (case.settings.kappa * R + EPSILON)
    s_hat = s + (torch.from_numpy(moments.s_hat) - s).detach()
    y = ((x - x.mean((0, 1, 2))) * s_hat * gamma + beta).relu()
    y.backward(torch.from_numpy(case.g).double())

    gradients = case.backward(moments)

    for leaf, found in ((x, gradients.x), (gamma, gradients.gamma), (beta, gradients.beta)):
        expected = leaf.grad.numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_incoming_gradient_is_rounded_stochastically_with_the_seed():
    """Before the mask: what ReLU cut off draws its noise too, and is zero after it."""
    case = Case(GEOMETRIES["several pixels to a row"])
    case.g += F(0.25) * case.g_grid[0]
    moments = batch_moments(case.codes, case.grid, case.settings)
    results = []
    for seed in (5, 5, 6):
        g_codes = np.empty(case.g.shape, np.uint8)
        quantize_stochastic(case.g, case.g_grid, seed, g_codes)
        results.append(case.backward(moments, g_codes))
    first, again, other = results
    np.testing.assert_array_equal(first.x, again.x)
    assert (first.x != other.x).any()
    steps = first.beta / case.g_grid[0]
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-2)
