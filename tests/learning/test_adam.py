"""Adam against torch.optim, and quasi-global Adam against its recursion in NumPy, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgesim.learning.adam import Adam, AdamState, QuasiGlobalAdam


def quadratic(x):
    scale = torch.linspace(0.1, 2.0, x.numel(), dtype=x.dtype)
    return scale * (x - 1.0)


@pytest.mark.parametrize("beta2", [0.9, 0.999])  # as printed, as probably meant
@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_equals_torch_adam(beta2, decoupled):
    x = torch.randn(20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    parameter = x.clone().requires_grad_()
    theirs = (torch.optim.AdamW if decoupled else torch.optim.Adam)(
        [parameter], lr=0.05, betas=(0.9, beta2), eps=1e-8, weight_decay=1e-2
    )
    ours = Adam(beta1=0.9, beta2=beta2, weight_decay=1e-2, decoupled=decoupled)
    state = ours.init(x)
    for _ in range(30):
        parameter.grad = quadratic(parameter.detach())
        theirs.step()
        ours.step_(state, x, quadratic(x), 0.05)
        ours.after_gossip_(state, x, 1.0, 0.05)
    assert state.steps == 30
    torch.testing.assert_close(x, parameter.detach(), rtol=0, atol=1e-12)


def test_adam_equals_its_recursion_in_numpy():
    """arXiv 1412.6980, Algorithm 1, with the decay of docs/reference.md, section 5."""
    rng = np.random.default_rng(2)
    x, b1, b2, wd, gamma = rng.standard_normal(7), 0.9, 0.9, 1e-4, 3e-5
    m, v, ours = np.zeros(7), np.zeros(7), torch.from_numpy(x.copy())
    adam = Adam(beta1=b1, beta2=b2, weight_decay=wd)
    state = adam.init(ours)
    for t in range(1, 12):
        g = rng.standard_normal(7)
        adam.step_(state, ours, torch.from_numpy(g.copy()), gamma)
        a = g + wd * x
        m, v = b1 * m + (1 - b1) * a, b2 * v + (1 - b2) * a**2
        x = x - gamma * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + 1e-8)
        np.testing.assert_allclose(ours.numpy(), x, rtol=0, atol=1e-15)


@pytest.mark.parametrize("u", [1.0, 0.3])
@pytest.mark.parametrize("damped", [False, True])
def test_quasi_global_adam_equals_its_recursion_in_numpy(damped, u):
    rng = np.random.default_rng(3)
    x, b1, b2, wd, gamma = rng.standard_normal(9), 0.9, 0.99, 1e-3, 0.02
    m, v, ours = np.zeros(9), np.zeros(9), torch.from_numpy(x.copy())
    adam = QuasiGlobalAdam(beta1=b1, beta2=b2, weight_decay=wd, damped=damped)
    state = adam.init(ours)
    for t in range(1, 15):
        g, gossip = rng.standard_normal(9), 0.01 * rng.standard_normal(9)
        adam.step_(state, ours, torch.from_numpy(g.copy()), gamma)
        ours += torch.from_numpy(gossip)
        adam.after_gossip_(state, ours, u, gamma)

        a = g + wd * x
        first = b1 * m + (1 - b1 if damped else 1.0) * a
        second = b2 * v + (1 - b2) * a**2
        half = x - gamma * (first / (1 - b1**t)) / (np.sqrt(second / (1 - b2**t)) + 1e-8)
        after = half + gossip
        movement = (x - after) / u
        n = movement / (np.linalg.norm(movement) + 1e-8)
        m, v, x = b1 * m + (1 - b1) * n, b2 * v + (1 - b2) * n**2, after
        np.testing.assert_allclose(ours.numpy(), x, rtol=0, atol=1e-12)
        np.testing.assert_allclose(state.m.numpy(), m, rtol=0, atol=1e-12)
        np.testing.assert_allclose(state.v.numpy(), v, rtol=0, atol=1e-12)
    assert state.before is None


def test_a_device_that_does_not_move_keeps_finite_moments():
    x = torch.zeros(4)
    adam = QuasiGlobalAdam()
    state = adam.init(x)
    adam.step_(state, x, torch.zeros(4), 0.1)
    adam.after_gossip_(state, x, 1.0, 0.1)
    assert torch.equal(state.m, torch.zeros(4))
    assert torch.equal(x, torch.zeros(4))


@pytest.mark.parametrize("adam", [Adam(weight_decay=1e-3), QuasiGlobalAdam(weight_decay=1e-3)])
def test_no_bit_depends_on_the_parts_that_long_vectors_are_updated_in(adam, monkeypatch):
    generator, results = torch.Generator().manual_seed(3), []
    x, g, m = torch.randn(3, (1 << 17) * 2 + 77, generator=generator)
    for size in (1 << 17, x.numel()):
        monkeypatch.setattr("edgesim.learning.optimizers._PART", size)
        y, state = x.clone(), AdamState(m.clone(), m.square())
        adam.step_(state, y, g.clone(), 0.1)
        adam.after_gossip_(state, y, 1.0, 0.1)
        results.append((y, state.m, state.v))
    for of_parts, of_whole in zip(*results, strict=True):
        assert torch.equal(of_parts.view(torch.int32), of_whole.view(torch.int32))
