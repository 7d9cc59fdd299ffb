"""Dropout from an explicit seed."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from edgesim.models import SeededDropout, global_random, seed_dropout_
from edgesim.models.errors import ModelError
from edgesim.models.global_random import StepSeed
from edgesim.models.own import OwnModelKind


def draw(p: float, seed: int, count: int = 1) -> list[torch.Tensor]:
    dropout = SeededDropout(p)
    seed_dropout_(dropout, seed)
    return [dropout(torch.ones(10_000)) for _ in range(count)]


def test_same_seed_same_mask():
    assert torch.equal(*draw(0.5, 7), *draw(0.5, 7))


def test_another_seed_or_another_call_another_mask():
    first, second = draw(0.5, 7, count=2)
    assert not torch.equal(first, second)
    assert not torch.equal(first, *draw(0.5, 8))


def test_it_is_unbiased():
    (y,) = draw(0.2, 1)
    assert set(y.tolist()) == {0.0, 1.25}
    # Standard deviation of the mean: sqrt(p / (1 - p) / 10,000) = 0.005.
    assert abs(float(y.mean()) - 1) < 4 * 0.005


def test_gradient_passes_where_activations_do():
    dropout = SeededDropout(0.5)
    seed_dropout_(dropout, 3)
    x = torch.ones(100, requires_grad=True)
    y = dropout(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y.detach())


def test_dropouts_of_one_model_have_different_masks():
    first, second = SeededDropout(0.5), SeededDropout(0.5)
    seed_dropout_(nn.Sequential(first, second), 7)
    x = torch.ones(1000)
    assert not torch.equal(first(x), second(x))


def test_evaluation_changes_nothing_and_needs_no_seed():
    x = torch.randn(10, generator=torch.Generator().manual_seed(0))
    assert SeededDropout(0.5).eval()(x) is x


def test_training_without_a_seed_is_refused():
    with pytest.raises(RuntimeError, match="seed_dropout_"):
        SeededDropout(0.5)(torch.ones(1))


def test_no_global_generator_is_used():
    state = torch.get_rng_state()
    draw(0.5, 7)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_a_probability_out_of_range_is_refused(p):
    with pytest.raises(ValueError, match="dropout probability"):
        SeededDropout(p)


class Block(nn.Module):
    """A part with dropout, which may be called several times."""

    def __init__(self, times=1):
        super().__init__()
        self.layer, self.dropout, self.times = nn.Linear(50, 50), SeededDropout(0.5), times

    def forward(self, x):
        for _ in range(self.times):
            x = self.dropout(self.layer(x).relu())
        return x


def gradient(block, *, is_checkpointed):
    seed_dropout_(block, 3)
    block.zero_grad()
    x = torch.randn(20, 50, generator=torch.Generator().manual_seed(0), requires_grad=True)
    y = checkpoint(block, x, use_reentrant=False) if is_checkpointed else block(x)
    y.square().sum().backward()
    return block.layer.weight.grad


def test_a_part_that_is_computed_again_in_the_backward_pass_has_the_same_mask():
    """`torch.utils.checkpoint` restores torch's own generator alone."""
    torch.manual_seed(0)
    block = Block()
    assert torch.equal(
        gradient(block, is_checkpointed=True), gradient(block, is_checkpointed=False)
    )


def test_a_layer_that_is_called_several_times_is_not_computed_again():
    with pytest.raises(ModelError, match=r"give each call a layer of its own"):
        gradient(Block(times=2), is_checkpointed=True)


def test_it_changes_its_input_where_it_is_asked_to():
    dropout = SeededDropout(0.5, inplace=True)
    seed_dropout_(dropout, 7)
    x = torch.ones(10_000)
    assert dropout(x) is x
    assert torch.equal(x, *draw(0.5, 7))


def test_torchs_generator_has_another_stream_than_the_masks():
    step = StepSeed()
    seed_dropout_(step, 7)
    assert step.seed != 7
    with global_random.seeded(step.seed):
        others = torch.rand(10_000) >= 0.5
    (mask,) = draw(0.5, 7)
    assert 0.4 < float((others == (mask > 0)).double().mean()) < 0.6


def test_a_dropout_of_ones_own_with_two_names_is_seeded_under_both():
    dropout = nn.Dropout(0.5)
    kind = OwnModelKind(
        name="Twice", make=lambda *_: nn.Sequential(dropout, nn.Linear(4, 4), dropout)
    )
    made = kind.construct((4,), 4, seed=1)
    assert isinstance(made[0], SeededDropout)
    assert made[0] is made[2]
