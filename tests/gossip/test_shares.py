"""What every algorithm puts into a share: draws of the generator it was given, and an address."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgesim.compression.compressors import RandomK
from edgesim.gossip.algorithm import GossipState, OutEdge
from edgesim.gossip.choco import Choco
from edgesim.gossip.choco_numerator import ChocoNumerator
from edgesim.gossip.deep_squeeze import DeepSqueeze
from edgesim.gossip.fixed_graph_choco import FixedGraphChoco
from edgesim.gossip.gradient_push import GradientPush
from edgesim.learning.parameters import ParameterLayout

LAYOUT = ParameterLayout.from_shapes([(6, 5), (10,)])
COMPRESSOR = RandomK(keep=0.2, values="fp32")
OF_EDGES = [Choco, ChocoNumerator, DeepSqueeze, GradientPush]


def first_shares(kind, edges):
    """From a state that has sent nothing: public copies and what was left unsent are zero."""
    x = torch.arange(1.0, 41.0)
    algorithm = kind(averaging_rate=0.5, compressor=COMPRESSOR, layout=LAYOUT)
    return algorithm.send_(algorithm.init(x.clone(), {}), edges, np.random.default_rng(5)), x


@pytest.mark.parametrize("kind", [*OF_EDGES, FixedGraphChoco])
def test_entries_are_drawn_by_the_generator_that_the_algorithm_is_given(kind):
    """The first message is the compressed model itself."""
    (share,), x = first_shares(kind, [OutEdge(1, 0.25)])
    expected = COMPRESSOR.compress(x, LAYOUT, np.random.default_rng(5))
    assert share.payload.decode().tolist() == expected.decode().tolist()


@pytest.mark.parametrize("kind", OF_EDGES)
def test_a_successor_sends_in_the_name_of_the_device_whose_place_it_took(kind):
    shares, _ = first_shares(kind, [OutEdge(1, 0.25), OutEdge(2, 0.125, address=7)])
    assert [(s.peer, s.weight, s.address) for s in shares] == [(1, 0.25, None), (2, 0.125, 7)]


def test_the_model_is_the_numerator_itself_while_the_push_weight_is_one():
    x = torch.tensor([3.0, 5.0])
    assert GossipState(x, 1.0).debiased() is x
    assert GossipState(x, 0.5).debiased().tolist() == [6.0, 10.0]
