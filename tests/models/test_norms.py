"""Norms with their nonlinearity, against torch's own layers."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from edgesim.models import NORMS, EvoNormS0, ModelError
from edgesim.models.norms import make_norm_act


@pytest.fixture
def x_NCHW():
    return torch.randn((4, 16, 6, 5), generator=torch.Generator().manual_seed(0))


def test_batch_is_batch_norm_then_relu(x_NCHW):
    expected = functional.relu(nn.BatchNorm2d(16)(x_NCHW))
    assert torch.equal(make_norm_act("batch", 16, "sigmoid")(x_NCHW), expected)


def test_group_is_norm_over_two_groups_then_relu(x_NCHW):
    expected = functional.relu(functional.group_norm(x_NCHW, 2))
    torch.testing.assert_close(make_norm_act("group", 16, "sigmoid")(x_NCHW), expected)


def test_evonorm_has_eight_groups():
    layer = make_norm_act("evonorm_s0", 16, "sigmoid")
    assert isinstance(layer, EvoNormS0)
    assert layer.groups == 8


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_gradients_are_those_of_finite_differences(norm, x_NCHW):
    layer = make_norm_act(norm, 16, "sigmoid").double()
    x = x_NCHW[:2, :, :2, :2].double().requires_grad_()
    assert torch.autograd.gradcheck(layer, [x])


@pytest.mark.parametrize(("norm", "channels"), [("group", 15), ("evonorm_s0", 12)])
def test_channels_that_do_not_fit_the_groups_are_refused(norm, channels):
    with pytest.raises(ModelError, match=f"{channels} channels .* use a multiple"):
        make_norm_act(norm, channels, "sigmoid")


@pytest.mark.parametrize("norm", NORMS)
def test_shape_is_kept(norm, x_NCHW):
    assert make_norm_act(norm, 16, "sigmoid")(x_NCHW).shape == x_NCHW.shape
