"""Compact pooling is torch's pooling, and saves a byte for each output."""

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from edgesim.quant.max_pool import CompactMaxPool2d

GEOMETRIES = [
    (2, 2, 0, False),
    (2, 2, 0, True),
    (3, 2, 1, False),
    (3, 1, 1, False),
    (2, 3, 0, True),
]


@pytest.mark.parametrize(("kernel", "stride", "padding", "ceil_mode"), GEOMETRIES)
@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (1, 1, 7, 5), (3, 4, 5, 9)])
def test_results_and_gradients_are_those_of_torch(kernel, stride, padding, ceil_mode, shape):
    generator = torch.Generator().manual_seed(1)
    # Few distinct values: ties must go to the same entry as torch's.
    x = torch.randint(0, 4, shape, generator=generator).float()
    ours = x.clone().contiguous(memory_format=torch.channels_last).requires_grad_()
    theirs = x.clone().requires_grad_()
    y = CompactMaxPool2d(kernel, stride=stride, padding=padding, ceil_mode=ceil_mode)(ours)
    expected = nn.MaxPool2d(kernel, stride, padding, ceil_mode=ceil_mode)(theirs)
    assert torch.equal(y, expected)
    g = torch.randn(expected.shape, generator=generator)
    y.backward(g)
    expected.backward(g)
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_a_byte_is_saved_for_each_output():
    saved = []
    x = torch.randn(2, 8, 16, 16, generator=torch.Generator().manual_seed(1), requires_grad=True)
    with saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        y = CompactMaxPool2d(2, stride=2)(x)
    assert sum(t.nbytes for t in saved) == y.numel()
