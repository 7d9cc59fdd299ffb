"""Optimizers against torch.optim and against the identities of reference.md, section 3.5."""

from __future__ import annotations

import pytest
import torch

from edgesim.hardware.layer_kinds import LAYER_KINDS
from edgesim.hardware.work import FAR_ENTRIES
from edgesim.learning.adam import Adam, QuasiGlobalAdam
from edgesim.learning.optimizers import (
    LearningRateSchedule,
    OptimizerState,
    QuasiGlobalMomentum,
    Sgd,
)


def quadratic(x):
    scale = torch.linspace(0.1, 2.0, x.numel(), dtype=x.dtype)
    return scale * (x - 1.0)


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.9, True), (0.9, False), (0.0, False)])
def test_sgd_equals_torch_sgd(momentum, nesterov):
    x = torch.randn(20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    parameter = x.clone().requires_grad_()
    theirs = torch.optim.SGD(
        [parameter], lr=0.05, momentum=momentum, nesterov=nesterov, weight_decay=1e-2
    )
    ours = Sgd(momentum=momentum, nesterov=nesterov, weight_decay=1e-2)
    state = ours.init(x)
    for _ in range(30):
        parameter.grad = quadratic(parameter.detach())
        theirs.step()
        ours.step_(state, x, quadratic(x), 0.05)
        ours.after_gossip_(state, x, 1.0, 0.05)
    torch.testing.assert_close(x, parameter.detach(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("kind", [Sgd, QuasiGlobalMomentum])
@pytest.mark.parametrize("nesterov", [True, False])
def test_no_bit_depends_on_the_parts_that_long_vectors_are_updated_in(kind, nesterov, monkeypatch):
    generator, results = torch.Generator().manual_seed(3), []
    x, g, m = torch.randn(3, (1 << 17) * 2 + 77, generator=generator)
    monkeypatch.setattr("edgesim.learning.optimizers._LONG", 1 << 30)  # not in one pass
    for size in (1 << 17, x.numel()):
        monkeypatch.setattr("edgesim.learning.optimizers._PART", size)
        optimizer = kind(momentum=0.9, nesterov=nesterov, weight_decay=1e-3)
        y, state = x.clone(), OptimizerState(m.clone())
        optimizer.step_(state, y, g.clone(), 0.1)
        results.append((y, state.momentum))
    for of_parts, of_whole in zip(*results, strict=True):
        assert torch.equal(of_parts.view(torch.int32), of_whole.view(torch.int32))


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize(("momentum", "decay", "gamma"), [(0.9, 1e-4, 0.1), (0.37, 0.5, 3e-3)])
@pytest.mark.parametrize("surplus", [0, 1, 9, 15])
def test_the_pass_over_long_vectors_has_the_bits_of_single_operations(
    nesterov, momentum, decay, gamma, surplus, monkeypatch
):
    x, g, m = torch.randn(3, (1 << 16) + surplus, generator=torch.Generator().manual_seed(surplus))
    optimizer, results = Sgd(momentum=momentum, nesterov=nesterov, weight_decay=decay), []
    state = OptimizerState(m.clone())
    assert optimizer._in_one_pass_(state, x.clone(), g.clone(), gamma) == 1 << 16  # and not 0
    for least in (1, 1 << 30):
        monkeypatch.setattr("edgesim.learning.optimizers._LONG", least)
        y, state = x.clone(), OptimizerState(m.clone())
        for _ in range(3):
            optimizer.step_(state, y, g.clone(), gamma)
        results.append((y, state.momentum))
    for in_one_pass, one_by_one in zip(*results, strict=True):
        assert torch.equal(in_one_pass.view(torch.int32), one_by_one.view(torch.int32))


@pytest.mark.parametrize("nesterov", [True, False])
def test_quasi_global_momentum_follows_the_whole_movement(nesterov):
    """reference.md, section 10 check 14: m+ = beta m + (1 - beta) (x - x+) / gamma at u = 1, gossip
    included."""
    beta, gamma = 0.9, 0.1
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(20, dtype=torch.float64, generator=generator)
    optimizer = QuasiGlobalMomentum(momentum=beta, nesterov=nesterov, weight_decay=1e-2)
    state = optimizer.init(x)
    for _ in range(10):
        before, momentum = x.clone(), state.momentum.clone()
        optimizer.step_(state, x, quadratic(x), gamma)
        x.add_(torch.randn(20, dtype=torch.float64, generator=generator), alpha=0.1)  # gossip
        optimizer.after_gossip_(state, x, 1.0, gamma)
        expected = beta * momentum + (1 - beta) * (before - x) / gamma
        torch.testing.assert_close(state.momentum, expected, rtol=0, atol=1e-12)


def test_quasi_global_direction_and_push_weight_follow_the_formulas():
    """d = a + beta (beta m + a), and m+ = beta m + (1 - beta) (x - x+) / gamma at every u."""
    beta, gamma, wd, u = 0.9, 0.1, 1e-2, 0.7
    x, m, g, gossip = (torch.tensor([v], dtype=torch.float64) for v in (2.0, 0.5, 3.0, -0.4))
    optimizer = QuasiGlobalMomentum(momentum=beta, nesterov=True, weight_decay=wd)
    state = optimizer.init(x)
    state.momentum.copy_(m)
    a = 3.0 + wd * 2.0
    d = a + beta * (beta * 0.5 + a)
    optimizer.step_(state, x, g, gamma)
    assert x.item() == pytest.approx(2.0 - gamma * d, abs=1e-15)
    x += gossip
    optimizer.after_gossip_(state, x, u, gamma)
    expected = beta * 0.5 + (1 - beta) * (2.0 - x.item()) / gamma
    assert state.momentum.item() == pytest.approx(expected, abs=1e-14)


def test_learning_rate_warms_up_then_falls_at_milestones():
    schedule = LearningRateSchedule(
        base=0.1, milestones=(100, 150), factor=0.1, warmup_epochs=1, warmup_factor=0.1
    )
    rates = [schedule.at(epoch) for epoch in (0, 1, 99, 100, 149, 150)]
    assert rates == pytest.approx([0.01, 0.1, 0.1, 0.01, 0.01, 0.001])


@pytest.mark.parametrize("length", [1000, FAR_ENTRIES + 5])
@pytest.mark.parametrize(
    ("optimizer", "kind", "ops", "passes"),
    [
        (Sgd(momentum=0.9, nesterov=True, weight_decay=0.0), "sgd_update", 8, 5),
        (
            QuasiGlobalMomentum(momentum=0.9, nesterov=True, weight_decay=0.0),
            "quasi_global_sgd_update",
            13,
            10,
        ),
        (Adam(), "adam_update", 15, 7),
        (QuasiGlobalAdam(), "quasi_global_adam_update", 25, 12),
    ],
)
def test_all_of_an_updates_work_is_that_of_one_kind_of_layer(optimizer, kind, ops, passes, length):
    """So a profile with its time need not add its operations and traffic."""
    work = optimizer.work(length)
    (tally,) = work.layers
    assert tally.kind == kind in LAYER_KINDS
    assert tally.work == work
    assert (work.elementwise_ops, work.traffic_bytes) == (ops * length, 4 * passes * length)
    assert (tally.calls, tally.entries, tally.weights) == (1, length, 0)
    assert tally.far_entries == max(0, length - FAR_ENTRIES)
