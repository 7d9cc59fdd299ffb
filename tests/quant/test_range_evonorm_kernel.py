"""Range EvoNorm kernels: forward bit by bit in numpy, backward against autograd in float64."""

import numpy as np
import pytest
import torch

from edgesim.quant.kernels.norms.range_evonorm import (
    Scales,
    Settings,
    range_evonorm,
    range_evonorm_backward,
)
from edgesim.quant.kernels.rounding.quantize import quantize_stochastic

F = np.float32
EPSILON = 1e-5
# samples, height, width, channels, groups, chunks
GEOMETRIES = {
    "two channels to a group": (3, 16, 16, 16, 8, 16),
    "more rows than are summed in float32": (2, 40, 40, 16, 8, 16),
    "channels in one chunk": (2, 2, 2, 512, 8, 16),
    "chunks across channels": (2, 4, 8, 24, 8, 6),
    "odd sizes": (3, 3, 5, 6, 2, 9),
    "one sample, one pixel": (1, 1, 1, 32, 2, 4),
}
every_geometry = pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES)


class Case:
    """Codes, parameters and a gradient at random."""

    def __init__(self, geometry):
        self.N, self.H, self.W, self.C, groups, chunks = geometry
        rng = np.random.default_rng(self.C + self.H)
        shape = self.N, self.H, self.W, self.C
        self.codes = np.clip(np.rint(rng.normal(110, 40, shape)), 0, 255).astype(np.uint8)
        self.grid = np.array([0.0523, 103], F)
        self.v, self.gamma, self.beta = rng.normal(1, 0.4, (3, self.C)).astype(F)
        entries = self.codes[0].size // groups // chunks
        kappa = 0.54 / np.sqrt(2 * np.log(entries + 1))
        self.settings = Settings(groups=groups, chunks=chunks, kappa=kappa, epsilon=EPSILON)
        self.g_grid = np.array([0.0031, 141], F)
        self.g_codes = rng.integers(0, 256, shape).astype(np.uint8)
        self.g = (self.g_codes.astype(F) - self.g_grid[1]) * self.g_grid[0]

    def chunks(self, x_NHWC):
        """Shape (N, G, J, M), in (channel, pixel) order; of numpy or torch."""
        G, J = self.settings.groups, self.settings.chunks
        x_NPGK = x_NHWC.reshape(self.N, self.H * self.W, G, self.C // G)
        order = (0, 2, 3, 1)
        x_NGKP = x_NPGK.permute(order) if torch.is_tensor(x_NHWC) else x_NPGK.transpose(order)
        return x_NGKP.reshape(self.N, G, J, -1)

    def of_channels(self, by_group_NG):
        """Values by group as (N, 1, 1, C)."""
        return np.repeat(by_group_NG, self.C // self.settings.groups, 1)[:, None, None]

    def forward(self):
        return range_evonorm(self.codes, self.grid, self.v, self.gamma, self.beta, self.settings)

    def backward(self, scales, g_codes=None):
        g_codes = self.g_codes if g_codes is None else g_codes
        return range_evonorm_backward(
            self.codes,
            self.grid,
            self.v,
            self.gamma,
            self.settings,
            scales,
            g_codes,
            self.g_grid,
        )


def rounded(s):
    """On the 8-bit grid of all scales, in float32 operations; scales are above zero, so z = 0."""
    scale = max(s.max() / F(255), F(1e-30))
    return np.clip(np.rint(s * (F(1) / scale)), 0, 255) * scale


@every_geometry
def test_forward_is_that_of_float32_operations_one_by_one(geometry):
    case = Case(geometry)
    chunks = case.chunks(case.codes).astype(np.int64)
    ranges = (chunks.max(3) - chunks.min(3)).sum(2)
    R = ranges.astype(F) * F(1 / case.settings.chunks) * case.grid[0]
    s = F(1) / (R * F(case.settings.kappa) + F(EPSILON))
    s_hat = rounded(s)
    x = (case.codes.astype(F) - case.grid[1]) * case.grid[0]
    v, gamma, beta = case.v, case.gamma, case.beta
    n = x * np.clip((x * v) * F(1 / 6) + F(0.5), 0, 1)
    expected = (n * case.of_channels(s_hat)) * gamma + beta

    y, scales = case.forward()

    np.testing.assert_array_equal(scales.s, s)
    np.testing.assert_array_equal(scales.s_hat, s_hat)
    np.testing.assert_array_equal(y, expected)


@every_geometry
def test_gradients_are_those_of_autograd_straight_through_the_rounding(geometry):
    case = Case(geometry)
    _, scales = case.forward()
    x = (torch.from_numpy(case.codes).double() - case.grid[1]) * float(case.grid[0])
    parameters = case.v, case.gamma, case.beta
    x, v, gamma, beta = (
        leaf.double().requires_grad_() for leaf in (x, *map(torch.from_numpy, parameters))
    )
    chunks, codes = case.chunks(x), case.chunks(case.codes)
    tops, bottoms = (
        chunks.gather(3, torch.from_numpy(places)[..., None])
        for places in (codes.argmax(3), codes.argmin(3))
    )
    R = tops.mean((2, 3)) - bottoms.mean((2, 3))
    s = 1 / (case.settings.kappa * R + EPSILON)
    s_hat = s + (torch.from_numpy(scales.s_hat) - s).detach()
    by_channel = s_hat.repeat_interleave(case.C // case.settings.groups, 1)[:, None, None]
    y = x * (x * v / 6 + 0.5).clamp(0, 1) * by_channel * gamma + beta
    y.backward(torch.from_numpy(case.g).double())

    gradients = case.backward(scales)

    for leaf, found in (
        (x, gradients.x),
        (v, gradients.v),
        (gamma, gradients.gamma),
        (beta, gradients.beta),
    ):
        expected = leaf.grad.numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_gate_has_its_slope_at_its_corners():
    """t is exactly 0 and 1 there, as for torch's clamp; next to them it is cut off."""
    x = np.array([-4, -3, 0, 3, 4, 0, 0, 0], F)
    codes = (x + 8).astype(np.uint8).reshape(1, 1, 1, 8)
    ones = np.ones(8, F)
    settings = Settings(groups=1, chunks=4, kappa=0.3, epsilon=EPSILON)
    scales = Scales(np.zeros((1, 1), F), np.ones((1, 1), F))  # s = 0: the range has no gradient
    gradients = range_evonorm_backward(
        codes,
        np.array([1, 8], F),
        ones,
        ones,
        settings,
        scales,
        np.ones((1, 1, 1, 8), np.uint8),
        np.array([1, 0], F),
    )
    # dn/dx = h + x / 6 inside, h outside.
    np.testing.assert_allclose(gradients.x.reshape(-1)[:5], [0, -0.5, 0.5, 1.5, 1], atol=1e-7)
    np.testing.assert_allclose(gradients.v[:5], [0, 1.5, 0, 1.5, 0], atol=1e-7)


def test_incoming_gradient_is_rounded_stochastically_with_the_seed():
    """The sum of g over entries that share a channel is that of the codes' numbers."""
    case = Case(GEOMETRIES["odd sizes"])
    _, scales = case.forward()
    g = case.g + F(0.25) * case.g_grid[0]
    results = []
    for seed in (5, 5, 6):
        g_codes = np.empty(g.shape, np.uint8)
        quantize_stochastic(g, case.g_grid, seed, g_codes)
        results.append(case.backward(scales, g_codes))
    first, again, other = results
    np.testing.assert_array_equal(first.x, again.x)
    assert (first.x != other.x).any()
    steps = first.beta / case.g_grid[0]
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-3)
    nearest = case.backward(scales).beta
    rounded_up = (first.beta - nearest) / case.g_grid[0]
    # A quarter of the entries, but for the last codes; 45 to a channel, five deviations.
    share = rounded_up.sum() / case.codes.size
    assert abs(share - 0.25) < 5 * np.sqrt(0.25 * 0.75 / case.codes.size)
