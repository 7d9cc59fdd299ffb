"""Gossip algorithms in edge form: per edge and per message, for fixed and changing graphs."""

from edgesim.gossip.algorithm import Algorithm, GossipState, OutEdge, Share
from edgesim.gossip.choco import Choco
from edgesim.gossip.choco_numerator import ChocoNumerator
from edgesim.gossip.dcd import Dcd
from edgesim.gossip.deep_squeeze import DeepSqueeze
from edgesim.gossip.fixed_graph_choco import FixedGraphChoco
from edgesim.gossip.gradient_push import GradientPush

__all__ = [
    "Algorithm",
    "Choco",
    "ChocoNumerator",
    "Dcd",
    "DeepSqueeze",
    "FixedGraphChoco",
    "GossipState",
    "GradientPush",
    "OutEdge",
    "Share",
]
