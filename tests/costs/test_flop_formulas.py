"""Multiply-accumulates of operations that torch's own counter leaves out, by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from edgesim.costs.measured import work_of

T, N = 12, 4


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), requires_grad=True)


def recurrent(kind, gates):
    layer = kind(8, 16, batch_first=True)
    forward = N * T * gates * 16 * (8 + 16)
    return lambda: layer(draw(N, T, 8))[0], 3 * forward


def attention():
    q, k, v = (draw(N, 2, T, 8) for _ in range(3))
    product = N * 2 * T * T * 8
    # Two products forward; backward two for each, and the scores again where they are not kept.
    return lambda: functional.scaled_dot_product_attention(q, k, v), (6 * product, 7 * product)


def bilinear():
    layer = nn.Bilinear(5, 6, 3)
    return lambda: layer(draw(N, 5), draw(N, 6)), (3 * N * 3 * 5 * 6, 4 * N * 3 * 5 * 6)


def matrix_vector():
    matrix, vector = draw(7, 9), draw(9)
    return lambda: matrix @ vector, (2 * 63, 3 * 63)


@pytest.mark.parametrize(
    ("case"),
    [
        lambda: recurrent(nn.LSTM, 4),
        lambda: recurrent(nn.GRU, 3),
        lambda: recurrent(nn.RNN, 1),
        attention,
        bilinear,
        matrix_vector,
    ],
    ids=["LSTM", "GRU", "RNN", "attention", "bilinear", "matrix and vector"],
)
def test_multiply_accumulates_of_a_step(case):
    run, wanted = case()
    low, high = wanted if isinstance(wanted, tuple) else (wanted, wanted)
    macs = work_of(run).macs
    assert 0.97 * low <= macs <= 1.03 * high
